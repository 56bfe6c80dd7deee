package control

import (
	"time"

	"github.com/evictd/evictd/eviction"
	"github.com/evictd/evictd/stats"
	"github.com/evictd/evictd/stats/collect"
)

// Bounds of the poll: near a threshold the loop looks every few milliseconds,
// far from all of them once a second.
const (
	pollFloor   = 5 * time.Millisecond
	pollCeiling = time.Second
	// pollFloorFalling is the floor while a threshold is about to be crossed at
	// the present rate, and sprintShare how often the loop looks on the way.
	pollFloorFalling = time.Millisecond
	sprintShare      = 4
	// armedTrust is how much longer the loop sleeps where the kernel tells of the
	// crossing.
	armedTrust = 8
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
// fastest plausible rate, longer where the kernel tells of the crossing, and never
// longer than a part of what the signal needs at the present rate. Those that act and find nobody to end are in no hurry.
func (l *Loop) pollInterval() time.Duration {
	observations := l.observer.Observe(&l.node)
	interval, floor := pollCeiling, pollFloor
	l.nearing = false
	for i := range l.eviction.Thresholds {
		t := &l.eviction.Thresholds[i]
		o := observations[t.Signal]
		available, measured := o.Available.Get()
		required, known := t.Value.Of(o)
		if !t.Hard() || !measured || !known || l.idle && l.state.Thresholds[i].Acting {
			continue
		}
		headroom := time.Duration(float64(available-required) / float64(fillRates[t.Signal]) * float64(time.Second))
		if l.armed && t.Signal.Condition() == eviction.MemoryPressure {
			headroom *= armedTrust
		}
		headroom -= l.node.Time.Sub(o.Time) // disks are told as they were a pass ago
		if left, falling := l.sprints[t.Signal].Until(required); falling && available > required {
			headroom = min(headroom, left/sprintShare)
			if left < sprintShare*pollFloor {
				floor = pollFloorFalling
			}
			l.nearing = l.nearing || left < nearing && t.Signal.Condition() == eviction.MemoryPressure
		}
		interval = min(interval, headroom-l.node.Time.Sub(o.Time)) // disks are told as they were a pass ago
	}
	return max(interval, floor)
}

// aims are where the nearest hard thresholds of memory are crossed, as usage of
// the groups whose memory the signals tell.
func (l *Loop) aims() (aims collect.Aims) {
	observations := l.observer.Observe(&l.node)
	usages := [...]struct {
		signal eviction.Signal
		usage  stats.Amount
	}{
		{eviction.MemoryAvailable, l.node.Memory.Usage},
		{eviction.AllocatableMemoryAvailable, l.node.PodsMemory.Usage},
	}
	for i := range l.eviction.Thresholds {
		t := &l.eviction.Thresholds[i]
		for j, of := range usages {
			required, known := t.Value.Of(observations[t.Signal])
			available, measured := observations[t.Signal].Available.Get()
			usage, used := of.usage.Get()
			if t.Signal != of.signal || !t.Hard() || !known || !measured || !used {
				continue
			}
			mark := usage + available - required
			if nearest, aimed := aims[j].Mark.Get(); mark > 0 && (!aimed || mark < nearest) {
				aims[j] = collect.Aim{Usage: of.usage, Mark: stats.Known(mark)}
			}
		}
	}
	return aims
}
