package control

import (
	"errors"
	"io/fs"
	"math"
	"slices"
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
	left    int64     // tasks that the node has without the victim's
}

// showing is how long what a victim held may show after the end of its
// processes, before another pod goes for it.
const showing = 10 * time.Second

// toll is how many tasks the node is to have once those of a victim are reaped.
type toll struct {
	uid  types.UID
	left int64
}

// count notes the tasks of a victim before it is ended. Of what comes meanwhile it
// allows for a quarter of them.
func (l *Loop) count(e *eviction.Eviction, usage *stats.Pod) {
	running, known := l.node.Tasks.Running.Get()
	if tasks := usage.Threads.Or(usage.Processes.Or(0)); known && e.Signal.Condition() == eviction.PIDPressure {
		l.tolls = append(l.tolls, toll{e.Pod.UID, running - tasks + tasks/4})
	}
}

// counted is the toll of a victim, taken out; what is not known is paid.
func (l *Loop) counted(uid types.UID) (left int64) {
	left = math.MaxInt64
	l.tolls = slices.DeleteFunc(l.tolls, func(t toll) bool {
		if t.uid == uid {
			left = t.left
		}
		return t.uid == uid
	})
	return left
}

// withhold keeps the end of a kill until it shows. Memory is back before a
// process leaves its cgroup. Volumes are taken away by whoever runs the pods
// (kubelet: up to 30 s). Process ids are free when the processes are reaped; till
// then the kernel counts them for their cgroup, and for those above where that was
// removed.
func (l *Loop) withhold(r kill.Result) {
	w := withheld{outcome: eviction.Outcome{UID: r.UID, Failed: r.Gone.IsZero()}, counts: r.Gone, left: l.counted(r.UID)}
	for i := range l.state.InFlight {
		f := &l.state.InFlight[i]
		if f.UID != r.UID || w.outcome.Failed {
			continue
		}
		switch f.Signal.Condition() {
		case eviction.DiskPressure:
			w.counts = r.Gone.Add(showing)
		case eviction.PIDPressure:
			w.counts = r.Gone.Add(showing)
			if i := l.indexOf(r.UID); i >= 0 {
				w.tasks = l.pods[i].Meter
			}
		}
	}
	l.withheld = append(l.withheld, w)
}

// due are the outcomes that count from now on.
func (l *Loop) due(now time.Time) []eviction.Outcome {
	var outcomes []eviction.Outcome
	waiting := l.withheld[:0]
	for _, w := range l.withheld {
		if w.due(now, l.node.Tasks.Running) {
			outcomes = append(outcomes, w.outcome)
		} else {
			waiting = append(waiting, w)
		}
	}
	l.withheld = waiting
	return outcomes
}

func (w *withheld) due(now time.Time, running stats.Amount) bool {
	if w.tasks == nil || !w.counts.After(now) {
		return !w.counts.After(now)
	}
	var left stats.Pod
	if err := w.tasks.ReadMemory(&left, false); errors.Is(err, fs.ErrNotExist) {
		return running.Or(0) <= w.left
	}
	return left.Threads.Or(0) == 0
}
