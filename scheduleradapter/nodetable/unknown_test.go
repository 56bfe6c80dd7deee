package nodetable

import (
	"testing"

	v1 "k8s.io/api/core/v1"
)

// rule: S5.22
func TestAPodWithAnUnknownValueIsRefused(t *testing.T) {
	spread := func(change func(*v1.TopologySpreadConstraint)) v1.PodSpec {
		c := v1.TopologySpreadConstraint{TopologyKey: "zone", WhenUnsatisfiable: v1.DoNotSchedule}
		change(&c)
		return v1.PodSpec{TopologySpreadConstraints: []v1.TopologySpreadConstraint{c}}
	}
	for want, spec := range map[string]v1.PodSpec{
		"": {
			PreemptionPolicy: new(v1.PreemptNever), Tolerations: []v1.Toleration{{}, {Operator: v1.TolerationOpExists}},
			Volumes: []v1.Volume{{Name: "v", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}}},
		},
		`spec.preemptionPolicy is "Ask", which evictd-scheduler does not know`: {PreemptionPolicy: new(v1.PreemptionPolicy("Ask"))},
		`spec.tolerations[1].operator is "Gt", which evictd-scheduler does not know`: {
			Tolerations: []v1.Toleration{{Operator: v1.TolerationOpEqual}, {Key: "level", Operator: v1.TolerationOpGt, Value: "5"}},
		},
		`spec.topologySpreadConstraints[0].whenUnsatisfiable is "Evict", which evictd-scheduler does not know`: spread(func(c *v1.TopologySpreadConstraint) {
			c.WhenUnsatisfiable = "Evict"
		}),
		`spec.topologySpreadConstraints[0].nodeAffinityPolicy is "Prefer", which evictd-scheduler does not know`: spread(func(c *v1.TopologySpreadConstraint) {
			c.NodeAffinityPolicy = new(v1.NodeInclusionPolicy("Prefer"))
		}),
		`spec.topologySpreadConstraints[0].nodeAffinityPolicy is "First", which evictd-scheduler does not know`: spread(func(c *v1.TopologySpreadConstraint) {
			c.NodeAffinityPolicy, c.NodeTaintsPolicy = new(v1.NodeInclusionPolicy("First")), new(v1.NodeInclusionPolicy("Second"))
		}),
		`spec.topologySpreadConstraints[0].nodeTaintsPolicy is "Prefer", which evictd-scheduler does not know`: spread(func(c *v1.TopologySpreadConstraint) {
			c.NodeTaintsPolicy = new(v1.NodeInclusionPolicy("Prefer"))
		}),
		`spec.volumes[0] "v" has a source that evictd-scheduler does not know`: {Volumes: []v1.Volume{{Name: "v"}}},
	} {
		if got := New().Refuses(NewPod(&v1.Pod{Spec: spec})); got != want {
			t.Errorf("refused by %q, want %q", got, want)
		}
	}
}
