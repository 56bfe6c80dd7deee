package recorder

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evictd/evictd/eviction/control"
	"github.com/evictd/evictd/eviction/simulate"
	"github.com/evictd/evictd/stats"
)

// memory is what a step has of pods' memory.
func memory(r *control.Report, s *simulate.FileStep) {
	bytes := func(n int64) *resource.Quantity { return quantity(stats.Known(n)) }
	for _, o := range r.MemoryReclaimed {
		outcome := simulate.FileMemoryReclaimed{UID: o.UID, Bytes: bytes(o.Bytes), Less: o.Less}
		for _, m := range o.Pods {
			outcome.Pods = append(outcome.Pods, simulate.FilePodMemory{
				UID: m.UID, WorkingSet: bytes(m.WorkingSet), PageCache: bytes(m.PageCache), Over: metav1.Duration{Duration: m.Over},
				Refaulted: bytes(m.Refaulted), Stalled: metav1.Duration{Duration: m.Stalled},
			})
		}
		s.MemoryReclaimed = append(s.MemoryReclaimed, outcome)
	}
	for _, o := range r.ThrottleOutcomes {
		s.ThrottleOutcomes = append(s.ThrottleOutcomes, simulate.FileThrottleOutcome{UID: o.UID, High: bytes(o.High), Refused: o.Refused})
	}
	if g := r.Fastest; g.UID != "" {
		s.Fastest = &simulate.FileGrowth{UID: g.UID, Memory: bytes(g.Memory), PerSecond: bytes(g.PerSecond)}
	}
}
