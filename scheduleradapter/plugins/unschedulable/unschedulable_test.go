package unschedulable

import (
	"maps"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evictd/evictd/scheduleradapter/plugins/plugintest"
)

func TestCordonedNodeTakesOnlyPodsThatTolerateIt(t *testing.T) {
	cluster := plugintest.New(t,
		&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "open"}},
		&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "cordoned"}, Spec: v1.NodeSpec{Unschedulable: true}})
	plugin := cluster.Make(New, nil)
	rejected := map[string]string{"cordoned": "never: node(s) were unschedulable"}
	if got := cluster.Evaluate(plugin, cluster.Digest(&v1.Pod{})).Rejected; !maps.Equal(got, rejected) {
		t.Errorf("rejected %v, want %v", got, rejected)
	}
	tolerant := &v1.Pod{Spec: v1.PodSpec{Tolerations: []v1.Toleration{{Key: v1.TaintNodeUnschedulable, Operator: v1.TolerationOpExists}}}}
	if got := cluster.Evaluate(plugin, cluster.Digest(tolerant)).Rejected; len(got) > 0 {
		t.Errorf("rejected %v, want none", got)
	}
}
