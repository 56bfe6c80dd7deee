package recorder

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evictd/evictd/eviction"
	"github.com/evictd/evictd/eviction/config"
)

// incidentSteps are the steps on pods of an incident.
type incidentSteps struct {
	*incident
	outcomes chan eviction.StepOutcome
}

// configureSteps turns steps before evictions on.
func (i *incident) configureSteps(file *config.EvictdConfiguration) {
	if i.chance(2) {
		file.MemoryReclaimBudget, file.MemoryReclaimStep = "256Mi", "64Mi"
	}
	if i.chance(2) {
		file.MemoryThrottlePeriod = metav1.Duration{Duration: i.between(time.Second, 5*time.Second)}
	}
}

func (m *incidentSteps) measured(uid types.UID) eviction.PodMemory {
	return eviction.PodMemory{
		UID: uid, WorkingSet: m.Int64N(2 * gibi), PageCache: m.Int64N(gibi), Over: 250*time.Millisecond + m.between(0, time.Millisecond),
		Refaulted: m.Int64N(16) * mebi, Stalled: m.between(0, 10*time.Millisecond),
	}
}

func (m *incidentSteps) Take(s *eviction.StepAction) {
	outcome := eviction.StepOutcome{Step: s.Step}
	after := m.between(0, 10*time.Millisecond)
	switch {
	case s.Step == eviction.Warn || s.Step == eviction.ReclaimMemory && s.Over:
		return
	case s.Step == eviction.Throttle:
		switch outcome.UID = s.Pod.UID; {
		case s.Over:
		case m.chance(3):
			outcome.Refused = "another program has set it"
		default:
			outcome.Bytes = s.Bytes
		}
	case s.Pod != nil:
		outcome.UID, outcome.Bytes, outcome.Less, after = s.Pod.UID, m.Int64N(s.Bytes+1), m.chance(3), m.between(250*time.Millisecond, 2*time.Second)
		if !m.chance(8) {
			outcome.Pods = []eviction.PodMemory{m.measured(s.Pod.UID)}
		}
	default:
		after = m.between(250*time.Millisecond, 2*time.Second)
		m.mu.Lock()
		for _, p := range m.pods {
			if p.ended.IsZero() {
				outcome.Pods = append(outcome.Pods, m.measured(p.manifest.UID))
			}
		}
		m.mu.Unlock()
	}
	time.AfterFunc(after, func() { m.outcomes <- outcome })
}

func (m *incidentSteps) Outcomes() <-chan eviction.StepOutcome { return m.outcomes }
