package eviction

import (
	"math"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/evictd/evictd/stats"
)

const (
	// killAllowance is how long after its grace a victim may still run before
	// another pod is chosen beside it.
	killAllowance = 10 * time.Second
	// releaseTime is how long the disk space or the process ids of an ended victim
	// may take to be free: the kubelet removes volumes within 30 s, and the kernel
	// counts process ids until they are reaped.
	releaseTime = 10 * time.Second
	// longReleaseTime is releaseTime where the victim held enough and the disk does
	// not fill up: the kubelet removes dead containers every minute.
	longReleaseTime = time.Minute
)

// Outcome is what is known of the kill of a victim in flight.
type Outcome struct {
	UID types.UID
	// Failed says that the kill did not begin or reached no process: it is no
	// eviction, and the victim is not in flight any more.
	Failed bool
	// Ended is when no process of the victim was left. Zero means that all it held
	// is free, too: it leaves flight at once.
	Ended time.Time
	// Signalled says that a process of it was sent a signal before.
	Signalled bool
}

// TasksLeft is what the kernel still counts of an ended victim of process ids.
type TasksLeft struct {
	UID   types.UID
	Tasks int64
	// Removed says that the victim's cgroup is gone: the kernel counts its tasks in
	// those above.
	Removed bool
}

// Restarted is a pod that has ended by an eviction which the API server does not have yet, and
// that has processes which are not being killed. Forbidden says that evictd may not write
// the status of pods.
type Restarted struct {
	UID       types.UID
	Forbidden bool
}

// Resumed is a victim of before the start whose kill is to be begun again. Left is
// what is left of its grace.
type Resumed struct {
	Pod *Pod
	InFlight
	Left time.Duration
}

// Overdue says whether the victim should be gone at an instant.
func (f *InFlight) Overdue(now time.Time) bool {
	return now.Sub(f.Since) > f.Grace+f.Patience+killAllowance
}

// Releasing says whether the victim has ended and only its disk space is waited
// for beyond releaseTime.
func (f *InFlight) Releasing(now time.Time) bool {
	return f.Held > 0 && !f.Ended.IsZero() && !now.Before(f.Ended.Add(releaseTime)) && now.Before(f.Ended.Add(longReleaseTime))
}

// settle applies what has become of kills since the call before.
func (st *State) settle(in *Input) {
	for _, o := range in.Outcomes {
		at := st.indexInFlight(o.UID)
		container := at >= 0 && st.InFlight[at].Container != ""
		if !o.Ended.IsZero() && !o.Signalled && !container {
			st.Unreaped = append(slices.Clip(st.Unreaped), Unreaped{o.UID, o.Ended.Add(releaseTime)})
		}
		if at >= 0 && !o.Failed && !o.Ended.IsZero() {
			st.InFlight = slices.Clone(st.InFlight)
			st.InFlight[at].end(&o, &in.Signals)
			continue
		}
		if at >= 0 && !o.Failed && st.InFlight[at].Signal == MemoryStall { // a stall is measured over a window that begins now
			st.InFlight = slices.Clone(st.InFlight)
			st.InFlight[at].Ended, st.InFlight[at].Unattended = in.Now, false
			continue
		}
		if o.Failed && at >= 0 { // no victim: the next one follows none
			st.Relief[st.InFlight[at].Signal.Condition()] = Relief{}
		}
		st.InFlight = without(st.InFlight, func(f InFlight) bool { return f.UID == o.UID })
		if o.Failed {
			st.pass.chosen = without(st.pass.chosen, func(uid types.UID) bool { return uid == o.UID })
		}
		switch {
		case o.Failed && container:
			st.failRestart(o.UID)
		case o.Failed:
			st.pass.failed = append(slices.Clip(st.pass.failed), o.UID)
		}
	}
}

// end records the end of the victim's processes. Of a disk, what it held may take
// longReleaseTime.
func (f *InFlight) end(o *Outcome, signals *Observations) {
	if !o.Signalled {
		f.Held = 0
	}
	if f.Ended.IsZero() && f.Held > 0 {
		f.AvailableAtEnd = signals[f.Signal].Available.Or(0)
		f.Patience += longReleaseTime
	}
	f.Ended, f.Unattended = o.Ended, false
}

// release takes the victims out of flight whose resources are free, or are not
// waited for any longer. A container that the evictd before was ending has the rest of its grace: no process kills it
// then, and it may have ended. It allocates only where there is one.
func (st *State) release(cfg *Config, in *Input) {
	st.Unreaped = without(st.Unreaped, func(u Unreaped) bool { return !in.Now.Before(u.Until) })
	st.InFlight = without(st.InFlight, func(f InFlight) bool {
		if f.Unattended {
			ends := f.Since.Add(f.Grace + f.Patience)
			if f.Container == "" || cfg.DryRun {
				ends = ends.Add(killAllowance)
			}
			return !f.Reported && !in.Now.Before(ends)
		}
		return !f.Ended.IsZero() && f.released(cfg, in)
	})
}

// released says whether the resources of an ended victim are free, or are not
// waited for any longer. Memory is free before the last process leaves its cgroup. A stall is measured over a
// window, which has to begin after the end.
func (f *InFlight) released(cfg *Config, in *Input) bool {
	waited := !in.Now.Before(f.Ended.Add(releaseTime))
	switch f.Signal.Condition() {
	case DiskPressure:
		return waited && !f.mayRelease(cfg, in)
	case PIDPressure:
		return waited || f.reaped(in)
	case MemoryContention:
		return !in.Now.Before(f.Ended.Add(cfg.MemoryStallWindow))
	}
	return true
}

// mayRelease says whether what the victim held on its disk would suffice and may
// become free yet, while the disk does not lose half of what it had.
func (f *InFlight) mayRelease(cfg *Config, in *Input) bool {
	if f.Held == 0 || !in.Now.Before(f.Ended.Add(longReleaseTime)) {
		return false
	}
	available, measured := in.Signals[f.Signal].Available.Get()
	need := cfg.Need(&in.Signals, f.Signal)
	lacks := need.Bytes
	if f.Signal.Resource() == ResourceInodes {
		lacks = need.Inodes
	}
	return measured && available >= f.AvailableAtEnd/2 && lacks > 0 && f.Held-max(0, available-f.AvailableAtEnd) >= lacks
}

// reaped says whether the kernel counts the victim's tasks no more.
func (f *InFlight) reaped(in *Input) bool {
	for _, left := range in.TasksLeft {
		if left.UID != f.UID {
			continue
		}
		if left.Removed {
			return running(&in.Signals).Or(0) <= f.TasksAfter.Or(math.MaxInt64)
		}
		return left.Tasks == 0
	}
	return false
}

// running is how many tasks the node has.
func running(signals *Observations) stats.Amount {
	o := &signals[PIDAvailable]
	return o.Capacity.Minus(o.Available)
}

// tasksAfter is how many tasks the node has once those of a victim are reaped. A
// quarter of them is allowed for tasks that are created meanwhile.
func tasksAfter(signals *Observations, usage *stats.Pod) stats.Amount {
	if usage == nil {
		usage = &stats.Pod{}
	}
	tasks := usage.Threads.Or(usage.Processes.Or(0))
	return running(signals).Minus(stats.Known(tasks - tasks/4))
}

// resume begins the kill of victims of before the start again, once their pods are
// candidates. They have what is left of their grace.
func (st *State) resume(cfg *Config, in *Input, d *Decision) {
	for i := range st.InFlight {
		f := &st.InFlight[i]
		at := -1
		if f.Unattended && f.Container == "" && !cfg.DryRun {
			at = slices.IndexFunc(in.Candidates, func(c Candidate) bool { return c.Pod.UID == f.UID })
		}
		if at < 0 {
			continue
		}
		if len(d.Resumed) == 0 {
			st.InFlight = slices.Clone(st.InFlight)
			f = &st.InFlight[i]
		}
		f.Unattended = false
		longest := f.Grace
		if f.Hard {
			longest = cfg.hardGrace(&in.Signals, f.Signal)
		}
		left := max(0, min(f.Since.Add(f.Grace+f.Patience).Sub(in.Now), longest))
		d.Resumed = append(d.Resumed, Resumed{in.Candidates[at].Pod, *f, left})
	}
}

// endAgain has pods end again whose containers were started after their eviction: a kubelet that
// does not know of it starts them. Where the API server forbids the report, that may last,
// and the containers run.
func (st *State) endAgain(cfg *Config, in *Input, d *Decision) {
	for _, r := range in.Restarted {
		at := slices.IndexFunc(in.Candidates, func(c Candidate) bool { return c.Pod.UID == r.UID })
		if at >= 0 && !r.Forbidden && !cfg.DryRun && st.indexInFlight(r.UID) < 0 {
			d.EndAgain = append(d.EndAgain, in.Candidates[at].Pod)
		}
	}
}

// start puts a victim in flight. A dry run kills nothing: its victim leaves flight
// when it would be overdue.
func (st *State) start(cfg *Config, in *Input, e *Eviction) {
	st.leaveRound(e.Pod.UID)
	f := InFlight{UID: e.Pod.UID, Decided: in.Now, Signal: e.Signal, Hard: e.Hard, Since: in.Now, Unattended: cfg.DryRun}
	f.Grace = time.Duration(e.GracePeriodSeconds) * time.Second
	if e.Hard {
		f.Grace = cfg.hardGrace(&in.Signals, e.Signal)
	} else if !cfg.DryRun {
		f.Patience = cfg.SoftPatience
	}
	if e.victim != nil {
		switch e.Signal.Condition() {
		case DiskPressure:
			f.Held = e.Frees().Or(0)
		case PIDPressure:
			f.TasksAfter = tasksAfter(&in.Signals, e.victim.Candidate.Usage)
		}
	}
	if e.Signal == MemoryStall {
		f.Patience += cfg.MemoryStallWindow
	}
	e.Grace = f.Grace
	st.InFlight = append(st.InFlight, f)
	st.pass.chosen = append(st.pass.chosen, e.Pod.UID)
}
