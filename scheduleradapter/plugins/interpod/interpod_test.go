package interpod

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	config "k8s.io/kube-scheduler/config/v1"

	"github.com/evictd/evictd/scheduleradapter/framework"
	"github.com/evictd/evictd/scheduleradapter/nodetable"
	"github.com/evictd/evictd/scheduleradapter/plugins/plugintest"
)

const (
	noAffinity = "never: node(s) didn't match pod affinity rules"
	tooNear    = "node(s) didn't match pod anti-affinity rules"
	unwelcome  = "node(s) didn't satisfy existing pods anti-affinity rules"
)

type (
	change     = func(*v1.Pod)
	termChange = func(*v1.PodAffinityTerm)
)

// pods is a term for pods with the label app, by a topology key.
func pods(app, key string, changes ...termChange) v1.PodAffinityTerm {
	t := v1.PodAffinityTerm{TopologyKey: key, LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}}
	for _, change := range changes {
		change(&t)
	}
	return t
}

func inNamespaces(names ...string) termChange {
	return func(t *v1.PodAffinityTerm) { t.Namespaces = names }
}

func inNamespacesLike(labels map[string]string) termChange {
	return func(t *v1.PodAffinityTerm) { t.NamespaceSelector = &metav1.LabelSelector{MatchLabels: labels} }
}

func affinityOf(p *v1.Pod) *v1.Affinity {
	if p.Spec.Affinity == nil {
		p.Spec.Affinity = &v1.Affinity{PodAffinity: &v1.PodAffinity{}, PodAntiAffinity: &v1.PodAntiAffinity{}}
	}
	return p.Spec.Affinity
}

func with(terms ...v1.PodAffinityTerm) change {
	return func(p *v1.Pod) {
		affinityOf(p).PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution = terms
	}
}

func without(terms ...v1.PodAffinityTerm) change {
	return func(p *v1.Pod) {
		affinityOf(p).PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution = terms
	}
}

func liking(weight int32, term v1.PodAffinityTerm) change {
	return func(p *v1.Pod) {
		a := affinityOf(p).PodAffinity
		a.PreferredDuringSchedulingIgnoredDuringExecution = append(a.PreferredDuringSchedulingIgnoredDuringExecution, v1.WeightedPodAffinityTerm{Weight: weight, PodAffinityTerm: term})
	}
}

func disliking(weight int32, term v1.PodAffinityTerm) change {
	return func(p *v1.Pod) {
		a := affinityOf(p).PodAntiAffinity
		a.PreferredDuringSchedulingIgnoredDuringExecution = append(a.PreferredDuringSchedulingIgnoredDuringExecution, v1.WeightedPodAffinityTerm{Weight: weight, PodAffinityTerm: term})
	}
}

func pod(name, app string, changes ...change) *v1.Pod {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), Namespace: "blue", Labels: map[string]string{"app": app}}}
	for _, change := range changes {
		change(p)
	}
	return p
}

func in(namespace string) change { return func(p *v1.Pod) { p.Namespace = namespace } }

func labelled(key, value string) change { return func(p *v1.Pod) { p.Labels[key] = value } }

func leaving(p *v1.Pod) { p.DeletionTimestamp = &metav1.Time{} }

// node makes a node from words like "n1 zone=a".
func node(text string) *v1.Node {
	words := strings.Fields(text)
	n := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: words[0], Labels: map[string]string{v1.LabelHostname: words[0]}}}
	for _, word := range words[1:] {
		key, value, _ := strings.Cut(word, "=")
		n.Labels[key] = value
	}
	return n
}

func args(hardWeight int32, ownOnly bool) *config.InterPodAffinityArgs {
	return &config.InterPodAffinityArgs{HardPodAffinityWeight: &hardWeight, IgnorePreferredTermsOfExistingPods: ownOnly}
}

// running are the placed pods of an app by node.
type running struct {
	app, on string
	changes []change
}

// cluster has zone a with a1 and a2, zone b with b1, and n without a zone; and the
// namespaces blue and red, red with the label team=red.
func cluster(t *testing.T, all []running) *plugintest.Cluster {
	c := plugintest.New(t, node("a1 zone=a"), node("a2 zone=a"), node("b1 zone=b"), node("n"))
	c.Table.SetNamespace("red", nodetable.NewLabels(map[string]string{"team": "red"}))
	for i, r := range all {
		for j, on := range strings.Fields(r.on) {
			c.Place(pod(fmt.Sprint("running-", i, "-", j), r.app, r.changes...), on)
		}
	}
	return c
}

func TestFilterKeepsPodsTogetherAndApart(t *testing.T) {
	type rejected = map[string]string
	cases := map[string]struct {
		running []running
		pod     *v1.Pod
		want    rejected
	}{
		"affinity goes where such a pod is": {[]running{{app: "db", on: "a1"}}, pod("new", "web", with(pods("db", "zone"))),
			rejected{"b1": noAffinity, "n": noAffinity}},
		"by node": {[]running{{app: "db", on: "a1"}}, pod("new", "web", with(pods("db", v1.LabelHostname))),
			rejected{"a2": noAffinity, "b1": noAffinity, "n": noAffinity}},
		"a pod being deleted is one too": {[]running{{app: "db", on: "a1", changes: []change{leaving}}}, pod("new", "web", with(pods("db", "zone"))),
			rejected{"b1": noAffinity, "n": noAffinity}},
		"no such pod is nowhere": {nil, pod("new", "web", with(pods("db", "zone"))),
			rejected{"a1": noAffinity, "a2": noAffinity, "b1": noAffinity, "n": noAffinity}},
		"the first of those that belong together goes where the label is": {nil, pod("new", "web", with(pods("web", "zone"))),
			rejected{"n": noAffinity}},
		"the second is not the first any more": {[]running{{app: "web", on: "b1"}}, pod("new", "web", with(pods("web", "zone"))),
			rejected{"a1": noAffinity, "a2": noAffinity, "n": noAffinity}},
		"one where the label is missing does not count": {[]running{{app: "web", on: "n"}}, pod("new", "web", with(pods("web", "zone"))),
			rejected{"n": noAffinity}},
		"all terms must mean the same pod": {[]running{{app: "web", on: "a1"}, {app: "db", on: "a1"}},
			pod("new", "x", with(pods("web", "zone"), pods("db", v1.LabelHostname))),
			rejected{"a1": noAffinity, "a2": noAffinity, "b1": noAffinity, "n": noAffinity}},
		"each by its own topology": {[]running{{app: "web", on: "a1", changes: []change{labelled("tier", "front")}}},
			pod("new", "x", with(pods("web", "zone"), v1.PodAffinityTerm{TopologyKey: v1.LabelHostname, LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"tier": "front"}}})),
			rejected{"a2": noAffinity, "b1": noAffinity, "n": noAffinity}},
		"only pods of the same namespace are meant": {[]running{{app: "db", on: "a1", changes: []change{in("red")}}}, pod("new", "web", with(pods("db", "zone"))),
			rejected{"a1": noAffinity, "a2": noAffinity, "b1": noAffinity, "n": noAffinity}},
		"unless others are named": {[]running{{app: "db", on: "a1", changes: []change{in("red")}}}, pod("new", "web", with(pods("db", "zone", inNamespaces("red")))),
			rejected{"b1": noAffinity, "n": noAffinity}},
		"or selected": {[]running{{app: "db", on: "a1", changes: []change{in("red")}}}, pod("new", "web", with(pods("db", "zone", inNamespacesLike(map[string]string{"team": "red"})))),
			rejected{"b1": noAffinity, "n": noAffinity}},
		"an empty selector means all of them": {[]running{{app: "db", on: "a1", changes: []change{in("red")}}}, pod("new", "web", with(pods("db", "zone", inNamespacesLike(nil)))),
			rejected{"b1": noAffinity, "n": noAffinity}},
		"a term without a selector means nothing": {[]running{{app: "db", on: "a1"}}, pod("new", "web", without(pods("db", "zone", func(t *v1.PodAffinityTerm) { t.LabelSelector = nil }))),
			nil},
		"anti-affinity keeps away": {[]running{{app: "web", on: "a1"}}, pod("new", "web", without(pods("web", "zone"))),
			rejected{"a1": tooNear, "a2": tooNear}},
		"any of its terms does": {[]running{{app: "web", on: "a1"}, {app: "db", on: "b1"}}, pod("new", "web", without(pods("web", v1.LabelHostname), pods("db", "zone"))),
			rejected{"a1": tooNear, "b1": tooNear}},
		"a placed pod keeps others away": {[]running{{app: "db", on: "a1", changes: []change{without(pods("web", "zone"))}}}, pod("new", "web"),
			rejected{"a1": unwelcome, "a2": unwelcome}},
		"but not from where the label is missing": {[]running{{app: "db", on: "n", changes: []change{without(pods("web", "zone"))}}}, pod("new", "web"),
			nil},
		"affinity tells before anti-affinity, and that before others'": {
			[]running{{app: "db", on: "a1 b1"}, {app: "web", on: "a1", changes: []change{without(pods("new", "zone"))}}, {app: "old", on: "b1", changes: []change{without(pods("new", "zone"))}}},
			pod("new", "new", with(pods("db", "zone")), without(pods("web", v1.LabelHostname))),
			rejected{"a1": tooNear, "a2": unwelcome, "b1": unwelcome, "n": noAffinity}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			cluster := cluster(t, c.running)
			v := cluster.Evaluate(cluster.Make(New, args(1, false)), cluster.Digest(c.pod))
			if !maps.Equal(v.Rejected, c.want) {
				t.Errorf("rejected %q, want %q", v.Rejected, c.want)
			}
		})
	}
}

func TestScoreWeighsBothSides(t *testing.T) {
	type scores = map[string]int64
	cases := map[string]struct {
		running []running
		pod     *v1.Pod
		args    *config.InterPodAffinityArgs
		want    scores
	}{
		"nobody prefers anything": {[]running{{app: "web", on: "a1"}}, pod("new", "web"), args(1, false), nil},
		"preferred pods are not there": {[]running{{app: "web", on: "a1"}}, pod("new", "web", liking(5, pods("db", "zone"))), args(1, false),
			nil},
		"each preferred pod counts, where it is": {[]running{{app: "db", on: "a1 a1 b1"}}, pod("new", "web", liking(5, pods("db", "zone"))), args(1, false),
			scores{"a1": 100, "a2": 100, "b1": 50, "n": 0}},
		"pods rather avoided count against": {[]running{{app: "db", on: "a1 a1 b1"}}, pod("new", "web", disliking(5, pods("db", v1.LabelHostname))), args(1, false),
			scores{"a1": 0, "a2": 100, "b1": 50, "n": 100}},
		"the same everywhere is nothing": {[]running{{app: "db", on: "a1 a2 b1 n"}}, pod("new", "web", liking(5, pods("db", v1.LabelHostname))), args(1, false),
			scores{"a1": 0, "a2": 0, "b1": 0, "n": 0}},
		// a: 30, b: 29 of 30: 96.67, rounded down.
		"scores are rounded down": {[]running{{app: "db", on: "a1"}, {app: "web", on: "b1"}}, pod("new", "x", liking(30, pods("db", "zone")), liking(29, pods("web", "zone"))), args(1, false),
			scores{"a1": 100, "a2": 100, "b1": 96, "n": 0}},
		// 29/100 in floating point times 100 is a little less than 29.
		"as a product of floating point numbers": {[]running{{app: "db", on: "a1"}, {app: "web", on: "b1"}}, pod("new", "x", liking(100, pods("db", "zone")), liking(29, pods("web", "zone"))), args(1, false),
			scores{"a1": 100, "a2": 100, "b1": 28, "n": 0}},
		"placed pods prefer too": {[]running{{app: "db", on: "a1", changes: []change{liking(10, pods("web", "zone"))}}, {app: "x", on: "b1", changes: []change{disliking(10, pods("web", "zone"))}}}, pod("new", "web"), args(1, false),
			scores{"a1": 100, "a2": 100, "b1": 0, "n": 50}},
		"their required affinity counts by the hard weight": {[]running{{app: "db", on: "a1", changes: []change{with(pods("web", "zone"))}}, {app: "x", on: "b1", changes: []change{liking(10, pods("web", "zone"))}}}, pod("new", "web"), args(5, false),
			scores{"a1": 50, "a2": 50, "b1": 100, "n": 0}},
		"which may be nothing": {[]running{{app: "db", on: "a1", changes: []change{with(pods("web", "zone"))}}}, pod("new", "web"), args(0, false), nil},
		"what placed pods want can be left out": {[]running{{app: "db", on: "a1", changes: []change{with(pods("web", "zone")), liking(10, pods("web", "zone"))}}}, pod("new", "web"), args(1, true),
			nil},
		"but not where the pod prefers something itself": {[]running{{app: "db", on: "a1", changes: []change{liking(10, pods("web", "zone"))}}, {app: "x", on: "b1"}}, pod("new", "web", liking(5, pods("x", "zone"))), args(1, true),
			scores{"a1": 100, "a2": 100, "b1": 50, "n": 0}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			cluster := cluster(t, c.running)
			v := cluster.Evaluate(cluster.Make(New, c.args), cluster.Digest(c.pod))
			if !maps.Equal(v.Scores, c.want) || (v.Scores == nil) != (c.want == nil) {
				t.Errorf("scores %v, want %v", v.Scores, c.want)
			}
		})
	}
}

func TestHintsQueueWhereCompanyMayHaveChanged(t *testing.T) {
	cluster := cluster(t, []running{{app: "guard", on: "a1", changes: []change{without(pods("guarded", "rack"))}}})
	plugin := cluster.Make(New, args(1, false)).(*Plugin)
	of := func(app string, changes ...change) *nodetable.Pod {
		return cluster.Digest(pod("other", app, changes...))
	}
	on := func(text string) *nodetable.Node { return nodetable.NewNode(node(text)) }
	changed := func(was, is *nodetable.Pod) framework.Occurrence {
		return framework.Occurrence{OldPod: was, Pod: is}
	}
	turned := func(was, is *nodetable.Node) framework.Occurrence {
		return framework.Occurrence{OldNode: was, Node: is}
	}
	waits := of("web", with(pods("db", "zone")))
	avoids := of("web", without(pods("db", "zone"), pods("cache", "zone")))
	sociable := of("web", with(pods("web", "zone")))
	cases := map[string]struct {
		pod  *nodetable.Pod
		o    framework.Occurrence
		want framework.Hint
	}{
		"a companion came":                          {waits, changed(nil, of("db")), framework.Queue},
		"another pod came":                          {waits, changed(nil, of("cache")), framework.QueueSkip},
		"a pod became a companion":                  {waits, changed(of("cache"), of("db")), framework.Queue},
		"a companion went":                          {waits, changed(of("db"), nil), framework.QueueSkip},
		"a companion of the pod's own kind went":    {sociable, changed(of("web"), nil), framework.Queue},
		"a pod to avoid came":                       {avoids, changed(nil, of("db")), framework.QueueSkip},
		"a pod to avoid went":                       {avoids, changed(of("cache"), nil), framework.Queue},
		"a pod need not be avoided any more":        {avoids, changed(of("db"), of("x")), framework.Queue},
		"a pod that keeps away went":                {of("web"), changed(of("db", without(pods("web", "zone"))), nil), framework.Queue},
		"a pod that keeps away from others went":    {of("web"), changed(of("db", without(pods("x", "zone"))), nil), framework.QueueSkip},
		"a node with the label came":                {waits, turned(nil, on("m zone=a")), framework.Queue},
		"a node without it came":                    {waits, turned(nil, on("m")), framework.QueueSkip},
		"a node came to a pod that avoids":          {avoids, turned(nil, on("m")), framework.Queue},
		"a node got the label":                      {waits, turned(on("m"), on("m zone=a")), framework.Queue},
		"a node got another label":                  {waits, turned(on("m zone=a"), on("m zone=a x=y")), framework.QueueSkip},
		"a node left the zone of one to avoid":      {avoids, turned(on("m zone=a"), on("m")), framework.Queue},
		"a node left the rack of one that is there": {of("guarded"), turned(on("m rack=1"), on("m")), framework.Queue},
		"and for another pod":                       {of("web"), turned(on("m rack=1"), on("m")), framework.QueueSkip},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			hint := plugin.podChanged
			if c.o.Node != nil {
				hint = plugin.nodeChanged
			}
			if got, err := hint(&c.o, c.pod); got != c.want || err != nil {
				t.Errorf("hint %v (%v), want %v", got, err, c.want)
			}
		})
	}
}

func TestArgumentsOfAnotherPluginAreRefused(t *testing.T) {
	if _, err := New(&config.PodTopologySpreadArgs{}, framework.Env{}); err == nil {
		t.Error("made without its arguments")
	}
}
