package gates

import (
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/evictd/evictd/scheduleradapter/framework"
	"github.com/evictd/evictd/scheduleradapter/nodetable"
)

func TestPodWaitsForItsGates(t *testing.T) {
	p := &v1.Pod{}
	for _, c := range []struct {
		gates []v1.PodSchedulingGate
		want  framework.Status
	}{
		{nil, framework.Status{}},
		{[]v1.PodSchedulingGate{{Name: "a"}, {Name: "b"}}, framework.Status{Code: framework.UnschedulableAndUnresolvable, Reason: "waiting for scheduling gates: [a b]"}},
	} {
		p.Spec.SchedulingGates = c.gates
		digest, err := nodetable.NewPod(p)
		if err != nil {
			t.Fatal(err)
		}
		if got := (&Plugin{}).PreEnqueue(digest); got != c.want {
			t.Errorf("gates %v: %v, want %v", c.gates, got, c.want)
		}
	}
}
