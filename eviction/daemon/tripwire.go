package daemon

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/evictd/evictd/eviction/control"
	"github.com/evictd/evictd/eviction/undo"
	"github.com/evictd/evictd/stats/collect"
)

const (
	// tripMargin is the distance of memory.high below the usage at which a threshold is
	// crossed, bytes, and tripSlack the tolerance of it.
	tripMargin, tripSlack = 32 << 20, 1 << 20
	// tripShare bounds the margin to usage/tripShare. A process whose cgroup is further
	// above memory.high sleeps, 10 ms for 64 pages at an eightieth and longer by the square
	// (calculate_high_delay in mm/memcontrol.c of Linux), and would not reach the crossing.
	tripShare = 128
	// tripPatience is how long pods may be throttled while no threshold is crossed: else
	// they could be throttled for ever and no pod evicted. tripRest is how long memory.high
	// stays max after that.
	tripPatience, tripRest = 2 * time.Second, time.Minute
)

// tripwire sets memory.high of the pods' cgroup a little below the usage at which a hard
// threshold of memory is crossed: the kernel throttles processes there and wakes the loop by
// memory.events. It is the loop's Waiter before the memory notifier, and follows the levels
// that the loop sets in a goroutine of its own.
type tripwire struct {
	control.Waiter
	file func() string // memory.high of the pods' cgroup, as that was last found
	log  *slog.Logger
	aims chan collect.MemoryLevels

	// Owned by run.
	changes *undo.Log
	trip
	placed int64 // the value that memory.high was set to; 0 if it is as found
	change *undo.Change
	lost   bool
}

// newTripwire is nil on a kernel without memory.high.
func (d *Daemon) newTripwire() *tripwire {
	if d.node.cgroups != nil {
		if _, ok := d.node.cgroups.MemoryHighFile(d.tracker.podsGroup.Path()); ok {
			file := func() string {
				file, _ := d.node.cgroups.MemoryHighFile(d.tracker.podsGroup.Path())
				return file
			}
			return &tripwire{Waiter: d.notifier, file: file, log: d.log, aims: make(chan collect.MemoryLevels, 1)}
		}
	}
	d.log.Warn("memoryHighTripwire has no effect: only cgroup v2 has memory.high")
	return nil
}

// SetLevels passes the levels to run and to the notifier. It never blocks.
func (t *tripwire) SetLevels(a collect.MemoryLevels) bool {
	select {
	case <-t.aims:
	default:
	}
	t.aims <- a
	return t.Waiter.SetLevels(a)
}

// run adjusts memory.high until ctx ends, and then restores it.
func (t *tripwire) run(ctx context.Context, changes *undo.Log) {
	t.changes = changes
	for {
		select {
		case <-ctx.Done():
			t.report(t.set(0))
			return
		case a := <-t.aims:
			t.report(t.follow(a, time.Now()))
		}
	}
}

// follow adjusts memory.high to the levels.
func (t *tripwire) follow(a collect.MemoryLevels, now time.Time) error {
	usage, used := a[1].Usage.Get()
	left, known := a[0].Left().Get()
	if ofPods, too := a[1].Left().Get(); too && (!known || ofPods < left) {
		left, known = ofPods, true
	}
	if !used || !known {
		return t.set(0)
	}
	before := t.rests
	t.next(now, usage, left)
	if t.rests.After(before) && left > 0 {
		t.log.Warn("pods were throttled at memory.high and no threshold was crossed; memory.high is max for a while", "memoryHigh", t.file(), "usage", usage, "for", tripRest.String())
	}
	return t.set(t.high)
}

// set writes high, bytes, and restores the first value for zero. A value that another
// program has set is an error.
func (t *tripwire) set(high int64) (err error) {
	if high == t.placed {
		return nil
	}
	before := t.change
	t.change, t.placed = nil, 0
	if high != 0 {
		if t.change, err = t.place(high, before == nil); err == nil {
			t.placed = high
		}
	}
	if before != nil {
		err = errors.Join(err, before.Undo())
	}
	return err
}

func (t *tripwire) place(high int64, first bool) (*undo.Change, error) {
	file := t.file()
	if first {
		is, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		if strings.TrimSpace(string(is)) != "max" {
			return nil, errOthers
		}
	}
	return t.changes.Set(file, strconv.FormatInt(high, 10))
}

var errOthers = errors.New("memory.high is not max: another program has set it")

// report logs the first of consecutive faults. A removed cgroup is none.
func (t *tripwire) report(err error) {
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	if err != nil && !t.lost {
		t.log.Warn("memory.high cannot be set; polling continues without it", "file", t.file(), "error", err)
	}
	t.lost = err != nil
}

// trip computes memory.high.
type trip struct {
	high  int64     // bytes, whole pages; 0 is max
	hit   time.Time // since when the usage is at it; zero while it is not
	rests time.Time // until then it stays max
}

// next computes it from the pods' usage and the bytes left until a threshold is crossed. It is
// max once that is crossed, so that a victim is not throttled. It is never below the usage:
// the kernel would reclaim in the write.
func (t *trip) next(now time.Time, usage, left int64) {
	crossing := usage + left
	target := (crossing - min(tripMargin, crossing/tripShare)) &^ 4095
	off := target - t.high
	switch {
	case now.Before(t.rests):
	case left <= 0:
		*t = trip{rests: now.Add(tripPatience)}
	case t.high == 0:
		if left > 2*tripMargin {
			*t = trip{high: target}
		}
	case max(off, -off) > max(tripSlack, left/16) && target > usage: // file pages, or others, have moved it
		*t = trip{high: target}
	case usage < t.high-tripSlack:
		t.hit = time.Time{}
	case t.hit.IsZero():
		t.hit = now
	case now.Sub(t.hit) > tripPatience:
		*t = trip{rests: now.Add(tripRest)}
	}
}
