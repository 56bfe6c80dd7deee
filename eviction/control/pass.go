package control

import (
	"errors"
	"io/fs"
	"math"
	"slices"
	"time"

	"github.com/evictd/evictd/eviction"
	"github.com/evictd/evictd/stats"
	"github.com/evictd/evictd/stats/collect"
)

// pass reads the node and runs one pass of eviction over it.
func (l *Loop) pass(kind eviction.Pass, source Source) {
	l.passes[source]++
	l.sense(kind == eviction.Housekeeping)
	before := l.driver.State
	in := eviction.Input{
		Now: time.Now(), Pass: kind, Signals: l.observed, Candidates: l.unmeasured(),
		Outcomes: l.outcomes, TasksLeft: l.tasksLeft(), VictimUsage: l.victimUsage(), Reclaims: l.reclaimed, Restarted: l.restarted, Arrived: l.arrived,
		StepOutcomes: l.stepped, Fastest: l.fastest(), Buffers: &l.buffers,
	}
	if l.ports.DiskScanner != nil {
		in.DiskScans, in.ScannedSince = true, l.ports.DiskScanner.LastScan()
	}
	if l.ports.UnknownPods != nil {
		in.UnknownPods = eviction.Unasked
	}
	l.facts = facts{}
	d := &l.driver
	d.Decisions = l.decisions
	d.Run(in)
	// A soft threshold that waits for a scan is evaluated by housekeeping passes only.
	l.awaitsScan = d.AwaitsScan || l.awaitsScan && kind != eviction.Housekeeping
	l.idle = d.Acted && !d.Chosen && d.HeldBack == nil && !l.awaitsScan && !l.awaitsVictim(in.Now)
	if changed := l.changed(&before); changed || kind == eviction.Housekeeping || len(d.Failed)+len(d.NotRestarted)+len(d.Reclaims)+len(in.Reclaims)+len(in.Restarted)+len(in.StepOutcomes) > 0 {
		r := l.reportOf(source, &before, &in)
		l.report(r)
		l.publishReport(&r)
	}
	if len(d.Decisions) > 0 {
		l.decisions = nil // they belong to the report
	}
	for _, r := range l.refusals {
		if r.err == errEnded {
			l.log.Info("a pod is not evicted", "pod", r.pod.String(), "because", r.err)
			continue
		}
		l.log.Error("could not start to evict", "pod", r.pod.String(), "error", r.err)
	}
	l.refusals = l.refusals[:0]
	l.dropDeleted()
	l.follow(kind)
	l.refill()
	if l.ports.Pulse != nil {
		l.ports.Pulse.Heartbeat(in.Now)
	}
}

// awaitsVictim says whether a victim is in flight of which more than disk space is
// waited for.
func (l *Loop) awaitsVictim(now time.Time) bool {
	return slices.ContainsFunc(l.driver.State.InFlight, func(f eviction.InFlight) bool { return !f.Stuck && !f.Overdue(now) && !f.Releasing(now) })
}

// changed says whether a pass has changed more than when thresholds, conditions and
// signals were last observed.
func (l *Loop) changed(before *eviction.State) bool {
	now := standing{held: l.driver.HeldBack != nil}
	for c := range now.conditions {
		now.conditions[c] = l.driver.State.Pressure[c].Reported
	}
	changed := now != l.reported || !l.driver.State.SameStanding(before)
	l.reported = now
	return changed
}

// reportOf is the report of the last pass, over what it began with.
func (l *Loop) reportOf(source Source, before *eviction.State, in *eviction.Input) Report {
	d := &l.driver
	r := Report{
		At: in.Now, Source: source, Pass: in.Pass, Node: l.node, Observations: l.observed, Forecast: l.forecast(),
		State: d.State, Eviction: d.Config, Decisions: d.Decisions, Failed: d.Failed, NotResumed: d.NotResumed, NotRestarted: d.NotRestarted, Withdrawn: d.Withdrawn, Reclaims: append(in.Reclaims, d.Reclaims...),
		Outcomes: in.Outcomes, TasksLeft: in.TasksLeft, VictimUsage: in.VictimUsage, Restarted: in.Restarted, Arrived: in.Arrived,
		StepOutcomes: in.StepOutcomes, Fastest: in.Fastest, DiskScans: in.DiskScans, ScannedSince: in.ScannedSince,
		UnknownPods: d.Input.UnknownPods == eviction.Yes, HeldBack: d.HeldBack, DryRun: d.Config.DryRun, Passes: l.passes,
	}
	l.passes = nil
	r.Started, l.started = l.started, nil
	for s := range r.Repeated {
		r.Repeated[s] = l.observed[s].Available.IsKnown() && l.observed[s].Time.Equal(before.Observed[s])
	}
	r.Candidates, r.Sampled = kept(d.Input.Candidates), d.Input.Sampled
	rest := r.Candidates // in the order of the pods
	for i := range l.pods {
		switch {
		case len(rest) > 0 && rest[0].Pod == l.pods[i].Pod:
			rest = rest[1:]
		case l.pods[i].Target != nil:
			r.Exited = append(r.Exited, l.pods[i].Pod)
		}
	}
	for i := range r.Decisions {
		next := &r.Decisions[i]
		r.Resumed = append(r.Resumed, next.Resumed...)
		if len(next.Ranking) > 0 {
			keepRanking(next.Ranking, r.Candidates)
		}
		next.Explain()
	}
	return r
}

// keepRanking gives the ranked pods the usage of the kept candidates: the loop
// measures again into its own.
func keepRanking(ranking []eviction.Ranked, candidates []eviction.Candidate) {
	usage := make(map[*eviction.Pod]*stats.Pod, len(candidates))
	for i := range candidates {
		usage[candidates[i].Pod] = candidates[i].Usage
	}
	for i := range ranking {
		ranking[i].Candidate.Usage = usage[ranking[i].Pod]
	}
}

// sense reads the node and follows its trends. Disks are asked for their figures
// so that the next housekeeping pass has new ones, and at every pass near a
// threshold of theirs. Memory far from all thresholds is read in full where asked for.
func (l *Loop) sense(full bool) {
	ask := collect.Ask{Disks: l.diskNear || time.Until(l.due()) <= pollCeiling, Stalls: l.observer.Thrash.Window > 0}
	if !full {
		l.spare = l.far()
		ask.Spare = &l.spare
	}
	l.ports.Sensor.Read(&l.node, ask)
	l.observed = l.observer.Observe(&l.node)
	for s, o := range l.observed {
		l.trends[s].Observe(o.Time, o.Available)
		l.rates[s].Observe(o.Time, o.Available)
		l.paces[s].Observe(o.Time, o.Available)
		if left, falls := l.rates[s].Until(0); falls && o.Available.IsKnown() && s != int(eviction.MemoryStall) {
			l.observed[s].UsedUpIn = stats.Known(int64(left))
		}
	}
}

// far is how much memory of the node and of the pods has to be unused for no threshold to be
// near: twice what they require, and for memory.stall a part of stallShare of all.
func (l *Loop) far() (spare [2]int64) {
	for i := range l.cfg.Eviction.Thresholds {
		t := &l.cfg.Eviction.Thresholds[i]
		of := &spare[0]
		switch m := l.memoryOf(t.Signal); {
		case m == nil:
			continue
		case m == &l.node.PodsMemory:
			of = &spare[1]
		}
		required, known := t.Value.Of(l.observed[t.Signal])
		more, _ := t.MinReclaim.Of(l.observed[t.Signal])
		if !known {
			required = math.MaxInt64 / 4
		}
		*of = max(*of, 2*min(required+min(more, math.MaxInt64/8), math.MaxInt64/4))
	}
	if l.observer.Thrash.Window > 0 {
		for level, m := range [2]*stats.Memory{&l.node.Memory, &l.node.PodsMemory} {
			spare[level] = max(spare[level], m.Limit.Or(0)/stallShare)
		}
	}
	return spare
}

// unmeasured lists the pods that can be killed, without their usage.
func (l *Loop) unmeasured() []eviction.Candidate {
	l.candidates = l.candidates[:0]
	for i := range l.pods {
		if l.pods[i].Target != nil {
			l.candidates = append(l.candidates, eviction.Candidate{Pod: l.pods[i].Pod})
		}
	}
	return l.candidates
}

// sample measures the pods, with their processes where asked for.
func (l *Loop) sample(processes bool) []eviction.Candidate {
	l.sampled = l.node.Time
	read := justMemory
	if processes {
		read = Meter.Read
	}
	for i := range l.pods {
		l.measure(i, read)
	}
	return l.listCandidates()
}

func justMemory(m Meter, s *stats.Pod) error { return m.ReadMemory(s, false) }

// withContainers opens what a decision may have to read.
func withContainers(m Meter, s *stats.Pod) error { return m.ReadMemory(s, true) }

// measure reads what a pod uses. One that is gone has no threads, and of one that was killed it reads whether it has
// any: its cgroup may be left, with page cache. Of a new one it opens what a decision may have to read.
func (l *Loop) measure(i int, read func(Meter, *stats.Pod) error) {
	pod, usage := &l.pods[i], &l.figures[i].usage
	if pod.Target == nil || pod.Meter == nil {
		return
	}
	if usage.Time.IsZero() {
		_ = withContainers(pod.Meter, usage)
	}
	if !l.figures[i].gone.IsZero() {
		read = Meter.Read
	}
	if err := read(pod.Meter, usage); errors.Is(err, fs.ErrNotExist) {
		usage.Threads = stats.Known(0)
		return
	}
	l.figures[i].growth.Observe(usage.Time, usage.Memory)
	l.figures[i].readBack.Observe(usage.Time, usage.ReadBack)
}

// measured says whether anything is known of a pod.
func measured(s *stats.Pod) bool {
	return s.Processes.IsKnown() || s.Threads.IsKnown() || s.Memory.IsKnown()
}

// ended says whether the pod has no process, whatever it left behind: it was killed
// and could not be measured since, or it is measured to have none.
func (f *figures) ended() bool {
	killed := !f.gone.IsZero() && (!measured(&f.usage) || f.usage.Time.Before(f.gone))
	return killed || f.usage.Processes == stats.Known(0) || f.usage.Threads == stats.Known(0)
}

// awaitsRestart reports whether a pod has no process, was not killed and holds something on a disk: the kubelet may be
// about to start its containers again.
func (f *figures) awaitsRestart() bool {
	holds := func(a stats.Amount) bool { return a.Or(0) > 0 }
	return f.gone.IsZero() && (holds(f.usage.Own.Used) ||
		slices.ContainsFunc(f.usage.Volumes, func(v stats.Volume) bool { return holds(v.Used) }) ||
		slices.ContainsFunc(f.usage.Containers, func(c stats.Container) bool { return holds(c.Rootfs) || holds(c.Logs) }))
}

// listCandidates lists the pods as they were last measured. Those without a target
// are no candidates, and neither are ended ones that are not in flight and hold nothing on disks.
func (l *Loop) listCandidates() []eviction.Candidate {
	l.candidates = l.candidates[:0]
	for i := range l.pods {
		f := &l.figures[i]
		if l.pods[i].Target == nil || f.ended() && !f.awaitsRestart() && l.driver.State.Victim(l.pods[i].UID) == nil {
			continue
		}
		c := eviction.Candidate{Pod: l.pods[i].Pod, Growth: f.growth.PerSecond()}
		if l.observer.Thrash.Window > 0 {
			c.ReadBack, c.Stalled = f.contention()
		}
		if measured(&f.usage) {
			c.Usage = &f.usage
		}
		l.candidates = append(l.candidates, c)
	}
	return l.candidates
}

// tasksLeft reads what the kernel still counts of ended victims in flight.
func (l *Loop) tasksLeft() (all []eviction.TasksLeft) {
	l.unreaped = slices.DeleteFunc(l.unreaped, func(u unreaped) bool {
		f := l.driver.State.Victim(u.uid)
		return f == nil || f.Signal.Condition() != eviction.PIDPressure
	})
	for _, u := range l.unreaped {
		var left stats.Pod
		err := u.meter.ReadMemory(&left, false)
		all = append(all, eviction.TasksLeft{UID: u.uid, Tasks: left.Threads.Or(0), Removed: errors.Is(err, fs.ErrNotExist)})
	}
	return all
}

// victimUsage reads the memory of hard victims that were sent SIGKILL.
func (l *Loop) victimUsage() (all []eviction.VictimUsage) {
	if !l.cfg.Eviction.MeasuresRelief {
		return nil
	}
	for _, f := range l.driver.State.InFlight {
		if !f.Hard || f.Unattended || !f.Ended.IsZero() || f.Signal.Condition() != eviction.MemoryPressure || !l.ports.Killer.Killed(f.UID) {
			continue
		}
		i := l.indexOf(f.UID)
		if i < 0 || l.pods[i].Meter == nil || l.pods[i].Meter.ReadMemory(&l.reading, f.Container != "") != nil {
			continue
		}
		memory, known := l.reading.Memory.Get()
		if f.Container != "" {
			memory, known = eviction.Candidate{Pod: l.pods[i].Pod, Usage: &l.reading}.ContainerMemory(f.Container).Get()
		}
		if known {
			all = append(all, eviction.VictimUsage{UID: f.UID, Memory: memory})
		}
	}
	return all
}
