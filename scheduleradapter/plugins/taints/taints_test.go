package taints

import (
	"maps"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evictd/evictd/scheduleradapter/framework"
	"github.com/evictd/evictd/scheduleradapter/nodetable"
	"github.com/evictd/evictd/scheduleradapter/plugins/plugintest"
)

func node(name string, taints ...v1.Taint) *v1.Node {
	return &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1.NodeSpec{Taints: taints}}
}

func taint(key, value string, effect v1.TaintEffect) v1.Taint {
	return v1.Taint{Key: key, Value: value, Effect: effect}
}

func pod(tolerations ...v1.Toleration) *v1.Pod {
	return &v1.Pod{Spec: v1.PodSpec{Tolerations: tolerations}}
}

const (
	never  = v1.TaintEffectNoSchedule
	rather = v1.TaintEffectPreferNoSchedule
)

func TestFewerUnwantedTaintsScoreHigher(t *testing.T) {
	cluster := plugintest.New(t, node("none"), node("one", taint("a", "", rather)), node("two", taint("a", "", rather), taint("b", "", rather)),
		node("three", taint("a", "", rather), taint("b", "", rather), taint("c", "", rather)))
	plugin := cluster.Make(New, nil)
	for _, c := range []struct {
		name        string
		tolerations []v1.Toleration
		want        map[string]int64
	}{
		{"in proportion to the most", nil, map[string]int64{"none": 100, "one": 67, "two": 34, "three": 0}},
		{"what is tolerated does not count", []v1.Toleration{{Key: "a", Operator: v1.TolerationOpExists}}, map[string]int64{"none": 100, "one": 100, "two": 50, "three": 0}},
		{"a toleration of NoSchedule is none", []v1.Toleration{{Key: "a", Operator: v1.TolerationOpExists, Effect: never}}, map[string]int64{"none": 100, "one": 67, "two": 34, "three": 0}},
		{"all are as good where all is tolerated", []v1.Toleration{{Operator: v1.TolerationOpExists}}, map[string]int64{"none": 100, "one": 100, "two": 100, "three": 100}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := cluster.Evaluate(plugin, cluster.Digest(pod(c.tolerations...))).Scores; !maps.Equal(got, c.want) {
				t.Errorf("scores %v, want %v", got, c.want)
			}
		})
	}
	cluster.Table.SetNode(nodetable.NewNode(node("three")))
	if got := cluster.Evaluate(plugin, cluster.Digest(pod())).Scores; got["three"] != 100 || got["two"] != 0 {
		t.Errorf("scores %v after the taints of three are gone", got)
	}
}

func TestNodeThatCameToBeToleratedQueuesThePod(t *testing.T) {
	clean, tainted := nodetable.NewNode(node("n")), nodetable.NewNode(node("n", taint("k", "", never)))
	pod := nodetable.NewPod(pod())
	for _, c := range []struct {
		name     string
		old, now *nodetable.Node
		want     framework.Hint
	}{
		{"a clean node came", nil, clean, framework.Queue},
		{"a tainted node came", nil, tainted, framework.QueueSkip},
		{"the taint is gone", tainted, clean, framework.Queue},
		{"it was clean before", clean, clean, framework.QueueSkip},
	} {
		if got, err := nodeChanged(&framework.Occurrence{OldNode: c.old, Node: c.now}, pod); err != nil || got != c.want {
			t.Errorf("%s: hint %d (%v), want %d", c.name, got, err, c.want)
		}
	}
}
