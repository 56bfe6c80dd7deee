package control

import (
	"time"

	"github.com/evictd/evictd/eviction"
	"github.com/evictd/evictd/stats"
	"github.com/evictd/evictd/stats/collect"
)

// Bounds of the poll: near a threshold the loop looks every few milliseconds, far
// from all of them once a second, and where the kernel notifies before one is near it
// sleeps for five.
const (
	pollFloor   = 5 * time.Millisecond
	pollCeiling = time.Second
	restCeiling = 5 * time.Second
	// pollFloorFalling is the floor while a threshold is about to be crossed at
	// the present rate, and rateShare how often the loop looks on the way.
	pollFloorFalling = time.Millisecond
	rateShare        = 4
	// pollOutside is how often the loop looks while a shortage is not that of the pods.
	pollOutside = 100 * time.Millisecond
	// armedTrust is how much longer the loop sleeps where the kernel notifies of the
	// crossing.
	armedTrust = 16
	// rateSpan is how far back the present rate looks: a few polls.
	rateSpan = 20 * time.Millisecond
	// markSpan is how long after a usage threshold was reached the floor is pollFloorFalling: the
	// kernel notifies up to 128 pages before the crossing and not again, and no rate is known yet.
	markSpan = rateSpan
)

// fillRates are the fastest plausible ways to use up a signal, units a second:
// memory as fast as three processors can touch pages, a disk as fast as it can be written,
// inodes and process ids as fast as the kernel can make them, swap as fast as a disk.
var fillRates = [eviction.NumSignals]int64{
	eviction.MemoryAvailable:            3 * processorFillRate,
	eviction.AllocatableMemoryAvailable: 3 * processorFillRate,
	eviction.NodeFsAvailable:            3 << 30,
	eviction.NodeFsInodesFree:           500_000,
	eviction.ImageFsAvailable:           3 << 30,
	eviction.ImageFsInodesFree:          500_000,
	eviction.ContainerFsAvailable:       3 << 30,
	eviction.ContainerFsInodesFree:      500_000,
	eviction.PIDAvailable:               100_000,
	eviction.SwapAvailable:              3 << 30,
	eviction.MemoryStall:                stats.WholeTime, // see fillRate
}

// processorFillRate is how fast a processor uses up memory, bytes a second: the kernel fills each
// page with zeros.
const processorFillRate = 2 << 30

// fillRate is the fastest plausible way to use up a signal on this node.
func (l *Loop) fillRate(s eviction.Signal) int64 {
	if window := l.cfg.Eviction.MemoryStallWindow; s == eviction.MemoryStall && window > 0 {
		return int64(float64(fillRates[s]) / window.Seconds())
	}
	if l.memoryOf(s) == nil {
		return fillRates[s]
	}
	return max(fillRates[s], int64(l.cfg.Processors)*processorFillRate)
}

// pollInterval sleeps no longer than the nearest hard threshold is away at the
// fastest plausible rate, longer where the kernel notifies of the crossing, and never
// longer than a part of the time until it at the present rate. Where the kernel notifies of what
// pods use alone, a processor may use memory outside of them. Thresholds that act
// while no pod can be evicted need no fast poll.
func (l *Loop) pollInterval() time.Duration {
	interval, floor := restCeiling, pollFloor
	marked := time.Since(l.marked) < markSpan
	if marked {
		floor = pollFloorFalling
	}
	rests := false // the kernel notifies before memory is short
	l.nearing, l.diskNear, l.throttling = false, false, l.driver.State.Throttled.Pod != nil
	for i := range l.cfg.Eviction.Thresholds {
		t := &l.cfg.Eviction.Thresholds[i]
		if !t.Hard() {
			continue
		}
		o := l.observed[t.Signal]
		available, measured := o.Available.Get()
		required, known := t.Value.Of(o)
		if !measured || !known || l.idle && l.driver.State.Thresholds[i].Acting {
			if measured || l.blind(t.Signal) {
				interval = min(interval, pollCeiling)
			}
			if measured && l.driver.State.Relief[t.Signal.Condition()].Outside { // a pod may grow meanwhile
				interval = min(interval, pollOutside)
			}
			continue
		}
		left, ceiling := available-required, pollCeiling
		headroom := lasts(left, l.fillRate(t.Signal))
		if inUse, known := l.inUse(t.Signal, available); known && l.armed != collect.Unarmed && !marked && inUse <= max(required, left/2) {
			headroom *= armedTrust
			if l.armed == collect.ArmedForPods && t.Signal == eviction.MemoryAvailable {
				headroom = min(headroom, lasts(left, processorFillRate))
			}
			if inUse <= left/2 { // the kernel notifies of the other half
				ceiling, rests = restCeiling, true
			}
		}
		if t.Signal.Condition() == eviction.DiskPressure {
			headroom -= l.node.Time.Sub(o.Time) // they are as of the pass before
			if ceiling = restCeiling; headroom < l.cfg.HousekeepingInterval {
				l.diskNear, ceiling = true, pollCeiling
			}
		}
		if until, falling := l.rates[t.Signal].Until(required); falling && left > 0 {
			headroom = min(headroom, until/rateShare)
			if until < rateShare*pollFloor {
				floor = pollFloorFalling
			}
			l.nearing = l.nearing || until < nearing && t.Signal.Condition() == eviction.MemoryPressure
			l.throttling = l.throttling || until < l.cfg.Eviction.ThrottlePeriod && t.Signal.Condition() == eviction.MemoryPressure
		}
		interval = min(interval, headroom, ceiling)
	}
	if l.throttling {
		interval = min(interval, followThrottling)
	}
	if !rests || len(l.driver.State.InFlight) > 0 {
		interval = min(interval, pollCeiling)
	}
	return max(interval, floor)
}

// lasts is how long an amount lasts at a rate, units a second.
func lasts(amount, rate int64) time.Duration {
	return time.Duration(float64(amount) / float64(rate) * float64(time.Second))
}

// nextPoll is when to look again if nothing happens. Disks are asked for their figures
// shortly before each housekeeping pass.
func (l *Loop) nextPoll() time.Time {
	interval := l.pollInterval()
	if l.watches() {
		interval = min(interval, max(pollFloorFalling, time.Until(l.watched.Add(l.watchInterval()))))
	}
	if ask := time.Until(l.due()) - pollCeiling; ask > 0 {
		interval = min(interval, max(ask, pollFloorFalling))
	}
	return time.Now().Add(interval)
}

// blind says whether a signal that every look measures could not be measured. A
// memory without a limit has nothing available to measure.
func (l *Loop) blind(s eviction.Signal) bool {
	m := l.memoryOf(s)
	return m == nil && s.Condition() != eviction.DiskPressure || m != nil && !m.Usage.IsKnown()
}

// memoryOf is the memory that a signal is computed from; nil for other signals.
func (l *Loop) memoryOf(s eviction.Signal) *stats.Memory {
	switch s {
	case eviction.MemoryAvailable:
		return &l.node.Memory
	case eviction.AllocatableMemoryAvailable:
		return &l.node.PodsMemory
	}
	return nil
}

// inUse is the part of what is available that is used now, bytes: file pages. Where
// there are more of them than is required, usage stays at the limit while the kernel frees
// them, before the threshold is crossed.
func (l *Loop) inUse(s eviction.Signal, available int64) (bytes int64, known bool) {
	m := l.memoryOf(s)
	if m == nil {
		return 0, false
	}
	usage, used := m.Usage.Get()
	limit, limited := m.Limit.Minus(stats.Known(m.Hugetlb.Or(0))).Get()
	return usage + available - limit, used && limited
}

// aims are where the nearest hard thresholds of memory are crossed, as usage of
// the cgroups that the signals are computed from.
func (l *Loop) aims() collect.MemoryLevels {
	aims := collect.MemoryLevels{{Usage: l.node.Memory.Usage}, {Usage: l.node.PodsMemory.Usage}}
	for i := range l.cfg.Eviction.Thresholds {
		t := &l.cfg.Eviction.Thresholds[i]
		required, known := t.Value.Of(l.observed[t.Signal])
		available, measured := l.observed[t.Signal].Available.Get()
		m := l.memoryOf(t.Signal)
		if m == nil || !t.Hard() || !known || !measured {
			continue
		}
		aim := &aims[0]
		if m == &l.node.PodsMemory {
			aim = &aims[1]
		}
		usage, used := m.Usage.Get()
		mark := usage + available - required
		if nearest, aimed := aim.Threshold.Get(); used && mark > 0 && (!aimed || mark < nearest) {
			aim.Threshold = stats.Known(mark)
		}
	}
	return aims
}
