package spread

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
	tooMany = "node(s) didn't match pod topology spread constraints"
	noLabel = "never: node(s) didn't match pod topology spread constraints (missing required label)"
)

type change = func(*v1.TopologySpreadConstraint)

// by is a hard constraint for pods with the label app=web.
func by(key string, maxSkew int32, changes ...change) v1.TopologySpreadConstraint {
	c := v1.TopologySpreadConstraint{
		TopologyKey: key, MaxSkew: maxSkew, WhenUnsatisfiable: v1.DoNotSchedule,
		LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}},
	}
	for _, change := range changes {
		change(&c)
	}
	return c
}

func soft(c *v1.TopologySpreadConstraint) { c.WhenUnsatisfiable = v1.ScheduleAnyway }

func selecting(s *metav1.LabelSelector) change {
	return func(c *v1.TopologySpreadConstraint) { c.LabelSelector = s }
}

func atLeast(domains int32) change {
	return func(c *v1.TopologySpreadConstraint) { c.MinDomains = &domains }
}

func ignoringNodes(c *v1.TopologySpreadConstraint) {
	c.NodeAffinityPolicy = new(v1.NodeInclusionPolicyIgnore)
}

func honoringTaints(c *v1.TopologySpreadConstraint) {
	c.NodeTaintsPolicy = new(v1.NodeInclusionPolicyHonor)
}

// nodes makes nodes from lines like "n1 zone=a disk=ssd !spot"; the last word is a
// taint.
func nodes(text string) (all []*v1.Node) {
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		n := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: words[0], Labels: map[string]string{v1.LabelHostname: words[0]}}}
		for _, word := range words[1:] {
			if taint, is := strings.CutPrefix(word, "!"); is {
				n.Spec.Taints = []v1.Taint{{Key: taint, Effect: v1.TaintEffectNoSchedule}}
				continue
			}
			key, value, _ := strings.Cut(word, "=")
			n.Labels[key] = value
		}
		all = append(all, n)
	}
	return all
}

func pod(name string, changes ...func(*v1.Pod)) *v1.Pod {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), Namespace: "blue", Labels: map[string]string{"app": "web"}}}
	for _, change := range changes {
		change(p)
	}
	return p
}

func spreading(all ...v1.TopologySpreadConstraint) func(*v1.Pod) {
	return func(p *v1.Pod) { p.Spec.TopologySpreadConstraints = all }
}

func labelledAs(key, value string) func(*v1.Pod) {
	return func(p *v1.Pod) { p.Labels = map[string]string{key: value} }
}

func in(namespace string) func(*v1.Pod) { return func(p *v1.Pod) { p.Namespace = namespace } }

func leaving(p *v1.Pod) { p.DeletionTimestamp = &metav1.Time{} }

func selectingNodes(key, value string) func(*v1.Pod) {
	return func(p *v1.Pod) { p.Spec.NodeSelector = map[string]string{key: value} }
}

func tolerating(key string) func(*v1.Pod) {
	return func(p *v1.Pod) { p.Spec.Tolerations = []v1.Toleration{{Key: key, Operator: v1.TolerationOpExists}} }
}

func systemArgs() *config.PodTopologySpreadArgs {
	return &config.PodTopologySpreadArgs{DefaultingType: config.SystemDefaulting}
}

// running places pods with the label app=web.
func running(c *plugintest.Cluster, on string, changes ...func(*v1.Pod)) {
	for i, node := range strings.Fields(on) {
		c.Place(pod(fmt.Sprint("running-", on, i), changes...), node)
	}
}

const threeZones = "a1 zone=a\na2 zone=a\nb1 zone=b\nc1 zone=c"

func TestFilterKeepsDomainsWithinTheSkew(t *testing.T) {
	type rejected = map[string]string
	cases := map[string]struct {
		nodes   string
		running string
		as      func(*v1.Pod) // changes the placed pods
		pod     []func(*v1.Pod)
		want    rejected
	}{
		"a zone with one pod more than the emptiest is full": {threeZones, "a1", nil, []func(*v1.Pod){spreading(by("zone", 1))}, rejected{"a1": tooMany, "a2": tooMany}},
		"a skew of two allows two more":                      {threeZones, "a1", nil, []func(*v1.Pod){spreading(by("zone", 2))}, nil},
		"zones count, not nodes":                             {threeZones, "a1 a2 b1 c1", nil, []func(*v1.Pod){spreading(by("zone", 1))}, rejected{"a1": tooMany, "a2": tooMany}},
		"by node":                                            {threeZones, "a1 b1", nil, []func(*v1.Pod){spreading(by(v1.LabelHostname, 1))}, rejected{"a1": tooMany, "b1": tooMany}},
		"a pod that is not one of those does not add to it":  {threeZones, "a1", nil, []func(*v1.Pod){spreading(by("zone", 1)), labelledAs("app", "other")}, nil},
		"but what is there already counts":                   {threeZones, "a1 a2", nil, []func(*v1.Pod){spreading(by("zone", 1)), labelledAs("app", "other")}, rejected{"a1": tooMany, "a2": tooMany}},
		"pods of other namespaces do not count":              {threeZones, "a1", in("red"), []func(*v1.Pod){spreading(by("zone", 1))}, nil},
		"pods being deleted do not count":                    {threeZones, "a1", leaving, []func(*v1.Pod){spreading(by("zone", 1))}, nil},
		"a nil selector counts no pod":                       {threeZones, "a1 a1", nil, []func(*v1.Pod){spreading(by("zone", 1, selecting(nil)))}, nil},
		"an empty selector counts no pod":                    {threeZones, "a1 a1", nil, []func(*v1.Pod){spreading(by("zone", 1, selecting(&metav1.LabelSelector{})))}, nil},
		"soft constraints reject nothing":                    {threeZones, "a1 a1", nil, []func(*v1.Pod){spreading(by("zone", 1, soft))}, nil},
		"a node without the label never fits":                {"n zone=a\nm", "", nil, []func(*v1.Pod){spreading(by("zone", 1))}, rejected{"m": noLabel}},
		"the first constraint that fails tells":              {"n zone=a\nm\no zone=b", "m", nil, []func(*v1.Pod){spreading(by(v1.LabelHostname, 1), by("zone", 1))}, rejected{"m": noLabel}},
		"a node lacking another label does not count":        {"n zone=a\nm rack=1\no zone=b rack=1", "o", nil, []func(*v1.Pod){spreading(by("zone", 1), by("rack", 1))}, rejected{"m": noLabel, "n": noLabel}},
		"too few domains: the emptiest is as if empty":       {"n zone=a\nm zone=b", "n m", nil, []func(*v1.Pod){spreading(by("zone", 1, atLeast(3)))}, rejected{"n": tooMany, "m": tooMany}},
		"enough domains":                                     {"n zone=a\nm zone=b", "n m", nil, []func(*v1.Pod){spreading(by("zone", 1, atLeast(2)))}, nil},
		"zones without a node the pod may go to do not count": {"n zone=a disk=ssd\nm zone=b disk=ssd\no zone=c", "n m", nil,
			[]func(*v1.Pod){spreading(by("zone", 1)), selectingNodes("disk", "ssd")}, nil},
		"unless node affinity is ignored": {"n zone=a disk=ssd\nm zone=b disk=ssd\no zone=c", "n m", nil,
			[]func(*v1.Pod){spreading(by("zone", 1, ignoringNodes)), selectingNodes("disk", "ssd")}, rejected{"n": tooMany, "m": tooMany}},
		"taints are ignored":       {"n zone=a\nm zone=b !spot", "n", nil, []func(*v1.Pod){spreading(by("zone", 1))}, rejected{"n": tooMany}},
		"unless they are honoured": {"n zone=a\nm zone=b !spot", "n", nil, []func(*v1.Pod){spreading(by("zone", 1, honoringTaints))}, nil},
		"and not tolerated":        {"n zone=a\nm zone=b !spot", "n", nil, []func(*v1.Pod){spreading(by("zone", 1, honoringTaints)), tolerating("spot")}, rejected{"n": tooMany}},
		"matchLabelKeys add the pod's own values": {threeZones, "a1", nil,
			[]func(*v1.Pod){spreading(by("zone", 1, func(c *v1.TopologySpreadConstraint) { c.MatchLabelKeys = []string{"version", "none"} })), func(p *v1.Pod) { p.Labels["version"] = "2" }}, nil},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			cluster := plugintest.New(t, nodes(c.nodes)...)
			as := c.as
			if as == nil {
				as = func(*v1.Pod) {}
			}
			running(cluster, c.running, as)
			v := cluster.Evaluate(cluster.Make(New, systemArgs()), cluster.Digest(pod("new", c.pod...)))
			if !maps.Equal(v.Rejected, c.want) {
				t.Errorf("rejected %q, want %q", v.Rejected, c.want)
			}
		})
	}
}

func TestScoreCountsPodsByTheLogarithmOfTheDomains(t *testing.T) {
	type scores = map[string]int64
	withList := func(all ...v1.TopologySpreadConstraint) *config.PodTopologySpreadArgs {
		for i := range all {
			all[i].LabelSelector = nil
		}
		return &config.PodTopologySpreadArgs{DefaultingType: config.ListDefaulting, DefaultConstraints: all}
	}
	cases := map[string]struct {
		nodes   string
		running string
		args    *config.PodTopologySpreadArgs
		service bool
		pod     []func(*v1.Pod)
		want    scores
	}{
		"without constraints there is no score": {threeZones, "a1", systemArgs(), false, nil, nil},
		"hard constraints do not score":         {threeZones, "", systemArgs(), false, []func(*v1.Pod){spreading(by("zone", 1))}, nil},
		"no pod anywhere": {threeZones, "", systemArgs(), false, []func(*v1.Pod){spreading(by("zone", 1, soft))},
			scores{"a1": 100, "a2": 100, "b1": 100, "c1": 100}},
		// ln(3+2) = 1.609: 3 pods are 4.83, rounded 5; 1 pod is 2; 0 are 0.
		"fewer pods are better": {threeZones, "a1 a1 a2 b1", systemArgs(), false, []func(*v1.Pod){spreading(by("zone", 1, soft))},
			scores{"a1": 0, "a2": 0, "b1": 60, "c1": 100}},
		// maxSkew 3 adds 2: 7, 4 and 2 of most 7, least 2.
		"a wider skew evens it out": {threeZones, "a1 a1 a2 b1", systemArgs(), false, []func(*v1.Pod){spreading(by("zone", 3, soft))},
			scores{"a1": 28, "a2": 28, "b1": 71, "c1": 100}},
		// ln(4+2) = 1.792: a1 4 (3.58), a2 2 (1.79), b1 2, c1 0.
		"by node only the node's own pods count": {threeZones, "a1 a1 a2 b1", systemArgs(), false, []func(*v1.Pod){spreading(by(v1.LabelHostname, 1, soft))},
			scores{"a1": 0, "a2": 50, "b1": 50, "c1": 100}},
		"a node that lacks a label gets nothing": {"n zone=a\nm", "", systemArgs(), false, []func(*v1.Pod){spreading(by("zone", 1, soft))},
			scores{"n": 100, "m": 0}},
		// System defaults: n 1*ln(2+2)+2 by node and 1*ln(2+2)+4 by zone, where no zone
		// is a second domain: 8.77, 9; m has no zone: 2.
		"the system defaults do not ask for a zone": {"n zone=a\nm", "n", systemArgs(), true, nil, scores{"n": 22, "m": 100}},
		"nor apply without a service or controller": {"n zone=a\nm", "n", systemArgs(), false, nil, nil},
		"nor to pods with constraints of their own": {"n zone=a\nm", "n", systemArgs(), true, []func(*v1.Pod){spreading(by("zone", 1))}, nil},
		"listed defaults ask for every label":       {"n zone=a\nm", "n", withList(by("zone", 1, soft)), true, nil, scores{"n": 100, "m": 0}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			all := nodes(c.nodes)
			for _, n := range all { // zones by their stable label too
				if zone, found := n.Labels["zone"]; found {
					n.Labels[v1.LabelTopologyZone] = zone
				}
			}
			cluster := plugintest.New(t, all...)
			running(cluster, c.running)
			if c.service {
				if err := cluster.Table.SetGroup("blue", nodetable.Group{APIVersion: "v1", Kind: "Service", Name: "web"}, by("", 1).LabelSelector); err != nil {
					t.Fatal(err)
				}
			}
			v := cluster.Evaluate(cluster.Make(New, c.args), cluster.Digest(pod("new", c.pod...)))
			if !maps.Equal(v.Scores, c.want) || (v.Scores == nil) != (c.want == nil) {
				t.Errorf("scores %v, want %v", v.Scores, c.want)
			}
		})
	}
}

func TestHintsQueueWhereTheSpreadMayHaveChanged(t *testing.T) {
	cluster := plugintest.New(t)
	plugin := cluster.Make(New, systemArgs()).(*Plugin)
	waits := func(all ...v1.TopologySpreadConstraint) *nodetable.Pod {
		return cluster.Digest(pod("waits", spreading(all...)))
	}
	of := func(changes ...func(*v1.Pod)) *nodetable.Pod { return cluster.Digest(pod("other", changes...)) }
	node := func(text string) *nodetable.Node { return nodetable.NewNode(nodes(text)[0]) }
	changes := func(was, is *nodetable.Pod) framework.Occurrence { return framework.Occurrence{OldPod: was, Pod: is} }
	turns := func(was, is *nodetable.Node) framework.Occurrence {
		return framework.Occurrence{OldNode: was, Node: is}
	}
	selector := cluster.Digest(pod("waits", spreading(by("zone", 1)), selectingNodes("disk", "ssd")))
	cases := map[string]struct {
		pod  *nodetable.Pod
		o    framework.Occurrence
		want framework.Hint
	}{
		"a pod that counts came":                  {waits(by("zone", 1)), changes(nil, of()), framework.Queue},
		"a pod that counts went":                  {waits(by("zone", 1)), changes(of(), nil), framework.Queue},
		"one that had been on its way out":        {waits(by("zone", 1)), changes(of(leaving), nil), framework.Queue},
		"another pod came":                        {waits(by("zone", 1)), changes(nil, of(labelledAs("app", "db"))), framework.QueueSkip},
		"one of another namespace":                {waits(by("zone", 1)), changes(nil, of(in("red"))), framework.QueueSkip},
		"a pod counts no more":                    {waits(by("zone", 1)), changes(of(), of(labelledAs("app", "db"))), framework.Queue},
		"a pod counts as before":                  {waits(by("zone", 1)), changes(of(), of()), framework.QueueSkip},
		"the pod tolerates more where it matters": {waits(by("zone", 1, honoringTaints)), changes(waits(), cluster.Digest(pod("waits", tolerating("spot")))), framework.Queue},
		"the pod tolerates more where not":        {waits(by("zone", 1)), changes(waits(), cluster.Digest(pod("waits", tolerating("spot")))), framework.QueueSkip},
		"a node with the label came":              {waits(by("zone", 1)), turns(nil, node("n zone=a")), framework.Queue},
		"a node without it came":                  {waits(by("zone", 1)), turns(nil, node("n")), framework.QueueSkip},
		"a node with one label of two came":       {waits(by("zone", 1), by("rack", 1)), turns(nil, node("n zone=a")), framework.QueueSkip},
		"a node with the label went":              {waits(by("zone", 1)), turns(node("n zone=a"), nil), framework.Queue},
		"a node without it went":                  {waits(by("zone", 1)), turns(node("n"), nil), framework.QueueSkip},
		"a node got the label":                    {waits(by("zone", 1)), turns(node("n"), node("n zone=a")), framework.Queue},
		"a node changed its zone":                 {waits(by("zone", 1)), turns(node("n zone=b"), node("n zone=a")), framework.Queue},
		"a node changed another label":            {waits(by("zone", 1)), turns(node("n zone=a"), node("n zone=a x=y")), framework.QueueSkip},
		"a node came to count":                    {selector, turns(node("n zone=a"), node("n zone=a disk=ssd")), framework.Queue},
		"a taint came where it matters":           {waits(by("zone", 1, honoringTaints)), turns(node("n zone=a"), node("n zone=a !spot")), framework.Queue},
		"a taint came where it does not":          {waits(by("zone", 1)), turns(node("n zone=a"), node("n zone=a !spot")), framework.QueueSkip},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			hint := plugin.podChanged
			if c.o.OldNode != nil || c.o.Node != nil {
				hint = plugin.nodeChanged
			}
			if got, err := hint(&c.o, c.pod); got != c.want || err != nil {
				t.Errorf("hint %v (%v), want %v", got, err, c.want)
			}
		})
	}
}

func TestArgumentsOfAnotherPluginAreRefused(t *testing.T) {
	if _, err := New(nil, framework.Env{}); err == nil {
		t.Error("made without arguments")
	}
}
