package interpod

import (
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/evictd/evictd/scheduleradapter/plugins/plugintest"
)

func BenchmarkInterPod(b *testing.B) {
	for _, w := range []struct {
		name   string
		every  int
		change change
	}{
		{"none", 1, func(*v1.Pod) {}},
		{"required affinity by zone", 1, with(pods("web", v1.LabelTopologyZone))},
		{"required affinity by node", 1, with(pods("web", v1.LabelHostname))},
		{"required anti-affinity by zone", 20, without(pods("db", v1.LabelTopologyZone))},
		{"required anti-affinity by node", 20, without(pods("web", v1.LabelHostname))},
		{"preferred affinity by zone", 1, liking(10, pods("web", v1.LabelTopologyZone))},
		{"preferred affinity by node", 1, liking(10, pods("web", v1.LabelHostname))},
		{"preferred anti-affinity by zone", 1, disliking(10, pods("web", v1.LabelTopologyZone))},
		{"preferred anti-affinity by node", 1, disliking(10, pods("web", v1.LabelHostname))},
	} {
		b.Run(w.name, func(b *testing.B) { plugintest.Bench(b, New, args(1, false), w.every, w.change) })
	}
}
