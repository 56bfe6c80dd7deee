package control

import (
	"time"

	"github.com/evictd/evictd/eviction"
)

const (
	// followNear is how often pods are measured while a memory threshold is
	// nearing: nearer than nearing at the present rate.
	followNear = 50 * time.Millisecond
	nearing    = time.Second
	// followThrottling is how often pods are measured, and at least how often the loop looks, while a pod may
	// have to be throttled.
	followThrottling = 100 * time.Millisecond
	// growthSpan is the span of the growth of a pod.
	growthSpan = 500 * time.Millisecond
	// detailed is how many pods have their containers read at a housekeeping pass,
	// and calmRounds in how many passes all pods are measured while memory is calm.
	detailed, calmRounds = 16, 6
)

// follow measures pods that no decision asked for: to know their growth, and so that
// no file has to be opened when a decision asks.
func (l *Loop) follow(kind eviction.Pass) {
	l.followStalls()
	since := l.node.Time.Sub(l.sampled)
	switch {
	case kind == eviction.Housekeeping && since >= l.cfg.HousekeepingInterval/2:
		some := detailed
		if l.calm() {
			some = max(detailed, (len(l.pods)+calmRounds-1)/calmRounds)
		} else {
			l.sample(false)
		}
		for range min(len(l.pods), some) {
			l.detail = (l.detail + 1) % len(l.pods)
			l.measure(l.detail, withContainers)
		}
	case l.nearing && since >= followNear, l.throttling && since >= followThrottling:
		l.sample(false)
	}
}

// fastest is the pod that grows fastest by measurements of just now; zero where no pod may be throttled, and where
// none grows.
func (l *Loop) fastest() (g eviction.Growth) {
	if !l.throttling || l.node.Time.Sub(l.sampled) > growthSpan {
		return g
	}
	for i := range l.figures {
		if growth := l.figures[i].growth.PerSecond(); growth > g.PerSecond && l.pods[i].Target != nil {
			g = eviction.Growth{UID: l.pods[i].UID, Memory: l.figures[i].usage.Memory.Or(0), PerSecond: growth}
		}
	}
	return g
}

// calm says whether a quarter of the memory, and more, is left above every threshold.
func (l *Loop) calm() bool {
	for i := range l.cfg.Eviction.Thresholds {
		t := &l.cfg.Eviction.Thresholds[i]
		o := l.observed[t.Signal]
		available, measured := o.Available.Get()
		required, known := t.Value.Of(o)
		if t.Signal.Condition() == eviction.MemoryPressure && measured && known && available-required < o.Capacity.Or(0)/4 {
			return false
		}
	}
	return true
}

// Forecast extrapolates the present rates.
type Forecast struct {
	// Until is how long each threshold is away, beside the configuration's
	// thresholds; negative where the signal does not fall.
	Until []time.Duration
	// Grower is the pod whose memory grows fastest, by Growth bytes a second; nil
	// where none grows.
	Grower *eviction.Pod
	Growth int64
}

func (l *Loop) forecast() Forecast {
	f := Forecast{Until: make([]time.Duration, len(l.cfg.Eviction.Thresholds))}
	for i := range f.Until {
		t := &l.cfg.Eviction.Thresholds[i]
		f.Until[i] = -1
		if required, known := t.Value.Of(l.observed[t.Signal]); known {
			if until, falling := l.trends[t.Signal].Until(required); falling {
				f.Until[i] = until
			}
		}
	}
	for i := range l.figures {
		if growth := l.figures[i].growth.PerSecond(); growth > f.Growth {
			f.Grower, f.Growth = l.pods[i].Pod, growth
		}
	}
	return f
}
