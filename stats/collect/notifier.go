package collect

import (
	"context"
	"errors"
	"log/slog"
	"math/bits"
	"sync/atomic"
	"time"

	"github.com/evictd/evictd/cgroup"
	"github.com/evictd/evictd/internal/tick"
	"github.com/evictd/evictd/stats"
)

// What woke a MemoryNotifier: a memory usage threshold of cgroup v1, a change of
// memory.events on v2, a PSI trigger of memory.
const (
	MemcgThreshold = "memcg-threshold"
	MemoryEvents   = "memory-events"
	MemoryStall    = "memory-stall"
)

// MemoryLevel is a group's memory usage and the usage at which a threshold is crossed;
// bytes, unknown without one. Far from the threshold the kernel notifies at half of the
// distance.
type MemoryLevel struct {
	Usage, Threshold stats.Amount
}

// halfway is the distance to a threshold, bytes, from which the kernel notifies at half
// of it.
const halfway = 128 << 20

// notifyAt is the usage at which the kernel is to notify.
func (a MemoryLevel) notifyAt() (mark int64, known bool) {
	mark, known = a.Threshold.Get()
	if left := mark - a.Usage.Or(mark); left >= halfway {
		mark -= left / 2
	}
	return mark, known
}

// nearby is the distance to a threshold, bytes, below which the loop's own thread waits in the
// kernel: at 6 GiB/s it lasts for 40 ms, and a thread of normal priority that the loop depends
// on may wait as long for a processor.
const nearby = 2 * halfway

// isNear says whether a usage threshold is close enough to notifyAt; 0 is none.
func (a MemoryLevel) isNear(threshold int64) bool {
	mark, _ := a.notifyAt()
	off := mark - threshold
	return threshold != 0 && max(off, -off) <= max(thresholdSlack, (mark-a.Usage.Or(mark))/thresholdShare)
}

// Left is the usage that is left before the threshold is crossed, bytes.
func (a MemoryLevel) Left() stats.Amount {
	usage, used := a.Usage.Get()
	mark, known := a.Threshold.Get()
	if !used || !known {
		return stats.Amount{}
	}
	return stats.Known(mark - usage)
}

// MemoryLevels are those of the node and of the pods' group.
type MemoryLevels [2]MemoryLevel

// Armed is which growth of memory the kernel notifies of before a threshold is crossed.
type Armed int

// Nothing is notified of, or that of the pods, or that of the whole node.
const (
	Unarmed Armed = iota
	ArmedForPods
	ArmedForNode
)

// MemoryNotifier is where the sensing loop sleeps: the kernel's events of the node's
// memory wake it, and Wake. An event says that memory has changed, not how much is
// available.
type MemoryNotifier struct {
	log           *slog.Logger
	poller        *cgroup.Poller
	groups        [2]group
	subscriptions [numSubscriptions]subscription
	levels        chan MemoryLevels // nil: usage thresholds are not used
	nearby        bool              // a threshold is less than nearby away
	fired         chan struct{}
}

// The events, by their id in the poller: the first that fired is the reason of the wake.
const (
	nodeUsage = iota
	podsUsage
	nodeEvents
	podsEvents
	nodeStall
	podsStall
	nodeFullStall
	numSubscriptions
)

var subscriptionSources = [numSubscriptions]string{MemcgThreshold, MemcgThreshold, MemoryEvents, MemoryEvents, MemoryStall, MemoryStall, MemoryStall}

// subscription is one event that the notifier uses. Its failure is logged once, and its
// recovery.
type subscription struct {
	name      string
	group     *group
	open      func(*cgroup.Group) (*cgroup.Event, error)
	event     *cgroup.Event
	threshold int64        // of a usage threshold
	armed     atomic.Int64 // the threshold set in the kernel; 0 for none
	opened    atomic.Bool
	lost      bool
}

const (
	// Stalls of a stallShare-th of stallWindow wake the notifier where that window is permitted,
	// else of half that share of stallWindowLong; of all tasks those of a fullShare-th.
	stallWindow, stallWindowLong = 500 * time.Millisecond, 2 * time.Second
	stallShare, fullShare        = 10, 50
	// reopenInterval is how often missing events are retried.
	reopenInterval = 10 * time.Second
	// thresholdSlack is the tolerance of a usage threshold, bytes: the kernel charges
	// in batches.
	thresholdSlack = 1 << 20
	// thresholdShare is the tolerance as a part of the remaining distance, if larger.
	thresholdShare = 16
)

// NewMemoryNotifier makes a notifier for the groups of a node. Without thresholds it
// leaves out the usage thresholds of cgroup v1, as without the kubelet's
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
	stalls := [2]func(*cgroup.Group) (*cgroup.Event, error){cfg.nodeStall(cgroup.Some, stallShare), groupStall(cgroup.Some, stallShare)}
	for i := range w.groups {
		g := &w.groups[i]
		usage := &w.subscriptions[nodeUsage+i]
		usage.init(names[i]+" memory threshold", g, func(g *cgroup.Group) (*cgroup.Event, error) { return g.NotifyUsage(usage.threshold) })
		w.subscriptions[nodeEvents+i].init(names[i]+" memory events", g, (*cgroup.Group).NotifyEvents)
		w.subscriptions[nodeStall+i].init(names[i]+" memory stalls", g, stalls[i])
	}
	w.subscriptions[nodeFullStall].init("node memory stalls of all tasks", &w.groups[0], cfg.nodeStall(cgroup.Full, fullShare))
	return w, nil
}

func (s *subscription) init(name string, g *group, open func(*cgroup.Group) (*cgroup.Event, error)) {
	s.name, s.group, s.open = name, g, open
}

// nodeStall uses the node's own group, or the machine where the group has no PSI, as
// readPressure does.
func (cfg *NodeConfig) nodeStall(tasks cgroup.Stalled, share time.Duration) func(*cgroup.Group) (*cgroup.Event, error) {
	ofGroup := groupStall(tasks, share)
	return func(g *cgroup.Group) (*cgroup.Event, error) {
		n, err := ofGroup(g)
		if errors.Is(err, errors.ErrUnsupported) {
			return shortest(share, func(stall, window time.Duration) (*cgroup.Event, error) {
				return cgroup.NotifyStallAt(cfg.Host+"/proc/pressure/memory", tasks, stall, window)
			})
		}
		return n, err
	}
}

func groupStall(tasks cgroup.Stalled, share time.Duration) func(*cgroup.Group) (*cgroup.Event, error) {
	return func(g *cgroup.Group) (*cgroup.Event, error) {
		return shortest(share, func(stall, window time.Duration) (*cgroup.Event, error) { return g.NotifyStall(tasks, stall, window) })
	}
}

// shortest uses the shortest window that the kernel permits.
func shortest(share time.Duration, notify func(stall, window time.Duration) (*cgroup.Event, error)) (*cgroup.Event, error) {
	n, err := notify(stallWindow/share, stallWindow)
	if err != nil {
		return notify(stallWindowLong/share/2, stallWindowLong)
	}
	return n, nil
}

// Wait sleeps until an event, Wake or d, and returns the kind of event, "" without one.
// It opens nothing and allocates nothing; one goroutine calls Wait and SetLevels. Near a
// threshold it blocks that goroutine's thread, see cgroup.Poller.
func (w *MemoryNotifier) Wait(d time.Duration) (source string) {
	var fired uint64
	if w.nearby {
		fired = w.poller.Block(d)
	} else {
		fired = w.poller.Wait(d)
	}
	if fired == 0 {
		return ""
	}
	select {
	case w.fired <- struct{}{}:
	default:
	}
	return subscriptionSources[bits.TrailingZeros64(fired)]
}

// Wake ends the present Wait, or the next. Any goroutine may call it.
func (w *MemoryNotifier) Wake() { w.poller.Wake() }

// SetLevels sets usage and thresholds, and returns whether the kernel already notifies
// at the threshold or at half of the distance. It never blocks; one goroutine calls it.
func (w *MemoryNotifier) SetLevels(a MemoryLevels) Armed {
	w.nearby = min(a[0].Left().Or(nearby), a[1].Left().Or(nearby)) < nearby
	if w.levels == nil {
		return Unarmed
	}
	thresholds, near := 0, 0
	for i := range a {
		if _, known := a[i].notifyAt(); known {
			thresholds++
			if a[i].isNear(w.subscriptions[nodeUsage+i].armed.Load()) {
				near++
			}
		}
	}
	if near < thresholds {
		select {
		case <-w.levels:
		default:
		}
		w.levels <- a
	}
	if thresholds > 0 && near == thresholds {
		return ArmedForNode
	}
	return Unarmed
}

// WatchesPodsEvents says whether the kernel notifies of memory.events.local of the pods' group.
// Any goroutine may call it.
func (w *MemoryNotifier) WatchesPodsEvents() bool { return w.subscriptions[podsEvents].opened.Load() }

// Run opens the events once their groups exist, and moves usage thresholds, until ctx
// ends. It returns nil.
func (w *MemoryNotifier) Run(ctx context.Context) error {
	again := time.NewTimer(tick.Until(reopenInterval))
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
			again.Reset(tick.Until(reopenInterval))
			w.reopen()
		}
	}
}

// Close closes everything. No goroutine may be in Run or Wait.
func (w *MemoryNotifier) Close() {
	for i := range w.subscriptions {
		w.subscriptions[i].close()
	}
	for i := range w.groups {
		w.groups[i].close()
	}
	w.poller.Close()
}

// reopen opens the events that are not open.
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

// checkGroup checks that a group still exists, and closes the events of a removed
// group; its removal fires like a crossing.
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

// open opens an event and replaces the one before, which stays open if that fails.
// fault is that of the group.
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
	case errors.Is(fault, errors.ErrUnsupported), errors.Is(fault, cgroup.ErrGone), errors.Is(fault, cgroup.ErrNoPods): // reported by Node.Read
	case fault == nil:
		s.close()
		s.event = n
		s.armed.Store(s.threshold)
		s.opened.Store(true)
		if s.lost {
			w.log.Info("a kernel notification works again", "notification", s.name)
		}
		s.lost = false
	case !s.lost:
		w.log.Warn("a kernel notification is not available; polling continues without it", "notification", s.name, "error", fault)
		s.lost = true
	}
	return fault == nil
}

func (s *subscription) close() {
	s.armed.Store(0)
	s.opened.Store(false)
	if s.event != nil {
		s.event.Close()
		s.event = nil
	}
}

// moveThresholds sets usage thresholds: used memory and file pages move them. A small
// difference is ignored.
func (w *MemoryNotifier) moveThresholds(a MemoryLevels) {
	for i := range a {
		s := &w.subscriptions[nodeUsage+i]
		if mark, known := a[i].notifyAt(); known && !a[i].isNear(s.armed.Load()) {
			s.threshold = mark
			w.open(nodeUsage+i, w.checkGroup(s.group))
		}
	}
}
