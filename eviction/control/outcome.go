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
	paid    stats.Amount
	orphan  *eviction.InFlight // the victim, of before the start, until its pod is set
	// Of the victim of a disk: what it held there, its signal, what was available at
	// its end, and until when what it held may show.
	held   int64
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

// without is how many tasks the node is to have once those of a victim of process
// ids are reaped. Of what comes meanwhile it allows for a quarter of them.
func (l *Loop) without(e *eviction.Eviction, usage *stats.Pod) (paid stats.Amount) {
	if e.Signal.Condition() != eviction.PIDPressure {
		return paid
	}
	tasks := usage.Threads.Or(usage.Processes.Or(0))
	return l.node.Tasks.Running.Minus(stats.Known(tasks - tasks/4))
}

// withhold keeps the end of a kill until it shows. Memory is back before a
// process leaves its cgroup. Volumes are taken away by whoever runs the pods
// (kubelet: up to 30 s). Process ids are free when the processes are reaped; till
// then the kernel counts them for their cgroup, and for those above where that was
// removed.
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
			if i := l.indexOf(r.UID); i >= 0 && l.seen[i].held > 0 && !r.Signalled.IsZero() {
				w.held, w.signal, w.from, w.latest = l.seen[i].held, f.Signal, l.observed[f.Signal].Available.Or(0), r.Gone.Add(showingLate)
				l.bear(r.UID, showingLate)
			}
		case eviction.PIDPressure:
			w.counts = r.Gone.Add(showing)
			if i := l.indexOf(r.UID); i >= 0 {
				w.tasks, w.paid = l.pods[i].Meter, l.seen[i].paid
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
		return running.Or(0) <= w.paid.Or(math.MaxInt64)
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
	need := l.cfg.Eviction.Need(&l.observed, w.signal)
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
