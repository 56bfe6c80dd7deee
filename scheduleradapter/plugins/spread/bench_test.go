package spread

import (
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/evictd/evictd/scheduleradapter/plugins/plugintest"
)

func BenchmarkSpread(b *testing.B) {
	for _, w := range []struct {
		name        string
		constraints []v1.TopologySpreadConstraint
	}{
		{"none", nil},
		{"hard by zone", []v1.TopologySpreadConstraint{by(v1.LabelTopologyZone, 5)}},
		{"hard by node", []v1.TopologySpreadConstraint{by(v1.LabelHostname, 5)}},
		{"hard by both", []v1.TopologySpreadConstraint{by(v1.LabelTopologyZone, 5), by(v1.LabelHostname, 5)}},
		{"soft by zone", []v1.TopologySpreadConstraint{by(v1.LabelTopologyZone, 5, soft)}},
		{"soft by node", []v1.TopologySpreadConstraint{by(v1.LabelHostname, 5, soft)}},
		{"soft by both", []v1.TopologySpreadConstraint{by(v1.LabelTopologyZone, 5, soft), by(v1.LabelHostname, 5, soft)}},
	} {
		b.Run(w.name, func(b *testing.B) { plugintest.Bench(b, New, systemArgs(), 1, spreading(w.constraints...)) })
	}
}
