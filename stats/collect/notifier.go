package collect

import (
	"context"
	"errors"
	"log/slog"
	"math/bits"
	"sync/atomic"
	"time"

	"github.com/evictd/evictd/cgroup"
	"github.com/evictd/evictd/stats"
)

// What rang a Watch: a memory usage threshold of cgroup v1, a change of
// memory.events on v2, a trigger on memory stalls.
const (
	MemcgThreshold = "memcg-threshold"
	MemoryEvents   = "memory-events"
	MemoryStall    = "memory-stall"
)

// MemoryLevel is how a group's memory stands: what it uses now, and the use at which a
// threshold is crossed; bytes, unknown where there is none. Far from that the kernel
// is to tell of half the way.
type MemoryLevel struct {
	Usage, Threshold stats.Amount
}

// halfway is how much is left to a mark, bytes, where half the way is told.
const halfway = 128 << 20

// notifyAt is the use that the kernel is to tell of.
func (a MemoryLevel) notifyAt() (mark int64, known bool) {
	mark, known = a.Threshold.Get()
	if left := mark - a.Usage.Or(mark); left >= halfway {
		mark -= left / 2
	}
	return mark, known
}

// near says whether a usage threshold is where the kernel is to tell; 0 is none.
func (a MemoryLevel) near(threshold int64) bool {
	mark, _ := a.notifyAt()
	off := mark - threshold
	return threshold != 0 && max(off, -off) <= max(thresholdSlack, (mark-a.Usage.Or(mark))/thresholdShare)
}

// Left is how much more may be used before the threshold is crossed, bytes.
func (a MemoryLevel) Left() stats.Amount {
	usage, used := a.Usage.Get()
	mark, aimed := a.Threshold.Get()
	if !used || !aimed {
		return stats.Amount{}
	}
	return stats.Known(mark - usage)
}

// MemoryLevels are those of the node and of the pods' group.
type MemoryLevels [2]MemoryLevel

// A Watch is where the one who senses sleeps: the kernel's notices of the node's
// memory wake him, and whoever calls Wake. A notice says that something happened
// and never what is available.
type MemoryNotifier struct {
	log           *slog.Logger
	poller        *cgroup.Poller
	groups        [2]group
	subscriptions [numSubscriptions]subscription
	levels        chan MemoryLevels // nil: usage thresholds are not wanted
	fired         chan struct{}
}

// The notices, by their id in the bell: the first that rang names the wake.
const (
	nodeUsage = iota
	podsUsage
	nodeEvents
	podsEvents
	nodeStall
	podsStall
	numSubscriptions
)

var subscriptionSources = [numSubscriptions]string{MemcgThreshold, MemcgThreshold, MemoryEvents, MemoryEvents, MemoryStall, MemoryStall}

// subscription is one notice that the watch wants. Its loss is logged once, and so is its
// return.
type subscription struct {
	name      string
	group     *group
	open      func(*cgroup.Group) (*cgroup.Event, error)
	event     *cgroup.Event
	threshold int64        // of a usage threshold
	armed     atomic.Int64 // the mark that the kernel tells of; 0 for none
	lost      bool
}

const (
	// stallTime in stallWindow wakes the watch where that window is allowed,
	// else stallTimeLong in stallWindowLong.
	stallTime, stallWindow         = 50 * time.Millisecond, 500 * time.Millisecond
	stallTimeLong, stallWindowLong = 100 * time.Millisecond, 2 * time.Second
	// reopenInterval is how often what is missing is tried again.
	reopenInterval = 10 * time.Second
	// thresholdSlack is how far a usage threshold may be off its mark near it, bytes:
	// the kernel charges in batches that are no finer.
	thresholdSlack = 1 << 20
	// thresholdShare is the part of what is left to a mark that the threshold may be
	// off far from it.
	thresholdShare = 16
)

// NewMemoryNotifier makes a watch on the groups of a node. Without thresholds those of
// memory usage, which only cgroup v1 has, are left out; the kubelet calls that
// kernelMemcgNotification.
func NewMemoryNotifier(cfg NodeConfig, thresholds bool, log *slog.Logger) (*MemoryNotifier, error) {
	w := &MemoryNotifier{log: log, fired: make(chan struct{}, 1)}
	if thresholds && cfg.Cgroups != nil && cfg.Cgroups.Version() == cgroup.V1 {
		w.levels = make(chan MemoryLevels, 1)
	}
	var err error
	if w.poller, err = cgroup.NewPoller(); err != nil {
		return nil, err
	}
	w.groups = [2]group{{open: cfg.openRoot}, {open: cfg.openPods}}
	names := [2]string{"node", "pods"}
	stalls := [2]func(*cgroup.Group) (*cgroup.Event, error){cfg.nodeStall, groupStall}
	for i := range w.groups {
		g := &w.groups[i]
		usage := &w.subscriptions[nodeUsage+i]
		usage.init(names[i]+" memory threshold", g, func(g *cgroup.Group) (*cgroup.Event, error) { return g.NotifyUsage(usage.threshold) })
		w.subscriptions[nodeEvents+i].init(names[i]+" memory events", g, (*cgroup.Group).NotifyEvents)
		w.subscriptions[nodeStall+i].init(names[i]+" memory stalls", g, stalls[i])
	}
	return w, nil
}

func (s *subscription) init(name string, g *group, open func(*cgroup.Group) (*cgroup.Event, error)) {
	s.name, s.group, s.open = name, g, open
}

// nodeStall prefers the node's own group to the machine, as readPressure does.
func (cfg *NodeConfig) nodeStall(g *cgroup.Group) (*cgroup.Event, error) {
	n, err := groupStall(g)
	if errors.Is(err, errors.ErrUnsupported) {
		return shortest(func(stall, window time.Duration) (*cgroup.Event, error) {
			return cgroup.NotifyStallAt(cfg.Host+"/proc/pressure/memory", stall, window)
		})
	}
	return n, err
}

func groupStall(g *cgroup.Group) (*cgroup.Event, error) { return shortest(g.NotifyStall) }

// shortest takes the shortest window that the kernel allows.
func shortest(notify func(stall, window time.Duration) (*cgroup.Event, error)) (*cgroup.Event, error) {
	n, err := notify(stallTime, stallWindow)
	if err != nil {
		return notify(stallTimeLong, stallWindowLong)
	}
	return n, nil
}

// Wait sleeps until a notice rings, Wake is called or d has passed, and says
// which notice it was, if any. It opens nothing and allocates nothing; one
// goroutine calls it.
func (w *MemoryNotifier) Wait(d time.Duration) (source string) {
	rang := w.poller.Wait(d)
	if rang == 0 {
		return ""
	}
	select {
	case w.fired <- struct{}{}:
	default:
	}
	return subscriptionSources[bits.TrailingZeros64(rang)]
}

// Wake ends the present Wait, or the next. Any goroutine may call it.
func (w *MemoryNotifier) Wake() { w.poller.Wake() }

// SetLevels tells where thresholds are now, and returns whether the kernel already tells
// when memory comes there, or half the way. It never blocks; only one goroutine may
// call it.
func (w *MemoryNotifier) SetLevels(a MemoryLevels) (armed bool) {
	if w.levels == nil {
		return false
	}
	aimed, near := 0, 0
	for i := range a {
		if _, known := a[i].notifyAt(); known {
			aimed++
			if a[i].near(w.subscriptions[nodeUsage+i].armed.Load()) {
				near++
			}
		}
	}
	if near < aimed {
		select {
		case <-w.levels:
		default:
		}
		w.levels <- a
	}
	return aimed > 0 && near == aimed
}

// Run keeps the notices until ctx ends: they are opened when their groups are
// there, and usage thresholds follow the marks. It returns nil.
func (w *MemoryNotifier) Run(ctx context.Context) error {
	again := time.NewTicker(reopenInterval)
	defer again.Stop()
	w.reopen()
	for {
		select {
		case <-ctx.Done():
			return nil
		case a := <-w.levels:
			w.moveThresholds(a)
		case <-w.fired:
			w.reopen()
		case <-again.C:
			w.reopen()
		}
	}
}

// Close lets go of everything. Nobody may run or wait any more.
func (w *MemoryNotifier) Close() {
	for i := range w.subscriptions {
		w.subscriptions[i].close()
	}
	for i := range w.groups {
		w.groups[i].close()
	}
	w.poller.Close()
}

// reopen opens what is not open.
func (w *MemoryNotifier) reopen() {
	for i := range w.groups {
		err := w.checkGroup(&w.groups[i])
		for id := range w.subscriptions {
			if s := &w.subscriptions[id]; s.group == &w.groups[i] && s.event == nil && (id >= nodeEvents || s.threshold > 0) {
				w.open(id, err)
			}
		}
	}
}

// checkGroup looks whether a group is still there, and lets go of what belongs to one
// that was removed: that rings like a crossing.
func (w *MemoryNotifier) checkGroup(g *group) error {
	kept := g.group
	err := g.read(func(g *cgroup.Group) error { _, err := g.Usage(); return err })
	if kept != g.group {
		w.closeGroup(g)
	}
	return err
}

func (w *MemoryNotifier) closeGroup(g *group) {
	for id := range w.subscriptions {
		if s := &w.subscriptions[id]; s.group == g {
			s.close()
		}
	}
}

// open opens a notice in the place of the one before, which stays where that
// fails. fault is that of its group.
func (w *MemoryNotifier) open(id int, fault error) (opened bool) {
	s := &w.subscriptions[id]
	var n *cgroup.Event
	if fault == nil {
		n, fault = s.open(s.group.group)
	}
	if fault == nil {
		if fault = w.poller.Add(n, id); fault != nil {
			n.Close()
		}
	}
	switch {
	case errors.Is(fault, errors.ErrUnsupported), errors.Is(fault, cgroup.ErrGone), errors.Is(fault, cgroup.ErrNoPods): // told elsewhere
	case fault == nil:
		s.close()
		s.event = n
		s.armed.Store(s.threshold)
		if s.lost {
			w.log.Info("a kernel notification is back", "notification", s.name)
		}
		s.lost = false
	case !s.lost:
		w.log.Warn("a kernel notification is not to be had, polling goes on without it", "notification", s.name, "error", fault)
		s.lost = true
	}
	return fault == nil
}

func (s *subscription) close() {
	s.armed.Store(0)
	if s.event != nil {
		s.event.Close()
		s.event = nil
	}
}

// moveThresholds moves usage thresholds to their marks: memory that was used, and file pages
// that came or went, have moved them. One that is a little off is left alone.
func (w *MemoryNotifier) moveThresholds(a MemoryLevels) {
	for i := range a {
		s := &w.subscriptions[nodeUsage+i]
		if mark, known := a[i].notifyAt(); known && !a[i].near(s.armed.Load()) {
			s.threshold = mark
			w.open(nodeUsage+i, w.checkGroup(s.group))
		}
	}
}
