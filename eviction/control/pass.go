package control

import (
	"errors"
	"io/fs"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/evictd/evictd/eviction"
	"github.com/evictd/evictd/eviction/kill"
	"github.com/evictd/evictd/stats"
)

// course is a pass on its way: what it was told, and what it came to.
type course struct {
	in        eviction.Input
	decisions []eviction.Decision
	failed    []eviction.Eviction
	reclaims  []eviction.ReclaimOutcome
	held      *eviction.Pod
	chosen    bool // a victim was, and its kill begun
	hastened  bool // a soft victim was
	acted     bool // a threshold has
	processes bool // it was that of process ids
}

// pass is one pass: calls of Decide at one instant, each fed the outcome of the
// one before.
func (l *Loop) pass(kind eviction.Pass, source Source) {
	l.sense()
	now := time.Now()
	c := course{
		in: eviction.Input{
			Now: now, Pass: kind, Signals: l.observed, Candidates: l.unmeasured(),
			Outcomes: l.due(now), Reclaims: l.reclaimed, Room: &l.room,
		},
		decisions: l.decisions, reclaims: l.reclaimed,
	}
	l.reclaimed = nil
	if kind == eviction.Housekeeping { // what waits for the survey may be soft
		l.surveying = false
	}
	for l.decide(&c) {
		c.in.Pass = eviction.Continue
	}
	l.hasten()
	pending := func(f eviction.InFlight) bool { return !f.Overdue(now) && !l.showsLate(f.UID, now) }
	l.idle = c.acted && !c.chosen && c.held == nil && !l.surveying && !slices.ContainsFunc(l.state.InFlight, pending)
	if len(c.decisions) > 0 {
		l.decisions = nil // they are the report's
	}
	if turned := l.turned(c.held); turned || c.chosen || c.hastened || len(c.failed)+len(c.reclaims)+len(l.resumed) > 0 || kind == eviction.Housekeeping {
		l.report(Report{
			At: now, Source: source, Pass: kind, Node: l.node, Observations: l.observed, Forecast: l.forecast(),
			State: l.state, Eviction: &l.cfg.Eviction, Decisions: explained(c.decisions), Failed: c.failed, Reclaims: c.reclaims, Resumed: l.resumed, HeldBack: c.held, DryRun: l.cfg.DryRun,
		})
		l.resumed = nil
	}
	for _, r := range l.refusals {
		l.log.Error("could not start to evict", "pod", r.pod.String(), "error", r.err)
	}
	l.refusals = l.refusals[:0]
	l.follow(kind)
	l.refill()
	if l.pulse != nil {
		l.pulse.Heartbeat(now)
	}
}

// decide is one call of Decide and what it asks for. It says whether another is to
// follow.
func (l *Loop) decide(c *course) (again bool) {
	now := c.in.Now
	state, d := eviction.Decide(&l.cfg.Eviction, l.state, c.in)
	if l.misled(&d) {
		c.in.Strangers = true
		state, d = eviction.Decide(&l.cfg.Eviction, l.state, c.in)
	}
	if l.premature(&d, now) {
		l.surveying = true
		return false
	}
	l.state = state
	c.in.Outcomes, c.in.Reclaims = nil, nil
	c.acted, c.hastened = c.acted || len(d.Met) > 0, c.hastened || len(d.Hastened) > 0
	c.processes = c.processes || slices.ContainsFunc(d.Met, func(m eviction.Met) bool { return m.Signal == eviction.PIDAvailable })
	c.held = d.HeldBack
	switch {
	case d.NeedUsage && !l.surveyedSince(d.NeedSince, now):
		l.surveying = true
	case d.NeedUsage:
		c.in.Candidates, c.in.Sampled, again = l.sample(c.processes), true, true
	case len(d.Reclaim) > 0:
		if l.reclaimer != nil {
			l.reclaimer.Reclaim(d.ReclaimFor, d.Reclaim, d.ReclaimNeed)
			c.in.Reclaims = []eviction.ReclaimOutcome{{For: d.ReclaimFor}}
			c.reclaims = append(c.reclaims, c.in.Reclaims...)
			l.surveyedSince(now, now) // should it not suffice, the figures are there
		}
		again = true
	case len(d.Evictions) > 0:
		refused := l.begin(&d, now)
		for _, e := range refused {
			c.in.Outcomes = append(c.in.Outcomes, eviction.Outcome{UID: e.Pod.UID, Failed: true})
		}
		c.failed, again = append(c.failed, refused...), len(refused) > 0
		c.chosen = c.chosen || len(d.Evictions) > 0
	}
	if len(d.Met) > 0 || len(d.Ranking) > 0 || len(d.Evictions) > 0 || len(d.Reclaim) > 0 || len(d.Hastened) > 0 {
		c.decisions = append(c.decisions, d)
	}
	return again
}

// explained makes decisions that outlive the pass, and writes their texts.
func explained(decisions []eviction.Decision) []eviction.Decision {
	for _, d := range decisions {
		for i := range d.Ranking {
			keep(&d.Ranking[i].Candidate)
		}
		d.Explain()
	}
	return decisions
}

// keep gives a candidate usage of its own: the loop measures again into what it
// has.
func keep(c *eviction.Candidate) {
	if c.Usage != nil {
		usage := *c.Usage
		usage.Containers, usage.Volumes = slices.Clone(usage.Containers), slices.Clone(usage.Volumes)
		c.Usage = &usage
	}
}

// surveyPatience is how long a decision about a disk waits for figures that are
// younger than the crossing of its threshold.
const surveyPatience = 5 * time.Second

// surveyedSince says whether the disk figures are young enough to rank by, and
// asks for new ones where they are not. The pass is taken up again when they
// are there.
func (l *Loop) surveyedSince(since, now time.Time) bool {
	if l.survey == nil || since.IsZero() || l.survey.LastScan().After(since) {
		return true
	}
	if l.askedSurvey.Before(since) {
		l.askedSurvey = now
		l.survey.Request()
	}
	return now.Sub(l.askedSurvey) > surveyPatience
}

// premature says whether a decision about a disk went by older figures: the
// pods may have been measured for something else.
func (l *Loop) premature(d *eviction.Decision, now time.Time) bool {
	return slices.ContainsFunc(d.Evictions, func(e eviction.Eviction) bool {
		ofNode := int(e.Signal) < eviction.NumSignals
		return ofNode && e.Signal.Condition() == eviction.DiskPressure && !l.surveyedSince(e.Since, now)
	})
}

// misled says whether a pod within its request would go although pods run that
// nobody has told of: one of them may be to blame.
func (l *Loop) misled(d *eviction.Decision) bool {
	within := func(e eviction.Eviction) bool {
		return slices.ContainsFunc(d.Ranking, func(r eviction.Ranked) bool { return r.Pod == e.Pod && !r.Exceeds })
	}
	return l.census != nil && slices.ContainsFunc(d.Evictions, within) && l.census.Strangers(l.pods)
}

// turned says whether the standing has changed since it was last told.
func (l *Loop) turned(held *eviction.Pod) bool {
	before := l.told
	l.told.held = held != nil
	for c := range l.told.reported {
		l.told.reported[c] = l.state.Pressure[c].Reported
	}
	return l.told != before
}

// sense reads the node and follows its trends. Disks are asked for their figures
// so that the next housekeeping pass has new ones, and at every pass near a
// threshold of theirs.
func (l *Loop) sense() {
	l.sensor.Read(&l.node, l.diskNear || time.Until(l.regular) <= pollCeiling)
	l.observed = l.observer.Observe(&l.node)
	for s, o := range l.observed {
		l.trends[s].Observe(o.Time, o.Available)
		l.sprints[s].Observe(o.Time, o.Available)
	}
}

// unmeasured lists the pods as they are known without looking at them.
func (l *Loop) unmeasured() []eviction.Candidate {
	l.candidates = l.candidates[:0]
	for i := range l.pods {
		l.candidates = append(l.candidates, eviction.Candidate{Pod: l.pods[i].Pod})
	}
	return l.candidates
}

// sample measures the pods, the processes too where they are asked for.
func (l *Loop) sample(processes bool) []eviction.Candidate {
	l.sampled = l.node.Time
	read := justMemory
	if processes {
		read = Meter.Read
	}
	for i := range l.pods {
		l.measure(i, read)
	}
	return l.measured()
}

func justMemory(m Meter, s *stats.Pod) error { return m.ReadMemory(s, false) }

// withContainers opens what a decision may have to read.
func withContainers(m Meter, s *stats.Pod) error { return m.ReadMemory(s, true) }

// measure reads what a pod uses. One that is gone has no threads.
func (l *Loop) measure(i int, read func(Meter, *stats.Pod) error) {
	pod, usage := &l.pods[i], &l.seen[i].usage
	if pod.Target == nil || pod.Meter == nil {
		return
	}
	if err := read(pod.Meter, usage); errors.Is(err, fs.ErrNotExist) {
		usage.Threads = stats.Known(0)
		return
	}
	l.seen[i].growth.Observe(usage.Time, usage.Memory)
}

// told says whether anything is known of a pod.
func told(s *stats.Pod) bool {
	return s.Processes.IsKnown() || s.Threads.IsKnown() || s.Memory.IsKnown()
}

// ended says whether the pod has no process, whatever it left behind. So it is with
// one that was killed and cannot be measured since, and for a while with one in which
// who kills has found nobody to signal: nobody reaps its processes.
func (s *seen) ended(now time.Time) bool {
	killed := !s.end.Gone.IsZero()
	unseen := !told(&s.usage) || s.usage.Time.Before(s.end.Gone)
	unreaped := s.end.Signalled.IsZero() && now.Sub(s.end.Gone) < showing
	return s.usage.Processes == stats.Known(0) || s.usage.Threads == stats.Known(0) || killed && (unseen || unreaped)
}

// measured lists the pods as they were last measured. One of which nothing can be
// killed is no candidate, and neither is one that has ended, but for a victim in
// flight, which is there with what it holds still.
func (l *Loop) measured() []eviction.Candidate {
	l.candidates = l.candidates[:0]
	for i := range l.pods {
		s := &l.seen[i]
		inFlight := func(f eviction.InFlight) bool { return f.UID == l.pods[i].UID }
		if l.pods[i].Target == nil || s.ended(l.node.Time) && !slices.ContainsFunc(l.state.InFlight, inFlight) {
			continue
		}
		c := eviction.Candidate{Pod: l.pods[i].Pod, Growth: s.growth.PerSecond()}
		if told(&s.usage) {
			c.Usage = &s.usage
		}
		l.candidates = append(l.candidates, c)
	}
	return l.candidates
}

// refusal is a kill that could not begin; it is logged when the pass is over.
type refusal struct {
	pod *eviction.Pod
	err error
}

// begin starts to end the victims, and takes those it could not start on out of
// the decision.
func (l *Loop) begin(d *eviction.Decision, now time.Time) (failed []eviction.Eviction) {
	begun := d.Evictions[:0]
	for _, e := range d.Evictions {
		if err := l.start(&e, now); err != nil {
			failed = append(failed, e)
			l.refusals = append(l.refusals, refusal{e.Pod, err})
		} else {
			begun = append(begun, e)
		}
	}
	d.Evictions = begun
	return failed
}

// start begins to end a victim, or in a dry run to count it as being ended.
func (l *Loop) start(e *eviction.Eviction, now time.Time) error {
	if e.Hard {
		e.Grace = l.hardGrace(e.Signal)
	}
	i := l.indexOf(e.Pod.UID)
	pod, s := &l.pods[i], &l.seen[i] // candidates are pods
	if pod.Meter != nil {            // what its containers hold is told, and can be read only before
		_ = pod.Meter.ReadMemory(&s.usage, true)
	}
	if l.cfg.DryRun {
		l.withheld = append(l.withheld, withheld{outcome: eviction.Outcome{UID: e.Pod.UID}, counts: now.Add(e.Grace + kill.Overdue)})
		return nil
	}
	victim := kill.Victim{UID: pod.UID, Name: s.name, Grace: e.Grace, Soft: !e.Hard, Target: pod.Target, Usage: pod.Usage}
	if e.Hard && pod.Meter != nil { // a soft one may wait for others
		victim.Held = s.usage.Memory
	}
	err := l.killer.Kill(victim)
	if err != nil {
		return err
	}
	s.paid, s.held = l.without(e, &s.usage), 0
	if e.Signal.Condition() == eviction.DiskPressure {
		s.held = e.Frees().Or(0)
	}
	if !e.Hard {
		l.bear(pod.UID, l.cfg.SoftPatience)
	}
	return nil
}

// bear gives a victim in flight time on top of its grace: for which the killer may
// wait with a soft one, or in which the end of one may show. Earlier states keep
// what they hold.
func (l *Loop) bear(uid types.UID, longer time.Duration) {
	l.state.InFlight = slices.Clone(l.state.InFlight)
	for i := range l.state.InFlight {
		if f := &l.state.InFlight[i]; f.UID == uid {
			f.Grace += longer
		}
	}
}
