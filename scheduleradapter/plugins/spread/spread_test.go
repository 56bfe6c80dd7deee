package spread

import (
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

// by is a hard constraint for pods with the label app=web.
func by(key string, changes ...func(*v1.TopologySpreadConstraint)) v1.TopologySpreadConstraint {
	c := v1.TopologySpreadConstraint{
		TopologyKey: key, MaxSkew: 1, WhenUnsatisfiable: v1.DoNotSchedule,
		LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}},
	}
	for _, change := range changes {
		change(&c)
	}
	return c
}

func honoringTaints(c *v1.TopologySpreadConstraint) {
	c.NodeTaintsPolicy = new(v1.NodeInclusionPolicyHonor)
}

// node makes a node from words like "n1 zone=a !spot"; the last is a taint.
func node(text string) *nodetable.Node {
	words := strings.Fields(text)
	n := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: words[0], Labels: map[string]string{v1.LabelHostname: words[0]}}}
	for _, word := range words[1:] {
		if taint, is := strings.CutPrefix(word, "!"); is {
			n.Spec.Taints = []v1.Taint{{Key: taint, Effect: v1.TaintEffectNoSchedule}}
			continue
		}
		key, value, _ := strings.Cut(word, "=")
		n.Labels[key] = value
	}
	return nodetable.NewNode(n)
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

func TestHintsQueueWhereTheSpreadMayHaveChanged(t *testing.T) {
	cluster := plugintest.New(t)
	plugin := cluster.Make(New, &config.PodTopologySpreadArgs{DefaultingType: config.SystemDefaulting}).(*Plugin)
	waits := func(all ...v1.TopologySpreadConstraint) *nodetable.Pod {
		return cluster.Digest(pod("waits", spreading(all...)))
	}
	of := func(changes ...func(*v1.Pod)) *nodetable.Pod { return cluster.Digest(pod("other", changes...)) }
	changes := func(was, is *nodetable.Pod) framework.Occurrence { return framework.Occurrence{OldPod: was, Pod: is} }
	turns := func(was, is *nodetable.Node) framework.Occurrence {
		return framework.Occurrence{OldNode: was, Node: is}
	}
	selector := cluster.Digest(pod("waits", spreading(by("zone")), selectingNodes("disk", "ssd")))
	cases := map[string]struct {
		pod  *nodetable.Pod
		o    framework.Occurrence
		want framework.Hint
	}{
		"a pod that counts came":                  {waits(by("zone")), changes(nil, of()), framework.Queue},
		"a pod that counts went":                  {waits(by("zone")), changes(of(), nil), framework.Queue},
		"one that had been on its way out":        {waits(by("zone")), changes(of(leaving), nil), framework.Queue},
		"another pod came":                        {waits(by("zone")), changes(nil, of(labelledAs("app", "db"))), framework.QueueSkip},
		"one of another namespace":                {waits(by("zone")), changes(nil, of(in("red"))), framework.QueueSkip},
		"a pod counts no more":                    {waits(by("zone")), changes(of(), of(labelledAs("app", "db"))), framework.Queue},
		"a pod counts as before":                  {waits(by("zone")), changes(of(), of()), framework.QueueSkip},
		"the pod tolerates more where it matters": {waits(by("zone", honoringTaints)), changes(waits(), cluster.Digest(pod("waits", tolerating("spot")))), framework.Queue},
		"the pod tolerates more where not":        {waits(by("zone")), changes(waits(), cluster.Digest(pod("waits", tolerating("spot")))), framework.QueueSkip},
		"a node with the label came":              {waits(by("zone")), turns(nil, node("n zone=a")), framework.Queue},
		"a node without it came":                  {waits(by("zone")), turns(nil, node("n")), framework.QueueSkip},
		"a node with one label of two came":       {waits(by("zone"), by("rack")), turns(nil, node("n zone=a")), framework.QueueSkip},
		"a node with the label went":              {waits(by("zone")), turns(node("n zone=a"), nil), framework.Queue},
		"a node without it went":                  {waits(by("zone")), turns(node("n"), nil), framework.QueueSkip},
		"a node got the label":                    {waits(by("zone")), turns(node("n"), node("n zone=a")), framework.Queue},
		"a node changed its zone":                 {waits(by("zone")), turns(node("n zone=b"), node("n zone=a")), framework.Queue},
		"a node changed another label":            {waits(by("zone")), turns(node("n zone=a"), node("n zone=a x=y")), framework.QueueSkip},
		"a node came to count":                    {selector, turns(node("n zone=a"), node("n zone=a disk=ssd")), framework.Queue},
		"a taint came where it matters":           {waits(by("zone", honoringTaints)), turns(node("n zone=a"), node("n zone=a !spot")), framework.Queue},
		"a taint came where it does not":          {waits(by("zone")), turns(node("n zone=a"), node("n zone=a !spot")), framework.QueueSkip},
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
