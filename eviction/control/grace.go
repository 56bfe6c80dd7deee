package control

import (
	"time"

	"github.com/evictd/evictd/eviction"
)

const (
	// sprintSpan is how far back the grace of hard victims looks: a few polls.
	sprintSpan = 20 * time.Millisecond
	// takingBack is what the kernel may need to free what a killed pod held.
	takingBack = 50 * time.Millisecond
)

// hardGrace is what a hard victim is given at the present rate: half of the time
// until the signal is used up is for its end in order, the other half and the
// taking back are kept.
func (l *Loop) hardGrace(s eviction.Signal) time.Duration {
	if int(s) >= len(l.sprints) { // a limit of the pod's own: nothing runs out
		return l.cfg.HardGrace
	}
	left, falling := l.sprints[s].Until(0)
	if !falling {
		return l.cfg.HardGrace
	}
	return min(l.cfg.HardGrace, max(0, left/2-takingBack))
}

// hasten brings SIGKILL forward for hard victims in flight whose signal has come
// to fall faster since.
func (l *Loop) hasten() {
	for i := range l.state.InFlight {
		if f := &l.state.InFlight[i]; f.Hard {
			l.killer.Hasten(f.UID, l.hardGrace(f.Signal))
		}
	}
}
