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
	toll
	// Of the victim of a disk: its signal, what was available at its end, and until
	// when what it held may show.
	signal eviction.Signal
	from   int64
	latest time.Time
}

const (
	// showing is how long what a victim held may show after the end of its
	// processes, before another pod goes for it.
	showing = 10 * time.Second
	// showingLate is how long what would be enough may show on a disk that does not
	// fill up: the kubelet removes dead containers every minute, and where the
	// runtime is away nobody removes anything.
	showingLate = time.Minute
)

// toll is what is to come back of a victim: how many tasks the node is to have once
// its own are reaped, or what it holds on a disk.
type toll struct {
	uid  types.UID
	left int64
	held int64
}

// count notes what a victim holds before it is ended. Of tasks that come meanwhile
// it allows for a quarter of its own.
func (l *Loop) count(e *eviction.Eviction, usage *stats.Pod) {
	t := toll{e.Pod.UID, math.MaxInt64, 0}
	switch running, known := l.node.Tasks.Running.Get(); e.Signal.Condition() {
	case eviction.PIDPressure:
		if tasks := usage.Threads.Or(usage.Processes.Or(0)); known {
			t.left = running - tasks + tasks/4
		}
	case eviction.DiskPressure:
		t.held = e.Frees().Or(0)
	default:
		return
	}
	l.tolls = append(l.tolls, t)
}

// counted is the toll of a victim, taken out; what is not known is paid.
func (l *Loop) counted(uid types.UID) toll {
	found := toll{left: math.MaxInt64}
	l.tolls = slices.DeleteFunc(l.tolls, func(t toll) bool {
		if t.uid == uid {
			found = t
		}
		return t.uid == uid
	})
	return found
}

// withhold keeps the end of a kill until it shows. Memory is back before a
// process leaves its cgroup. Volumes are taken away by whoever runs the pods
// (kubelet: up to 30 s). Process ids are free when the processes are reaped; till
// then the kernel counts them for their cgroup, and for those above where that was
// removed.
func (l *Loop) withhold(r kill.Result) {
	w := withheld{outcome: eviction.Outcome{UID: r.UID, Failed: r.Gone.IsZero()}, counts: r.Gone, toll: l.counted(r.UID)}
	for i := range l.state.InFlight {
		f := &l.state.InFlight[i]
		if f.UID != r.UID || w.outcome.Failed {
			continue
		}
		switch f.Signal.Condition() {
		case eviction.DiskPressure:
			w.counts = r.Gone.Add(showing)
			if w.held > 0 && !r.Signalled.IsZero() {
				w.signal, w.from, w.latest = f.Signal, l.observed[f.Signal].Available.Or(0), r.Gone.Add(showingLate)
				l.bear(r.UID, showingLate)
			}
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
		if w.due(now, l.node.Tasks.Running) && !l.mayShow(&w, now) {
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

// mayShow says whether what a victim of a disk held would be enough and may show yet,
// while the disk does not lose half of what it had.
func (l *Loop) mayShow(w *withheld, now time.Time) bool {
	if !now.Before(w.latest) {
		return false
	}
	available, measured := l.observed[w.signal].Available.Get()
	need := l.eviction.Need(&l.observed, w.signal)
	lacks := need.Bytes
	if w.signal.Resource() == eviction.ResourceInodes {
		lacks = need.Inodes
	}
	return measured && available >= w.from/2 && lacks > 0 && w.held-max(0, available-w.from) >= lacks
}

// showsLate says whether a victim is waited for that mayShow yet: there is no hurry.
func (l *Loop) showsLate(uid types.UID, now time.Time) bool {
	return slices.ContainsFunc(l.withheld, func(w withheld) bool { return w.outcome.UID == uid && w.latest.After(now) && !w.counts.After(now) })
}
