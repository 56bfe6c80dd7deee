package nodename

import (
	"maps"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evictd/evictd/scheduleradapter/framework"
	"github.com/evictd/evictd/scheduleradapter/nodetable"
	"github.com/evictd/evictd/scheduleradapter/plugins/plugintest"
)

func TestPodIsPlacedOnTheNodeItNames(t *testing.T) {
	cluster := plugintest.New(t, &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "b"}})
	named := cluster.Digest(&v1.Pod{Spec: v1.PodSpec{NodeName: "b"}})
	for _, c := range []struct {
		name string
		pod  *nodetable.Pod
		want int
	}{{"a pod without a nodeName fits every node", cluster.Digest(&v1.Pod{}), 2}, {"a pod with a nodeName fits that node", named, 1}} {
		v := cluster.Evaluate(cluster.Make(New, nil), c.pod)
		if got := v.Cycle.Feasible.Count(); got != c.want || len(v.Rejected) > 0 {
			t.Errorf("%s: %d nodes, rejected %v", c.name, got, v.Rejected)
		}
	}
	alone := filterOnly{cluster.Make(New, nil).(*Plugin)}
	want := map[string]string{"a": "never: node(s) didn't match the requested node name"}
	if got := cluster.Evaluate(alone, named).Rejected; !maps.Equal(got, want) {
		t.Errorf("without its PreFilter the plugin rejects %v, want %v", got, want)
	}
}

// filterOnly is the plugin in a profile that enables only its Filter.
type filterOnly struct{ plugin *Plugin }

func (f filterOnly) Name() string                               { return Name }
func (f filterOnly) Filter(c *framework.Cycle) framework.Status { return f.plugin.Filter(c) }

func (f filterOnly) Reasons(p *nodetable.Pod, reasons uint32) []string {
	return f.plugin.Reasons(p, reasons)
}
