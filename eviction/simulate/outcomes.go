package simulate

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/evictd/evictd/eviction"
)

// FileStepOutcome is eviction.StepOutcome: without a uid a measurement.
type FileStepOutcome struct {
	Step    string             `json:"step"`
	UID     types.UID          `json:"uid,omitempty"`
	Bytes   *resource.Quantity `json:"bytes,omitempty"`
	Less    bool               `json:"less,omitempty"`
	Pods    []FilePodMemory    `json:"pods,omitempty"`
	Refused string             `json:"refused,omitempty"`
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

// FileGrowth is eviction.Growth.
type FileGrowth struct {
	UID       types.UID          `json:"uid"`
	Memory    *resource.Quantity `json:"memory,omitempty"`
	PerSecond *resource.Quantity `json:"perSecond,omitempty"`
}

// memory reads what a step has of pods' memory.
func (p *parser) memory(path *field.Path, in *FileStep, s *step) {
	bytes := func(path *field.Path, q *resource.Quantity) int64 { return p.amount(path, q).Or(0) }
	for i, o := range in.StepOutcomes {
		at := path.Child("stepOutcomes").Index(i)
		kind, err := eviction.ParseStep(o.Step)
		if err != nil {
			p.invalid(at.Child("step"), o.Step, err.Error())
		}
		outcome := eviction.StepOutcome{Step: kind, UID: o.UID, Bytes: bytes(at.Child("bytes"), o.Bytes), Less: o.Less, Refused: o.Refused}
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
		s.stepOutcomes = append(s.stepOutcomes, outcome)
	}
	if g := in.Fastest; g != nil {
		at := path.Child("fastest")
		s.fastest = eviction.Growth{UID: g.UID, Memory: bytes(at.Child("memory"), g.Memory), PerSecond: bytes(at.Child("perSecond"), g.PerSecond)}
	}
}

// Take implements eviction.Node: steps have the outcomes.
func (r *runner) Take(*eviction.StepAction) {}
