package daemon

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/evictd/evictd/eviction/config"
	"github.com/evictd/evictd/eviction/control"
	"github.com/evictd/evictd/eviction/undo"
	"github.com/evictd/evictd/internal/osprocess"
	"github.com/evictd/evictd/internal/tick"
	"github.com/evictd/evictd/stats/collect"
)

const (
	// markLeast is the least distance to a threshold, bytes, at which memory.high is halfway to
	// it. Nearer the loop polls every few milliseconds.
	markLeast = 128 << 20
	// tripMargin is the distance of the tripwire below the usage at which a threshold is
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
	// highCheck is how often memory.high is read: systemd and others may write it.
	highCheck = 10 * time.Second
)

// memoryHigh sets memory.high of the pods' cgroup. Where usage reaches it, the kernel counts
// that in memory.events.local, which wakes the loop; it frees page cache of the pods, and
// throttles processes as far as usage is above it. It is halfway to the nearest hard
// threshold of memory and moves on when it is reached, and where the tripwire is configured it is a
// little below the threshold in the end. memoryHigh is the loop's Waiter before the memory
// notifier, and writes in a goroutine of its own.
type memoryHigh struct {
	control.Waiter
	notified func() bool   // of memory.events.local of the pods' cgroup
	file     func() string // memory.high of the pods' cgroup, as that was last found
	log      *slog.Logger
	dir      string // of the undo log
	levels   chan collect.MemoryLevels
	placed   atomic.Int64 // the value that memory.high was set to; 0 if it is as found

	// Owned by run.
	changes *undo.Log
	high
	change *undo.Change
	lost   bool
}

// newMemoryHigh is nil where memory.high is not to be set, or the kernel has none. Before
// Linux 5.9 a process that reaches memory.high sleeps, though page cache could be freed.
func (d *Daemon) newMemoryHigh(file *config.EvictdConfiguration) *memoryHigh {
	with := high{tripwire: file.MemoryHighTripwire, marks: notifiesOfUsage(file) && osprocess.KernelIsAtLeast(5, 9)}
	if d.dryRun || !with.tripwire && !with.marks {
		return nil
	}
	if d.node.cgroups != nil {
		path := func() string {
			path, _ := d.node.cgroups.MemoryHighFile(d.tracker.podsGroup.Path())
			return path
		}
		if path() != "" {
			return &memoryHigh{
				Waiter: d.notifier, notified: d.notifier.WatchesPodsEvents, file: path, log: d.log,
				dir: memoryHighDir(d.runtimeDir), levels: make(chan collect.MemoryLevels, 1), high: with,
			}
		}
	}
	if with.tripwire {
		d.log.Warn("memoryHighTripwire has no effect: only cgroup v2 has memory.high")
	}
	return nil
}

func notifiesOfUsage(file *config.EvictdConfiguration) bool {
	return file.KernelMemcgNotification == nil || *file.KernelMemcgNotification
}

// SetLevels passes the levels to the notifier, and to run where memory.high may have to be
// written. It never blocks.
func (h *memoryHigh) SetLevels(a collect.MemoryLevels) collect.Armed {
	armed := h.Waiter.SetLevels(a)
	placed := h.placed.Load()
	usage, left, known := ofPods(a)
	if known && h.marks && left >= markLeast && isMark(placed, usage, left) {
		if h.notified() {
			armed = max(armed, collect.ArmedForPods)
		}
		return armed
	}
	if placed == 0 && (!known || !h.tripwire && left < 2*markLeast) {
		return armed
	}
	select {
	case <-h.levels:
	default:
	}
	h.levels <- a
	return armed
}

// run adjusts memory.high until ctx ends, and then restores it. Where an earlier evictd was killed,
// its memory.high first stays for tripPatience: the pods are throttled until this one has measured
// them.
func (h *memoryHigh) run(ctx context.Context) {
	if undo.Recorded(h.dir) {
		select {
		case <-ctx.Done():
		case <-time.After(tripPatience):
		}
		restoreEarlier(h.dir, h.log)
		select {
		case <-h.levels: // of a usage that is long ago
		default:
		}
	}
	defer os.Remove(h.dir) // once its log is closed
	var err error
	if h.changes, err = undo.Open(h.dir); err != nil {
		h.log.Warn("memory.high is not set, since it could not be restored if evictd were killed", "error", err)
		return
	}
	defer h.changes.Close()
	check := time.NewTimer(tick.Until(highCheck))
	defer check.Stop()
	for {
		select {
		case <-ctx.Done():
			h.report(h.set(0))
			return
		case a := <-h.levels:
			h.report(h.follow(a, time.Now()))
		case <-check.C:
			check.Reset(tick.Until(highCheck))
			h.report(h.check())
		}
	}
}

// ofPods is the usage of the pods and the bytes that are left until the nearest threshold is
// crossed.
func ofPods(a collect.MemoryLevels) (usage, left int64, known bool) {
	usage, used := a[1].Usage.Get()
	left, known = a[0].Left().Get()
	if ofPods, too := a[1].Left().Get(); too && (!known || ofPods < left) {
		left, known = ofPods, true
	}
	return usage, left, used && known
}

// follow adjusts memory.high to the levels.
func (h *memoryHigh) follow(a collect.MemoryLevels, now time.Time) error {
	usage, left, known := ofPods(a)
	if !known {
		return h.set(0)
	}
	before := h.rests
	h.next(now, usage, left)
	if h.rests.After(before) && left > 0 {
		h.log.Warn("pods were throttled at memory.high and no threshold was crossed; memory.high is max for a while", "memoryHigh", h.file(), "usage", usage, "for", tripRest.String())
	}
	return h.set(h.value)
}

// set writes a value, bytes, and restores the first one for zero.
func (h *memoryHigh) set(value int64) (err error) {
	if value == h.placed.Load() {
		return nil
	}
	if err = h.check(); err != nil && value != 0 {
		return err
	}
	before := h.change
	h.change = nil
	h.placed.Store(0)
	if value != 0 {
		if h.change, err = h.changes.Set(h.file(), strconv.FormatInt(value, 10)); err == nil {
			h.placed.Store(value)
		}
	}
	if before != nil {
		err = errors.Join(err, before.Undo())
	}
	return err
}

// check reads memory.high. It is an error where another program has set it. Where it is max
// again, or the cgroup is another of the same path, it has to be set again.
func (h *memoryHigh) check() error {
	text, err := os.ReadFile(h.file())
	is, placed := strings.TrimSpace(string(text)), h.placed.Load()
	switch {
	case err != nil || is == "max":
	case placed != 0 && is == strconv.FormatInt(placed, 10):
		return nil
	default:
		err = errOthers
	}
	h.placed.Store(0)
	if h.change != nil { // leaves the value of others
		err = errors.Join(err, h.change.Undo())
		h.change = nil
	}
	return err
}

var errOthers = errors.New("memory.high is not max: another program has set it")

// report logs the first of consecutive faults. A removed cgroup is none.
func (h *memoryHigh) report(err error) {
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	if err != nil && !h.lost {
		h.log.Warn("memory.high cannot be set; polling continues without it", "file", h.file(), "error", err)
	}
	h.lost = err != nil || h.lost && h.placed.Load() == 0
}

// high computes memory.high.
type high struct {
	marks    bool // it is halfway to a threshold
	tripwire bool // it is a little below

	value   int64     // bytes, whole pages; 0 is max
	halfway bool      // the value is a mark
	hit     time.Time // since when the usage is at the tripwire; zero while it is not
	rests   time.Time // until then it stays max
}

// isMark says whether a value of memory.high is above the usage by a little more than half of what
// is left, or by less.
func isMark(value, usage, left int64) bool {
	distance := value - usage
	return distance > tripSlack && distance <= left/8*5
}

// next computes it from the pods' usage and the bytes left until a threshold is crossed. It is
// max once that is crossed, so that a victim is not throttled. It is never below the usage:
// the kernel would reclaim in the write.
func (h *high) next(now time.Time, usage, left int64) {
	switch {
	case now.Before(h.rests):
	case left <= 0:
		h.put(0, false)
		h.rests = now.Add(tripPatience)
	case h.marks && (left >= 2*markLeast || h.halfway && left >= markLeast):
		if !h.halfway || !isMark(h.value, usage, left) {
			h.put(usage+left/2, true)
		}
	default:
		if h.halfway {
			h.put(0, false)
		}
		if h.tripwire {
			h.nextTripwire(now, usage, left)
		}
	}
}

func (h *high) put(value int64, halfway bool) {
	h.value, h.halfway, h.hit, h.rests = value/pageSize*pageSize, halfway, time.Time{}, time.Time{}
}

var pageSize = int64(os.Getpagesize())

// nextTripwire computes it near a threshold.
func (h *high) nextTripwire(now time.Time, usage, left int64) {
	crossing := usage + left
	target := (crossing - min(tripMargin, crossing/tripShare)) / pageSize * pageSize
	off := target - h.value
	switch {
	case h.value == 0:
		if left > 2*tripMargin {
			h.put(target, false)
		}
	case max(off, -off) > max(tripSlack, left/16) && target > usage: // file pages, or others, have moved it
		h.put(target, false)
	case usage < h.value-tripSlack:
		h.hit = time.Time{}
	case h.hit.IsZero():
		h.hit = now
	case now.Sub(h.hit) > tripPatience:
		h.put(0, false)
		h.rests = now.Add(tripRest)
	}
}
