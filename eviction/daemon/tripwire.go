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
	// tripMargin is how far below the crossing of a threshold the tripwire is,
	// bytes, and tripSlack how far off it may be.
	tripMargin, tripSlack = 32 << 20, 1 << 20
	// tripShare is the part of the usage that the margin is at most. Who is further
	// above memory.high sleeps, 10 ms for 64 pages at an eightieth and longer by the
	// square of it (calculate_high_delay in mm/memcontrol.c of Linux), and would be
	// kept from the crossing.
	tripShare = 128
	// tripPatience is how long pods may be slowed down while no threshold is
	// crossed. They could stand still for ever, each with a little less than it
	// needs to go on and nobody evicted. tripRest is how long they go free then.
	tripPatience, tripRest = 2 * time.Second, time.Minute
)

// tripwire is memory.high of the pods' group, a little below the usage at which a
// hard threshold of memory is crossed: the kernel slows down who comes there, and
// wakes the loop by memory.events. It is the loop's Waiter, between it and the
// watch, and follows its aims in a goroutine of its own.
type tripwire struct {
	control.Waiter
	file string
	log  *slog.Logger
	aims chan collect.MemoryLevels

	// Owned by run.
	changes *undo.Log
	trip
	placed int64 // what memory.high was set to; 0 while it is as it was found
	change *undo.Change
	lost   bool
}

// newTripwire is nil where the kernel has none.
func (d *Daemon) newTripwire() *tripwire {
	if d.node.cgroups != nil {
		if file, ok := d.node.cgroups.MemoryHighFile(d.tracker.podsGroup.Path()); ok {
			return &tripwire{Waiter: d.watch, file: file, log: d.log, aims: make(chan collect.MemoryLevels, 1)}
		}
	}
	d.log.Warn("there is no tripwire: only cgroup v2 has memory.high")
	return nil
}

// SetLevels is the watch's, too. It never blocks.
func (t *tripwire) SetLevels(a collect.MemoryLevels) bool {
	select {
	case <-t.aims:
	default:
	}
	t.aims <- a
	return t.Waiter.SetLevels(a)
}

// run moves the tripwire until ctx ends, and then takes it away.
func (t *tripwire) run(ctx context.Context, changes *undo.Log) {
	t.changes = changes
	for {
		select {
		case <-ctx.Done():
			t.tell(t.set(0))
			return
		case a := <-t.aims:
			t.tell(t.follow(a, time.Now()))
		}
	}
}

// follow puts the tripwire where it belongs.
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
		t.log.Warn("pods were slowed down at memory.high and no threshold was crossed; they go free for a while", "memoryHigh", t.file, "usage", usage, "for", tripRest.String())
	}
	return t.set(t.high)
}

// set writes bytes, and puts back what was there for zero. What others have set is
// left alone.
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
	if first {
		is, err := os.ReadFile(t.file)
		if err != nil {
			return nil, err
		}
		if strings.TrimSpace(string(is)) != "max" {
			return nil, errOthers
		}
	}
	return t.changes.Set(t.file, strconv.FormatInt(high, 10))
}

var errOthers = errors.New("memory.high is not max: somebody else has set it")

// tell logs a fault once, until things work again. Pods' groups come and go.
func (t *tripwire) tell(err error) {
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	if err != nil && !t.lost {
		t.log.Warn("there is no tripwire; polling goes on without it", "file", t.file, "error", err)
	}
	t.lost = err != nil
}

// trip is where memory.high belongs.
type trip struct {
	high  int64     // bytes, whole pages; 0 is nowhere
	hit   time.Time // since when the usage is at it; zero while it is not
	rests time.Time // until then it stays nowhere
}

// next finds it for what the pods use and what is left until a threshold is
// crossed, bytes. A victim must not be slowed down, so that it is nowhere once that
// is crossed. It is never put below the usage: who writes that has to reclaim.
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
