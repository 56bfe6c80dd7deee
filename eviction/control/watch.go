package control

import (
	"slices"
	"time"

	"github.com/evictd/evictd/eviction"
	"github.com/evictd/evictd/stats"
)

// Bounds of watchInterval.
const (
	watchFloor   = 100 * time.Millisecond
	watchCeiling = time.Second
)

// watchInterval is how often steps before evictions are decided about: ten times within the lead of a
// warning.
func (l *Loop) watchInterval() time.Duration {
	return min(max(l.cfg.Eviction.Warnings.Lead/10, watchFloor), watchCeiling)
}

// watches says whether there is any step to decide about.
func (l *Loop) watches() bool {
	cfg := &l.cfg.Eviction
	return len(l.driver.State.Steps) > 0 || len(cfg.Warnings.Namespaces)+len(cfg.Resizes.Namespaces) > 0 && slices.ContainsFunc(l.pods, func(p Pod) bool { return cfg.StepsConfigured(p.Pod) })
}

// watch runs a pass that decides about steps before evictions, if one is due. It follows another pass, whose
// observations it uses, so that it delays no eviction.
func (l *Loop) watch() {
	if !l.watches() || time.Since(l.watched) < l.watchInterval()-pollFloor {
		return
	}
	l.watched = time.Now()
	candidates := l.unmeasured()
	for i, at := 0, 0; i < len(l.pods); i++ {
		if l.pods[i].Target == nil {
			continue
		}
		if l.cfg.Eviction.StepsConfigured(l.pods[i].Pod) {
			candidates[at].Usage = l.measureContainers(i)
		}
		at++
	}
	for s := range l.observed {
		if eviction.Signal(s).Condition() == eviction.MemoryPressure {
			l.observed[s].PerSecond = l.paces[s].PerSecond()
		}
	}
	before := l.driver.State
	l.driver.Decisions = l.decisions
	in := eviction.Input{Now: l.watched, Pass: eviction.Watch, Signals: l.observed, Candidates: candidates}
	l.driver.Run(in)
	if l.driver.State.SameStanding(&before) {
		return
	}
	l.passes[Watched]++
	r := l.reportOf(Watched, &before, &in)
	l.report(r)
	l.publishReport(&r)
	l.decisions = nil // they belong to the report
	l.refill()
}

// measureContainers measures a pod and how its containers grow; nil where nothing is known of it.
func (l *Loop) measureContainers(i int) *stats.Pod {
	f := &l.figures[i]
	l.measure(i, withContainers)
	if !measured(&f.usage) {
		return nil
	}
	if len(f.containers) != len(f.usage.Containers) {
		f.containers = make([]stats.Trend, len(f.usage.Containers))
		for c := range f.containers {
			f.containers[c].Span = growthSpan
		}
	}
	for c := range f.containers {
		used := &f.usage.Containers[c]
		if !used.Memory.IsKnown() { // it does not run
			f.containers[c] = stats.Trend{Span: growthSpan}
		}
		f.containers[c].Observe(f.usage.Time, used.Memory)
		used.Growth = f.containers[c].PerSecond()
	}
	return &f.usage
}
