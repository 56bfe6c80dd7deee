package control

import (
	"errors"
	"io/fs"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/evictd/evictd/eviction"
	"github.com/evictd/evictd/eviction/kill"
	"github.com/evictd/evictd/stats"
)

// withheld is an outcome that counts later: a dry run's victim would be in
// flight meanwhile, and what others held may still count as used.
type withheld struct {
	outcome eviction.Outcome
	counts  time.Time // at the latest
	tasks   Meter     // it counts once the pod has no tasks; nil for one that waits for the time
}

// showing is how long what a victim held may show after the end of its
// processes, before another pod goes for it.
const showing = 10 * time.Second

// reaping is how long processes that nobody has reaped yet may count for the node
// after their cgroup was removed, where they cannot be seen any more.
const reaping = time.Second

// withhold keeps the end of a kill until it shows. Memory is back before a
// process leaves its cgroup. Volumes are taken away by whoever runs the pods
// (kubelet: up to 30 s). Process ids are free when the processes are reaped; till
// then the kernel counts them for their cgroup.
func (l *Loop) withhold(r kill.Result) {
	w := withheld{outcome: eviction.Outcome{UID: r.UID, Failed: r.Gone.IsZero()}, counts: r.Gone}
	for i := range l.state.InFlight {
		f := &l.state.InFlight[i]
		if f.UID != r.UID || w.outcome.Failed {
			continue
		}
		switch f.Signal.Condition() {
		case eviction.DiskPressure:
			w.counts = r.Gone.Add(showing)
		case eviction.PIDPressure:
			w.counts, w.tasks = r.Gone.Add(showing), l.meterOf(r.UID)
		}
	}
	l.withheld = append(l.withheld, w)
}

func (l *Loop) meterOf(uid types.UID) Meter {
	for i := range l.pods {
		if l.pods[i].UID == uid {
			return l.pods[i].Meter
		}
	}
	return nil
}

// due are the outcomes that count from now on.
func (l *Loop) due(now time.Time) []eviction.Outcome {
	var outcomes []eviction.Outcome
	waiting := l.withheld[:0]
	for _, w := range l.withheld {
		if w.due(now) {
			outcomes = append(outcomes, w.outcome)
		} else {
			waiting = append(waiting, w)
		}
	}
	l.withheld = waiting
	return outcomes
}

func (w *withheld) due(now time.Time) bool {
	if w.tasks == nil || !w.counts.After(now) {
		return !w.counts.After(now)
	}
	var left stats.Pod
	if err := w.tasks.ReadMemory(&left, false); errors.Is(err, fs.ErrNotExist) {
		return !w.counts.Add(reaping - showing).After(now)
	}
	return left.Threads.Or(0) == 0
}
