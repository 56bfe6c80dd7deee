package simulate

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/evictd/evictd/eviction"
)

// FileMemoryReclaimed is eviction.MemoryReclaimed: of a pod, or without one a measurement.
type FileMemoryReclaimed struct {
	UID   types.UID          `json:"uid,omitempty"`
	Pods  []FilePodMemory    `json:"pods,omitempty"`
	Bytes *resource.Quantity `json:"bytes,omitempty"`
	Less  bool               `json:"less,omitempty"`
}

// FilePodMemory is eviction.PodMemory.
type FilePodMemory struct {
	UID        types.UID          `json:"uid"`
	WorkingSet *resource.Quantity `json:"workingSet,omitempty"`
	PageCache  *resource.Quantity `json:"pageCache,omitempty"`
	Over       metav1.Duration    `json:"over"`
	Refaulted  *resource.Quantity `json:"refaulted,omitempty"`
	Stalled    metav1.Duration    `json:"stalled,omitzero"`
}

// FileThrottleOutcome is eviction.ThrottleOutcome.
type FileThrottleOutcome struct {
	UID     types.UID          `json:"uid"`
	High    *resource.Quantity `json:"high,omitempty"`
	Refused string             `json:"refused,omitempty"`
}

// FileGrowth is eviction.Growth.
type FileGrowth struct {
	UID       types.UID          `json:"uid"`
	Memory    *resource.Quantity `json:"memory,omitempty"`
	PerSecond *resource.Quantity `json:"perSecond,omitempty"`
}

// memory reads what a step has of pods' memory.
func (p *parser) memory(path *field.Path, in *FileStep, s *step) {
	bytes := func(path *field.Path, q *resource.Quantity) int64 { return p.amount(path, q).Or(0) }
	for i, o := range in.MemoryReclaimed {
		at := path.Child("memoryReclaimed").Index(i)
		outcome := eviction.MemoryReclaimed{UID: o.UID, Bytes: bytes(at.Child("bytes"), o.Bytes), Less: o.Less}
		for j, m := range o.Pods {
			at := at.Child("pods").Index(j)
			if m.Over.Duration <= 0 {
				p.invalid(at.Child("over"), m.Over.Duration.String(), "must be positive")
			}
			outcome.Pods = append(outcome.Pods, eviction.PodMemory{
				UID: m.UID, WorkingSet: bytes(at.Child("workingSet"), m.WorkingSet), PageCache: bytes(at.Child("pageCache"), m.PageCache),
				Over: m.Over.Duration, Refaulted: bytes(at.Child("refaulted"), m.Refaulted), Stalled: m.Stalled.Duration,
			})
		}
		s.memoryReclaimed = append(s.memoryReclaimed, outcome)
	}
	for i, o := range in.ThrottleOutcomes {
		at := path.Child("throttleOutcomes").Index(i)
		s.throttleOutcomes = append(s.throttleOutcomes, eviction.ThrottleOutcome{UID: o.UID, High: bytes(at.Child("high"), o.High), Refused: o.Refused})
	}
	if g := in.Fastest; g != nil {
		at := path.Child("fastest")
		s.fastest = eviction.Growth{UID: g.UID, Memory: bytes(at.Child("memory"), g.Memory), PerSecond: bytes(at.Child("perSecond"), g.PerSecond)}
	}
}

// MemoryStep is what is done about the memory of a pod before one is evicted.
type MemoryStep struct {
	// Do is measure, reclaim, reclaimed, throttle or endThrottle.
	Do  string `json:"do"`
	Pod string `json:"pod,omitempty"`
	// Bytes to reclaim, or that were reclaimed, or that the pod may grow by.
	Bytes   string `json:"bytes,omitempty"`
	Because string `json:"because"`
}

func (s *Step) addMemory(d *eviction.Decision) {
	bytes := eviction.MemoryAvailable.Quantity
	for _, e := range d.MemoryReclaimEnds {
		s.Memory = append(s.Memory, MemoryStep{"reclaimed", e.Pod.String(), bytes(e.Bytes), e.Because})
	}
	switch r := d.MemoryReclaim; {
	case r == nil:
	case r.Pod == nil:
		s.Memory = append(s.Memory, MemoryStep{Do: "measure", Because: r.Because})
	default:
		s.Memory = append(s.Memory, MemoryStep{"reclaim", r.Pod.String(), bytes(r.Bytes), r.Because})
	}
	if t := d.Throttle; t != nil {
		s.Memory = append(s.Memory, MemoryStep{"throttle", t.Pod.String(), bytes(t.Room), t.Because})
	}
	if t := d.ThrottleEnd; t != nil {
		s.Memory = append(s.Memory, MemoryStep{Do: "endThrottle", Pod: t.Pod.String(), Because: t.Because})
	}
}

// text is the sentence of a MemoryStep for people.
func (m *MemoryStep) text() string {
	switch m.Do {
	case "measure":
		return "measure the memory of pods: " + m.Because
	case "reclaim":
		return "reclaim " + m.Bytes + " of memory of " + m.Pod + ": " + m.Because
	case "reclaimed":
		return m.Bytes + " were reclaimed from " + m.Pod + ", and no more for now: " + m.Because
	case "throttle":
		return "throttle " + m.Pod + " once it has grown by " + m.Bytes + ": " + m.Because
	default:
		return "end the throttle of " + m.Pod + ": " + m.Because
	}
}

// ReclaimMemory implements eviction.Node: steps have the results.
func (r *runner) ReclaimMemory(*eviction.MemoryReclaim) {}

// Throttle implements eviction.Node: steps have the results.
func (r *runner) Throttle(*eviction.Throttle) {}

// EndThrottle implements eviction.Node.
func (r *runner) EndThrottle(*eviction.ThrottleEnd) {}
