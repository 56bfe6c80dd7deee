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
	armedTrust = 16
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
	interval, floor := pollCeiling, pollFloor
	l.nearing, l.diskNear = false, false
	for i := range l.cfg.Eviction.Thresholds {
		t := &l.cfg.Eviction.Thresholds[i]
		o := l.observed[t.Signal]
		available, measured := o.Available.Get()
		required, known := t.Value.Of(o)
		if !t.Hard() || !measured || !known || l.idle && l.state.Thresholds[i].Acting {
			continue
		}
		headroom := time.Duration(float64(available-required) / float64(fillRates[t.Signal]) * float64(time.Second))
		if l.armed && l.reaches(t.Signal, available-required) {
			headroom *= armedTrust
		}
		if t.Signal.Condition() == eviction.DiskPressure {
			headroom -= l.node.Time.Sub(o.Time) // they are told as they were a pass ago
			l.diskNear = l.diskNear || headroom < l.cfg.HousekeepingInterval
		}
		if left, falling := l.sprints[t.Signal].Until(required); falling && available > required {
			headroom = min(headroom, left/sprintShare)
			if left < sprintShare*pollFloor {
				floor = pollFloorFalling
			}
			l.nearing = l.nearing || left < nearing && t.Signal.Condition() == eviction.MemoryPressure
		}
		interval = min(interval, headroom)
	}
	return max(interval, floor)
}

// memoryOf is the memory whose usage tells of a signal; nil where none does.
func (l *Loop) memoryOf(s eviction.Signal) *stats.Memory {
	switch s {
	case eviction.MemoryAvailable:
		return &l.node.Memory
	case eviction.AllocatableMemoryAvailable:
		return &l.node.PodsMemory
	}
	return nil
}

// reaches says whether usage comes to where a threshold is crossed that is so many
// bytes away. Where file pages would have to make way before, it stands still.
func (l *Loop) reaches(s eviction.Signal, left int64) bool {
	m := l.memoryOf(s)
	if m == nil {
		return false
	}
	usage, used := m.Usage.Get()
	return used && usage+left <= m.Limit.Or(usage+left)
}

// aims are where the nearest hard thresholds of memory are crossed, as usage of
// the groups whose memory the signals tell.
func (l *Loop) aims() collect.Aims {
	aims := collect.Aims{{Usage: l.node.Memory.Usage}, {Usage: l.node.PodsMemory.Usage}}
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
		if nearest, aimed := aim.Mark.Get(); used && mark > 0 && (!aimed || mark < nearest) {
			aim.Mark = stats.Known(mark)
		}
	}
	return aims
}
