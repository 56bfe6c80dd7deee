package control

import (
	"errors"
	"io/fs"
	"time"

	"github.com/evictd/evictd/eviction"
	"github.com/evictd/evictd/eviction/kill"
)

func unsignalled(r kill.Result) bool { return errors.Is(r.Err, kill.ErrNotSignalled) }

// pass is one pass: calls of Decide at one instant, each fed the outcome of the
// one before.
func (l *Loop) pass(kind eviction.Pass, source Source) {
	now := time.Now()
	in := eviction.Input{Now: now, Pass: kind, Signals: l.sense(now), Outcomes: l.due(now)}
	in.Candidates = l.unmeasured()
	var decisions []eviction.Decision
	acted, chosen := false, false
	l.surveying = false
	for again := true; again; in.Pass = eviction.Continue {
		var d eviction.Decision
		l.state, d = eviction.Decide(l.eviction, l.state, in)
		in.Outcomes, again = nil, false
		switch {
		case d.NeedUsage && !l.surveyedSince(d.NeedSince, now):
			l.surveying = true
		case d.NeedUsage:
			in.Candidates, in.Sampled, again = l.sample(), true, true
		case len(d.Reclaim) > 0:
			if l.reclaimer != nil && !l.cfg.DryRun {
				l.reclaimer.Reclaim(d.Reclaim)
				in.Signals = l.sense(time.Now())
			}
			again = true
		case len(d.Evictions) > 0:
			in.Outcomes = l.kill(d.Evictions, now)
			again = len(in.Outcomes) > 0
			chosen = true
		}
		acted = acted || len(d.Met) > 0
		if len(d.Met) > 0 || len(d.Ranking) > 0 || len(d.Evictions) > 0 || len(d.Reclaim) > 0 {
			decisions = append(decisions, d)
		}
	}
	l.hasten()
	l.idle = acted && !chosen && !l.surveying && len(l.state.InFlight) == 0
	if turned := l.turned(); turned || chosen || kind == eviction.Housekeeping {
		l.report(Report{
			At: now, Source: source, Node: l.node, Observations: in.Signals,
			State: l.state, Eviction: l.eviction, Decisions: decisions, DryRun: l.cfg.DryRun,
		})
	}
}

// surveyPatience is how long a decision about a disk waits for figures that are
// younger than the crossing of its threshold.
const surveyPatience = 5 * time.Second

// surveyedSince says whether the disk figures are young enough to rank by, and
// asks for new ones where they are not. The pass is taken up again when they
// are there.
func (l *Loop) surveyedSince(since, now time.Time) bool {
	if l.survey == nil || since.IsZero() || l.survey.Since().After(since) {
		return true
	}
	if !l.surveyFor.Equal(since) {
		l.surveyFor, l.askedSurvey = since, now
		l.survey.Request()
	}
	return now.Sub(l.askedSurvey) > surveyPatience
}

// turned says whether a condition has changed since it was last told.
func (l *Loop) turned() bool {
	changed := false
	for c := range l.told {
		changed = changed || l.told[c] != l.state.Pressure[c].Reported
		l.told[c] = l.state.Pressure[c].Reported
	}
	return changed
}

// sense reads the node and follows its trends.
func (l *Loop) sense(now time.Time) eviction.Observations {
	l.node.Time = now
	l.sensor.Read(&l.node)
	observations := l.observer.Observe(&l.node)
	for s := range observations {
		l.trends[s].Observe(observations[s].Time, observations[s].Available)
		l.sprints[s].Observe(observations[s].Time, observations[s].Available)
	}
	return observations
}

// unmeasured lists the pods as they are known without looking at them.
func (l *Loop) unmeasured() []eviction.Candidate {
	l.candidates = l.candidates[:0]
	for i := range l.pods {
		l.candidates = append(l.candidates, eviction.Candidate{Pod: l.pods[i].Pod})
	}
	return l.candidates
}

// sample measures the pods. One without a process has ended: there is nothing
// to evict, whatever it left behind.
func (l *Loop) sample() []eviction.Candidate {
	l.candidates = l.candidates[:0]
	for i := range l.pods {
		c := eviction.Candidate{Pod: l.pods[i].Pod}
		if meter := l.pods[i].Meter; meter != nil {
			err := meter.Read(&l.usages[i])
			if processes, known := l.usages[i].Processes.Get(); errors.Is(err, fs.ErrNotExist) || known && processes == 0 {
				continue
			}
			if err == nil {
				c.Usage = &l.usages[i]
			}
		}
		l.candidates = append(l.candidates, c)
	}
	return l.candidates
}

// kill starts to end the victims and returns those it could not start on.
func (l *Loop) kill(evictions []eviction.Eviction, now time.Time) []eviction.Outcome {
	var failed []eviction.Outcome
	for i := range evictions {
		e := &evictions[i]
		grace := time.Duration(e.GracePeriodSeconds) * time.Second
		if e.Hard {
			grace = l.hardGrace(e.Signal)
		}
		if l.cfg.DryRun {
			l.withheld = append(l.withheld, withheld{outcome: eviction.Outcome{UID: e.Pod.UID}, counts: now.Add(grace + kill.Overdue)})
			continue
		}
		if err := l.start(e, grace); err != nil {
			l.log.Error("could not start to evict", "pod", e.Pod.String(), "error", err)
			failed = append(failed, eviction.Outcome{UID: e.Pod.UID, Failed: true})
		}
	}
	return failed
}

var errNoTarget = errors.New("no process of the pod is known")

func (l *Loop) start(e *eviction.Eviction, grace time.Duration) error {
	for i := range l.pods {
		if pod := &l.pods[i]; pod.UID == e.Pod.UID && pod.Target != nil {
			return l.killer.Kill(kill.Victim{UID: pod.UID, Name: pod.String(), Grace: grace, Target: pod.Target, Usage: pod.Usage})
		}
	}
	return errNoTarget
}

// Bounds of the poll: near a threshold the loop looks every few milliseconds,
// far from all of them once a second.
const (
	pollFloor   = 5 * time.Millisecond
	pollCeiling = time.Second
)

// fillRates are the fastest plausible ways to use up a signal, units a second:
// memory as fast as pages can be touched, a disk as fast as it can be written,
// inodes and process ids as fast as the kernel can make them.
var fillRates = [eviction.NumSignals]int64{
	eviction.MemoryAvailable:            6 << 30,
	eviction.AllocatableMemoryAvailable: 6 << 30,
	eviction.NodeFsAvailable:            3 << 30,
	eviction.NodeFsInodesFree:           500_000,
	eviction.ImageFsAvailable:           3 << 30,
	eviction.ImageFsInodesFree:          500_000,
	eviction.ContainerFsAvailable:       3 << 30,
	eviction.ContainerFsInodesFree:      500_000,
	eviction.PIDAvailable:               100_000,
}

// pollInterval sleeps no longer than the nearest hard threshold is away at the
// fastest plausible rate. Where nobody can be ended there is no hurry.
func (l *Loop) pollInterval() time.Duration {
	if l.idle {
		return pollCeiling
	}
	observations := l.observer.Observe(&l.node)
	interval := pollCeiling
	for i := range l.eviction.Thresholds {
		t := &l.eviction.Thresholds[i]
		o := observations[t.Signal]
		available, measured := o.Available.Get()
		required, known := t.Value.Of(o)
		if !t.Hard() || !measured || !known {
			continue
		}
		headroom := time.Duration(float64(available-required) / float64(fillRates[t.Signal]) * float64(time.Second))
		interval = min(interval, headroom)
	}
	return max(interval, pollFloor)
}
