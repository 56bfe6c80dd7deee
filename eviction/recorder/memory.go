package recorder

import (
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evictd/evictd/eviction"
	"github.com/evictd/evictd/eviction/control"
	"github.com/evictd/evictd/eviction/simulate"
	"github.com/evictd/evictd/nodestatus"
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

// MemoryStep is what was done about the memory of a pod before one was evicted.
type MemoryStep struct {
	At nodestatus.Time `json:"at"`
	// Step is reclaimed, throttle or endThrottle.
	Step string    `json:"step"`
	Pod  string    `json:"pod"` // namespace/name
	UID  types.UID `json:"uid"`
	// Bytes that were reclaimed in the round, or that the pod may grow by before it is throttled.
	Bytes   string `json:"bytes,omitempty"`
	Because string `json:"because"`
}

func memorySteps(r *control.Report) (all []MemoryStep) {
	add := func(step string, pod *eviction.Pod, bytes int64, because string) {
		m := MemoryStep{At: nodestatus.Time{Time: r.At}, Step: step, Pod: pod.String(), UID: pod.UID, Because: because}
		if bytes > 0 {
			m.Bytes = eviction.MemoryAvailable.Quantity(bytes)
		}
		all = append(all, m)
	}
	for i := range r.Decisions {
		d := &r.Decisions[i]
		for _, e := range d.MemoryReclaimEnds {
			add("reclaimed", e.Pod, e.Bytes, e.Because)
		}
		if t := d.ThrottleEnd; t != nil {
			add("endThrottle", t.Pod, 0, t.Because)
		}
		if t := d.Throttle; t != nil {
			add("throttle", t.Pod, t.Room, t.Because)
		}
	}
	return all
}

// MemorySteps are those on all pods, oldest first.
func (r *Recording) MemorySteps() (all []MemoryStep) {
	for i := range r.segments {
		for j := range r.segments[i].records {
			all = append(all, r.segments[i].records[j].Memory...)
		}
	}
	return all
}

// beforeEviction is how long before an eviction a step was taken about the same shortage.
const beforeEviction = 5 * time.Minute

// addMemory gives each eviction for memory what was done before it.
func addMemory(stories []Story, steps []MemoryStep) {
	for i := range stories {
		s := &stories[i]
		if signal, err := eviction.ParseSignal(s.Signal); err != nil || signal.Condition() != eviction.MemoryPressure {
			continue
		}
		for _, m := range steps {
			if ago := s.Decided.Sub(m.At.Time); ago >= 0 && ago < beforeEviction {
				s.Before = append(s.Before, m)
			}
		}
	}
}
