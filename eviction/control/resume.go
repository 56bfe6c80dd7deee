package control

import (
	"slices"
	"time"

	"github.com/evictd/evictd/eviction"
	"github.com/evictd/evictd/eviction/kill"
)

// Resumed is a victim of before the start whose kill goes on.
type Resumed struct {
	Pod *eviction.Pod
	eviction.InFlight
}

// Resume takes up the state of a loop before this one; call it before Run. Its
// victims stay in flight, and their kill goes on once their pods are set; those
// whose pods are not are waited for until they are overdue.
func (l *Loop) Resume(st eviction.State) {
	if l.cfg.DryRun {
		st.InFlight = nil
	}
	l.state = st
	for _, f := range st.InFlight {
		l.withheld = append(l.withheld, withheld{outcome: eviction.Outcome{UID: f.UID}, counts: f.Since.Add(f.Grace + kill.Overdue), orphan: &f})
	}
}

// pursue goes on with victims of before the start whose pods have been set. Their
// grace is what is left of it.
func (l *Loop) pursue(now time.Time) {
	l.withheld = slices.DeleteFunc(l.withheld, func(w withheld) bool {
		f, i := w.orphan, l.indexOf(w.outcome.UID)
		if f == nil || i < 0 || l.pods[i].Target == nil {
			return false
		}
		grace := min(f.Since.Add(f.Grace).Sub(now), f.Grace-l.cfg.SoftPatience)
		if f.Hard {
			grace = min(f.Since.Add(f.Grace).Sub(now), l.hardGrace(f.Signal))
		}
		pod := &l.pods[i]
		err := l.killer.Kill(kill.Victim{UID: f.UID, Name: l.seen[i].name, Grace: max(0, grace), Soft: !f.Hard, Target: pod.Target, Usage: pod.Usage})
		if err != nil {
			l.refusals = append(l.refusals, refusal{pod.Pod, err})
			return false
		}
		l.resumed = append(l.resumed, Resumed{pod.Pod, *f})
		return true
	})
}
