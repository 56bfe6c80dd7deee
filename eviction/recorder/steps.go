package recorder

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evictd/evictd/eviction"
	"github.com/evictd/evictd/eviction/control"
	"github.com/evictd/evictd/eviction/simulate"
	"github.com/evictd/evictd/nodestatus"
	"github.com/evictd/evictd/stats"
)

// outcomes are what a step has of steps before evictions.
func outcomes(r *control.Report, s *simulate.FileStep) {
	bytes := func(n int64) *resource.Quantity { return quantity(stats.Known(n)) }
	for _, o := range r.StepOutcomes {
		outcome := simulate.FileStepOutcome{Step: o.Step.String(), UID: o.UID, Bytes: bytes(o.Bytes), Less: o.Less, Refused: o.Refused}
		for _, m := range o.Pods {
			outcome.Pods = append(outcome.Pods, simulate.FilePodMemory{
				UID: m.UID, WorkingSet: bytes(m.WorkingSet), PageCache: bytes(m.PageCache), Over: metav1.Duration{Duration: m.Over},
				Refaulted: bytes(m.Refaulted), Stalled: metav1.Duration{Duration: m.Stalled},
			})
		}
		s.StepOutcomes = append(s.StepOutcomes, outcome)
	}
	if g := r.Fastest; g.UID != "" {
		s.Fastest = &simulate.FileGrowth{UID: g.UID, Memory: bytes(g.Memory), PerSecond: bytes(g.PerSecond)}
	}
}

// Taken is a step before evictions, or its end, and when.
type Taken struct {
	At nodestatus.Time `json:"at"`
	nodestatus.Step
}

// taken are the steps of a pass. Of what is reclaimed from a pod only the end is kept, which has the sum.
func taken(r *control.Report) (all []Taken) {
	for i := range r.Decisions {
		for j := range r.Decisions[i].Steps {
			if s := &r.Decisions[i].Steps[j]; s.Over || s.Step != eviction.ReclaimMemory {
				all = append(all, Taken{nodestatus.Time{Time: r.At}, nodestatus.NewStep(s)})
			}
		}
		for j := range r.Decisions[i].Restarts {
			s := r.Decisions[i].Restarts[j].Step()
			all = append(all, Taken{nodestatus.Time{Time: r.At}, nodestatus.NewStep(&s)})
		}
	}
	return all
}

// Steps are all steps before evictions, oldest first.
func (r *Recording) Steps() (all []Taken) {
	for i := range r.segments {
		for j := range r.segments[i].records {
			all = append(all, r.segments[i].records[j].Steps...)
		}
	}
	return all
}

// StepsOn are the steps on a pod, as About.
func StepsOn(steps []Taken, pod string) []Taken {
	return slices.DeleteFunc(slices.Clone(steps), func(s Taken) bool { return !names(pod, s.Pod, s.UID) })
}

// beforeEviction is how long before an eviction for memory a step on another pod was taken about the same
// shortage.
const beforeEviction = 5 * time.Minute

// addSteps gives each eviction the steps on its pod before it. An eviction for memory has those on other pods, too,
// that reclaim or throttle.
func addSteps(stories []Story, steps []Taken) {
	for i := range stories {
		s := &stories[i]
		signal, err := eviction.ParseSignal(s.Signal)
		forMemory := err == nil && signal.Condition() == eviction.MemoryPressure
		for _, t := range steps {
			ago := s.Decided.Sub(t.At.Time)
			if ago >= 0 && (t.UID == s.UID || forMemory && t.Container == "" && ago < beforeEviction) {
				s.Steps = append(s.Steps, t)
			}
		}
	}
}
