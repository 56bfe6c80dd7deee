package control

import (
	"time"

	"github.com/evictd/evictd/eviction"
	"github.com/evictd/evictd/stats"
)

const (
	// stallInterval is how often pods are measured while tasks wait for memory.
	stallInterval = time.Second
	// stallShare: memory of which less than one part in stallShare is free is read in full at every look.
	stallShare = 16
)

// followStalls measures what pods read back, and how long their tasks wait, while the node has a quarter of the
// stall of a threshold. Decisions use these figures, so that they read no more files than without memory.stall.
func (l *Loop) followStalls() {
	if l.observer.Thrash.Window == 0 || l.node.Time.Sub(l.stalls) < stallInterval || !l.stalling() {
		return
	}
	l.stalls = l.node.Time
	for i := range l.pods {
		l.measure(i, justMemory)
		pod, f := &l.pods[i], &l.figures[i]
		if pod.Target == nil || pod.Meter == nil {
			continue
		}
		if stall, err := pod.Meter.ReadStall(); err == nil && stall.Known {
			f.stalled.Observe(l.node.Time, stats.Known(int64(stall.Some)))
		}
	}
}

// stalling says whether tasks wait for a quarter of what a threshold allows, or more.
func (l *Loop) stalling() bool {
	available, known := l.observed[eviction.MemoryStall].Available.Get()
	for i := range l.cfg.Eviction.Thresholds {
		t := &l.cfg.Eviction.Thresholds[i]
		if t.Signal == eviction.MemoryStall && known && stats.WholeTime-available >= (stats.WholeTime-t.Value.Amount)/4 {
			return true
		}
	}
	return false
}

// contention is what a pod reads back, bytes a second, and the part of the time in which its tasks wait.
func (f *figures) contention() (readBack int64, stalled stats.Amount) {
	if f.stalled.Observed() {
		stalled = stats.Known(min(stats.WholeTime, f.stalled.PerSecond()*stats.WholeTime/int64(time.Second)))
	}
	return max(0, f.readBack.PerSecond()), stalled
}
