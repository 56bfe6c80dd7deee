package recorder

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evictd/evictd/eviction"
	"github.com/evictd/evictd/eviction/config"
	"github.com/evictd/evictd/eviction/simulate"
)

// incidentMemory is the MemoryReclaimer and the Throttler of an incident.
type incidentMemory struct {
	*incident
	reclaimed chan eviction.MemoryReclaimed
	throttled chan eviction.ThrottleOutcome
}

func newIncidentMemory(i *incident) *incidentMemory {
	return &incidentMemory{i, make(chan eviction.MemoryReclaimed, 64), make(chan eviction.ThrottleOutcome, 64)}
}

// configureMemory turns steps before evictions on.
func (i *incident) configureMemory(file *config.EvictdConfiguration) {
	if i.chance(2) {
		file.MemoryReclaimBudget, file.MemoryReclaimStep = "256Mi", "64Mi"
	}
	if i.chance(2) {
		file.MemoryThrottlePeriod = metav1.Duration{Duration: i.between(time.Second, 5*time.Second)}
	}
}

func (m *incidentMemory) measured(uid types.UID) eviction.PodMemory {
	return eviction.PodMemory{
		UID: uid, WorkingSet: m.Int64N(2 * gibi), PageCache: m.Int64N(gibi), Over: 250*time.Millisecond + m.between(0, time.Millisecond),
		Refaulted: m.Int64N(16) * mebi, Stalled: m.between(0, 10*time.Millisecond),
	}
}

func (m *incidentMemory) Reclaim(r *eviction.MemoryReclaim) {
	result := eviction.MemoryReclaimed{}
	if r.Pod != nil {
		result = eviction.MemoryReclaimed{UID: r.Pod.UID, Bytes: m.Int64N(r.Bytes + 1), Less: m.chance(3)}
		if !m.chance(8) {
			result.Pods = []eviction.PodMemory{m.measured(r.Pod.UID)}
		}
	} else {
		m.mu.Lock()
		for _, p := range m.pods {
			if p.ended.IsZero() {
				result.Pods = append(result.Pods, m.measured(p.manifest.UID))
			}
		}
		m.mu.Unlock()
	}
	time.AfterFunc(m.between(250*time.Millisecond, 2*time.Second), func() { m.reclaimed <- result })
}

func (m *incidentMemory) Reclaimed() <-chan eviction.MemoryReclaimed { return m.reclaimed }

func (m *incidentMemory) Throttle(t *eviction.Throttle) {
	outcome := eviction.ThrottleOutcome{UID: t.Pod.UID, High: t.Room}
	if m.chance(3) {
		outcome.High, outcome.Refused = 0, "another program has set it"
	}
	time.AfterFunc(m.between(0, 10*time.Millisecond), func() { m.throttled <- outcome })
}

func (m *incidentMemory) End(t *eviction.ThrottleEnd) {
	time.AfterFunc(m.between(0, 10*time.Millisecond), func() { m.throttled <- eviction.ThrottleOutcome{UID: t.UID} })
}

func (m *incidentMemory) Throttled() <-chan eviction.ThrottleOutcome { return m.throttled }

// memoryLines are what a pass does about the memory of pods.
func memoryLines(at time.Duration, steps []simulate.MemoryStep) (lines []string) {
	for _, s := range steps {
		lines = append(lines, fmt.Sprintf("%v %s %s %s: %s", at, s.Do, s.Pod, s.Bytes, s.Because))
	}
	return lines
}
