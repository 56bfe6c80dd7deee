package nodeaffinity

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	config "k8s.io/kube-scheduler/config/v1"

	"github.com/evictd/evictd/internal/require"
	"github.com/evictd/evictd/scheduleradapter/framework"
	"github.com/evictd/evictd/scheduleradapter/nodetable"
	"github.com/evictd/evictd/scheduleradapter/plugins/plugintest"
)

func node(name string, labels map[string]string) *v1.Node {
	return &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
}

func label(key string, op v1.NodeSelectorOperator, values ...string) v1.NodeSelectorTerm {
	return v1.NodeSelectorTerm{MatchExpressions: []v1.NodeSelectorRequirement{{Key: key, Operator: op, Values: values}}}
}

func name(op v1.NodeSelectorOperator, values ...string) v1.NodeSelectorTerm {
	return v1.NodeSelectorTerm{MatchFields: []v1.NodeSelectorRequirement{{Key: metav1.ObjectNameField, Operator: op, Values: values}}}
}

func and(terms ...v1.NodeSelectorTerm) (all v1.NodeSelectorTerm) {
	for _, t := range terms {
		all.MatchExpressions = append(all.MatchExpressions, t.MatchExpressions...)
		all.MatchFields = append(all.MatchFields, t.MatchFields...)
	}
	return all
}

func weighted(weight int32, term v1.NodeSelectorTerm) v1.PreferredSchedulingTerm {
	return v1.PreferredSchedulingTerm{Weight: weight, Preference: term}
}

func affinity(required []v1.NodeSelectorTerm, preferred ...v1.PreferredSchedulingTerm) *v1.NodeAffinity {
	a := &v1.NodeAffinity{PreferredDuringSchedulingIgnoredDuringExecution: preferred}
	if required != nil {
		a.RequiredDuringSchedulingIgnoredDuringExecution = &v1.NodeSelector{NodeSelectorTerms: required}
	}
	return a
}

func pod(selector map[string]string, a *v1.NodeAffinity) *v1.Pod {
	return &v1.Pod{Spec: v1.PodSpec{NodeSelector: selector, Affinity: &v1.Affinity{NodeAffinity: a}}}
}

func added(a *v1.NodeAffinity) *config.NodeAffinityArgs {
	return &config.NodeAffinityArgs{AddedAffinity: a}
}

const (
	mismatch = "never: node(s) didn't match Pod's node affinity/selector"
	enforced = "never: node(s) didn't match scheduler-enforced node affinity"
)

func TestTermsThatAllNameNodesNarrowTheSet(t *testing.T) {
	const in = v1.NodeSelectorOpIn
	cluster := plugintest.New(t, node("a", map[string]string{"disk": "ssd"}), node("b", nil), node("c", nil))
	plugin := cluster.Make(New, added(nil))
	for _, c := range []struct {
		name      string
		terms     []v1.NodeSelectorTerm
		evaluated int
		refused   string
		message   string
	}{
		{"one name", []v1.NodeSelectorTerm{name(in, "a")}, 1, "", ""},
		{"the union of the terms", []v1.NodeSelectorTerm{name(in, "a"), name(in, "c")}, 2, "", ""},
		{"a term without a name lets in all", []v1.NodeSelectorTerm{name(in, "a"), label("disk", in, "hdd")}, 3, "", ""},
		{"a name that is excluded narrows nothing", []v1.NodeSelectorTerm{name(v1.NodeSelectorOpNotIn, "a")}, 3, "", ""},
		{"names that exclude each other conflict", []v1.NodeSelectorTerm{and(name(in, "a"), name(in, "b"))}, 0, "pod affinity terms conflict", "0/3 nodes are available: pod affinity terms conflict."},
		{"a conflict in one term only", []v1.NodeSelectorTerm{and(name(in, "a"), name(in, "b")), name(in, "c")}, 1, "", ""},
		{"a node there is not", []v1.NodeSelectorTerm{name(in, "z")}, 0, "", "0/3 nodes are available: 3 node(s) didn't satisfy plugin(s) [NodeAffinity]."},
		{"the others count as not satisfying the plugin", []v1.NodeSelectorTerm{and(name(in, "b"), label("disk", in, "ssd"))}, 1, "",
			"0/3 nodes are available: 1 node(s) didn't match Pod's node affinity/selector, 2 node(s) didn't satisfy plugin(s) [NodeAffinity]."},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := cluster.Evaluate(plugin, cluster.Digest(pod(nil, affinity(c.terms))))
			if n := got.Cycle.Evaluated.Count(); n != c.evaluated {
				t.Errorf("%d nodes evaluated, want %d", n, c.evaluated)
			}
			if c.refused != "" && (got.Status.Code != framework.UnschedulableAndUnresolvable || got.Status.Reason != c.refused) {
				t.Errorf("status %+v, want %q", got.Status, c.refused)
			}
			if got.Cycle.Feasible.Empty() && got.Cycle.Message(framework.Status{}) != c.message {
				t.Errorf("message %q, want %q", got.Cycle.Message(framework.Status{}), c.message)
			}
		})
	}
}

func TestNodeThatCameToMatchQueuesThePod(t *testing.T) {
	cluster := plugintest.New(t)
	ssd, plain := nodetable.NewNode(node("n", map[string]string{"disk": "ssd", "pool": "blue"})), nodetable.NewNode(node("n", map[string]string{"pool": "blue"}))
	other := nodetable.NewNode(node("n", map[string]string{"disk": "ssd"}))
	wants := cluster.Digest(pod(map[string]string{"disk": "ssd"}, nil))
	plugin := cluster.Make(New, added(affinity([]v1.NodeSelectorTerm{label("pool", v1.NodeSelectorOpIn, "blue")}))).(*Plugin)
	for _, c := range []struct {
		name     string
		old, now *nodetable.Node
		want     framework.Hint
	}{
		{"a matching node came", nil, ssd, framework.Queue},
		{"another one came", nil, plain, framework.QueueSkip},
		{"one that the profile does not mean came", nil, other, framework.QueueSkip},
		{"it matches now", plain, ssd, framework.Queue},
		{"the profile means it now", other, ssd, framework.Queue},
		{"it matched before", ssd, ssd, framework.QueueSkip},
		{"it matches no more", ssd, plain, framework.QueueSkip},
	} {
		if got, err := plugin.nodeChanged(&framework.Occurrence{OldNode: c.old, Node: c.now}, wants); err != nil || got != c.want {
			t.Errorf("%s: hint %d (%v), want %d", c.name, got, err, c.want)
		}
	}
}

// The reference uses component-helpers for every node.
func TestResultsAreThoseOfTheReference(t *testing.T) {
	keys, values := []string{"a", "b"}, []string{"1", "2", "x"}
	r := rand.New(rand.NewPCG(1, 2))
	labels := func() map[string]string {
		m := map[string]string{}
		for _, key := range keys {
			if r.IntN(2) == 0 {
				m[key] = values[r.IntN(len(values))]
			}
		}
		return m
	}
	terms := func() (list []v1.NodeSelectorTerm) {
		for range r.IntN(3) {
			t := v1.NodeSelectorTerm{}
			for range r.IntN(3) {
				key, value := keys[r.IntN(len(keys))], values[r.IntN(len(values))]
				switch r.IntN(6) {
				case 0:
					t = and(t, label(key, v1.NodeSelectorOpIn, value, "2"))
				case 1:
					t = and(t, label(key, v1.NodeSelectorOpNotIn, value))
				case 2:
					t = and(t, label(key, v1.NodeSelectorOpExists))
				case 3:
					t = and(t, label(key, v1.NodeSelectorOpDoesNotExist))
				case 4:
					t = and(t, label(key, []v1.NodeSelectorOperator{v1.NodeSelectorOpGt, v1.NodeSelectorOpLt}[r.IntN(2)], fmt.Sprint(r.IntN(4))))
				case 5:
					t = and(t, name(v1.NodeSelectorOpNotIn, fmt.Sprint("node-", r.IntN(8))))
				}
			}
			list = append(list, t)
		}
		return list
	}
	preferences := func() (list []v1.PreferredSchedulingTerm) {
		for _, t := range terms() {
			list = append(list, weighted(1+r.Int32N(5), t))
		}
		return list
	}
	for range 500 {
		cluster := plugintest.New(t)
		var nodes []*v1.Node
		for i := range 1 + r.IntN(8) {
			nodes = append(nodes, node(fmt.Sprint("node-", i), labels()))
			cluster.Table.SetNode(nodetable.NewNode(nodes[i]))
		}
		extra, p := affinity(terms(), preferences()...), pod(nil, affinity(terms(), preferences()...))
		if r.IntN(2) == 0 {
			p.Spec.NodeSelector = labels()
		}
		want := reference(t, nodes, extra, p)
		got := cluster.Evaluate(cluster.Make(New, added(extra)), cluster.Digest(p))
		if !maps.Equal(got.Rejected, want.Rejected) || !maps.Equal(got.Scores, want.Scores) {
			t.Fatalf("rejected %v, scores %v, want %v, %v", got.Rejected, got.Scores, want.Rejected, want.Scores)
		}
	}
}

func reference(t *testing.T, nodes []*v1.Node, extra *v1.NodeAffinity, p *v1.Pod) (v plugintest.Result) {
	t.Helper()
	v.Rejected = map[string]string{}
	var lists []*nodeaffinity.PreferredSchedulingTerms
	for _, a := range []*v1.NodeAffinity{extra, p.Spec.Affinity.NodeAffinity} {
		if terms := a.PreferredDuringSchedulingIgnoredDuringExecution; len(terms) > 0 {
			list, err := nodeaffinity.NewPreferredSchedulingTerms(terms)
			require.NoError(t, err)
			lists = append(lists, list)
		}
	}
	required := nodeaffinity.GetRequiredNodeAffinity(p)
	sums, most := map[string]int64{}, int64(0)
	for _, n := range nodes {
		if terms := extra.RequiredDuringSchedulingIgnoredDuringExecution; terms != nil {
			if matches, err := nodeaffinity.NewLazyErrorNodeSelector(terms).Match(n); err != nil || !matches {
				v.Rejected[n.Name] = enforced
				continue
			}
		}
		if matches, err := required.Match(n); err != nil || !matches {
			v.Rejected[n.Name] = mismatch
			continue
		}
		if lists == nil {
			continue
		}
		sums[n.Name] = 0
		for _, list := range lists {
			sums[n.Name] += list.Score(n)
		}
		most = max(most, sums[n.Name])
	}
	for name, sum := range sums {
		if v.Scores == nil {
			v.Scores = map[string]int64{}
		}
		v.Scores[name] = sum
		if most > 0 {
			v.Scores[name] = 100 * sum / most
		}
	}
	return v
}
