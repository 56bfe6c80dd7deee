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
	// growthSpan is how far back the growth of a pod is looked at.
	growthSpan = 500 * time.Millisecond
	// detailed is how many pods have their containers read at a housekeeping pass.
	detailed = 16
)

// follow measures the pods that no decision asked for: to know who grows, and so
// that nothing has to be opened when a decision does.
func (l *Loop) follow(kind eviction.Pass) {
	since := l.node.Time.Sub(l.sampled)
	switch {
	case kind == eviction.Housekeeping && since >= l.cfg.HousekeepingInterval/2:
		l.sample(false)
		for range min(len(l.pods), detailed) {
			l.detail = (l.detail + 1) % len(l.pods)
			if meter := l.pods[l.detail].Meter; meter != nil {
				_ = meter.ReadMemory(&l.usages[l.detail], true)
			}
		}
	case l.nearing && since >= followNear:
		l.sample(false)
	}
}

// Forecast is how things go on at the present rates.
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
	f := Forecast{Until: make([]time.Duration, len(l.eviction.Thresholds))}
	for i := range f.Until {
		t := &l.eviction.Thresholds[i]
		f.Until[i] = -1
		if required, known := t.Value.Of(l.observed[t.Signal]); known {
			if until, falling := l.trends[t.Signal].Until(required); falling {
				f.Until[i] = until
			}
		}
	}
	for i := range l.growths {
		if growth := l.growths[i].PerSecond(); growth > f.Growth {
			f.Grower, f.Growth = l.pods[i].Pod, growth
		}
	}
	return f
}
