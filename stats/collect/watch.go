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

// Aim is how a group's memory stands: what it uses now, and the use at which a
// threshold is crossed; bytes, unknown where there is none. Far from that the kernel
// is to tell of half the way.
type Aim struct {
	Usage, Mark stats.Amount
}

// halfway is how much is left to a mark, bytes, where half the way is told.
const halfway = 128 << 20

// tells is the use that the kernel is to tell of.
func (a Aim) tells() (mark int64, known bool) {
	mark, known = a.Mark.Get()
	if left := mark - a.Usage.Or(mark); left >= halfway {
		mark -= left / 2
	}
	return mark, known
}

// near says whether a usage threshold is where the kernel is to tell; 0 is none.
func (a Aim) near(threshold int64) bool {
	mark, _ := a.tells()
	off := mark - threshold
	return threshold != 0 && max(off, -off) <= max(aimSlack, (mark-a.Usage.Or(mark))/aimShare)
}

// Left is how much more may be used before the threshold is crossed, bytes.
func (a Aim) Left() stats.Amount {
	usage, used := a.Usage.Get()
	mark, aimed := a.Mark.Get()
	if !used || !aimed {
		return stats.Amount{}
	}
	return stats.Known(mark - usage)
}

// Aims are those of the node and of the pods' group.
type Aims [2]Aim

// A Watch is where the one who senses sleeps: the kernel's notices of the node's
// memory wake him, and whoever calls Wake. A notice says that something happened
// and never what is available.
type Watch struct {
	log    *slog.Logger
	bell   *cgroup.Bell
	groups [2]group
	spots  [numSpots]spot
	aims   chan Aims // nil: usage thresholds are not wanted
	rang   chan struct{}
}

// The notices, by their id in the bell: the first that rang names the wake.
const (
	nodeUsage = iota
	podsUsage
	nodeEvents
	podsEvents
	nodeStall
	podsStall
	numSpots
)

var spotSources = [numSpots]string{MemcgThreshold, MemcgThreshold, MemoryEvents, MemoryEvents, MemoryStall, MemoryStall}

// spot is one notice that the watch wants. Its loss is logged once, and so is its
// return.
type spot struct {
	name   string
	group  *group
	open   func(*cgroup.Group) (*cgroup.Notice, error)
	notice *cgroup.Notice
	mark   int64        // of a usage threshold
	armed  atomic.Int64 // the mark that the kernel tells of; 0 for none
	lost   bool
}

const (
	// stallTime in stallWindow wakes the watch where that window is allowed,
	// else stallTimeLong in stallWindowLong.
	stallTime, stallWindow         = 50 * time.Millisecond, 500 * time.Millisecond
	stallTimeLong, stallWindowLong = 100 * time.Millisecond, 2 * time.Second
	// rewatch is how often what is missing is tried again.
	rewatch = 10 * time.Second
	// aimSlack is how far a usage threshold may be off its mark near it, bytes:
	// the kernel charges in batches that are no finer.
	aimSlack = 1 << 20
	// aimShare is the part of what is left to a mark that the threshold may be
	// off far from it.
	aimShare = 16
)

// NewWatch makes a watch on the groups of a node. Without thresholds those of
// memory usage, which only cgroup v1 has, are left out; the kubelet calls that
// kernelMemcgNotification.
func NewWatch(cfg NodeConfig, thresholds bool, log *slog.Logger) (*Watch, error) {
	w := &Watch{log: log, rang: make(chan struct{}, 1)}
	if thresholds && cfg.Cgroups != nil && cfg.Cgroups.Version() == cgroup.V1 {
		w.aims = make(chan Aims, 1)
	}
	var err error
	if w.bell, err = cgroup.NewBell(); err != nil {
		return nil, err
	}
	w.groups = [2]group{{open: cfg.openRoot}, {open: cfg.openPods}}
	names := [2]string{"node", "pods"}
	stalls := [2]func(*cgroup.Group) (*cgroup.Notice, error){cfg.nodeStall, groupStall}
	for i := range w.groups {
		g := &w.groups[i]
		usage := &w.spots[nodeUsage+i]
		usage.wants(names[i]+" memory threshold", g, func(g *cgroup.Group) (*cgroup.Notice, error) { return g.NotifyUsage(usage.mark) })
		w.spots[nodeEvents+i].wants(names[i]+" memory events", g, (*cgroup.Group).NotifyEvents)
		w.spots[nodeStall+i].wants(names[i]+" memory stalls", g, stalls[i])
	}
	return w, nil
}

func (s *spot) wants(name string, g *group, open func(*cgroup.Group) (*cgroup.Notice, error)) {
	s.name, s.group, s.open = name, g, open
}

// nodeStall prefers the node's own group to the machine, as readPressure does.
func (cfg *NodeConfig) nodeStall(g *cgroup.Group) (*cgroup.Notice, error) {
	n, err := groupStall(g)
	if errors.Is(err, errors.ErrUnsupported) {
		return shortest(func(stall, window time.Duration) (*cgroup.Notice, error) {
			return cgroup.NotifyStallAt(cfg.Host+"/proc/pressure/memory", stall, window)
		})
	}
	return n, err
}

func groupStall(g *cgroup.Group) (*cgroup.Notice, error) { return shortest(g.NotifyStall) }

// shortest takes the shortest window that the kernel allows.
func shortest(notify func(stall, window time.Duration) (*cgroup.Notice, error)) (*cgroup.Notice, error) {
	n, err := notify(stallTime, stallWindow)
	if err != nil {
		return notify(stallTimeLong, stallWindowLong)
	}
	return n, nil
}

// Wait sleeps until a notice rings, Wake is called or d has passed, and says
// which notice it was, if any. It opens nothing and allocates nothing; one
// goroutine calls it.
func (w *Watch) Wait(d time.Duration) (source string) {
	rang := w.bell.Wait(d)
	if rang == 0 {
		return ""
	}
	select {
	case w.rang <- struct{}{}:
	default:
	}
	return spotSources[bits.TrailingZeros64(rang)]
}

// Wake ends the present Wait, or the next. Any goroutine may call it.
func (w *Watch) Wake() { w.bell.Ring() }

// Aim tells where thresholds are now, and returns whether the kernel already tells
// when memory comes there, or half the way. It never blocks; only one goroutine may
// call it.
func (w *Watch) Aim(a Aims) (armed bool) {
	if w.aims == nil {
		return false
	}
	aimed, near := 0, 0
	for i := range a {
		if _, known := a[i].tells(); known {
			aimed++
			if a[i].near(w.spots[nodeUsage+i].armed.Load()) {
				near++
			}
		}
	}
	if near < aimed {
		select {
		case <-w.aims:
		default:
		}
		w.aims <- a
	}
	return aimed > 0 && near == aimed
}

// Run keeps the notices until ctx ends: they are opened when their groups are
// there, and usage thresholds follow the marks. It returns nil.
func (w *Watch) Run(ctx context.Context) error {
	again := time.NewTicker(rewatch)
	defer again.Stop()
	w.keep()
	for {
		select {
		case <-ctx.Done():
			return nil
		case a := <-w.aims:
			w.follow(a)
		case <-w.rang:
			w.keep()
		case <-again.C:
			w.keep()
		}
	}
}

// Close lets go of everything. Nobody may run or wait any more.
func (w *Watch) Close() {
	for i := range w.spots {
		w.spots[i].close()
	}
	for i := range w.groups {
		w.groups[i].close()
	}
	w.bell.Close()
}

// keep opens what is not open.
func (w *Watch) keep() {
	for i := range w.groups {
		err := w.visit(&w.groups[i])
		for id := range w.spots {
			if s := &w.spots[id]; s.group == &w.groups[i] && s.notice == nil && (id >= nodeEvents || s.mark > 0) {
				w.open(id, err)
			}
		}
	}
}

// visit looks whether a group is still there, and lets go of what belongs to one
// that was removed: that rings like a crossing.
func (w *Watch) visit(g *group) error {
	kept := g.group
	err := g.read(func(g *cgroup.Group) error { _, err := g.Usage(); return err })
	if kept != g.group {
		w.letGo(g)
	}
	return err
}

func (w *Watch) letGo(g *group) {
	for id := range w.spots {
		if s := &w.spots[id]; s.group == g {
			s.close()
		}
	}
}

// open opens a notice in the place of the one before, which stays where that
// fails. fault is that of its group.
func (w *Watch) open(id int, fault error) (opened bool) {
	s := &w.spots[id]
	var n *cgroup.Notice
	if fault == nil {
		n, fault = s.open(s.group.group)
	}
	if fault == nil {
		if fault = w.bell.Add(n, id); fault != nil {
			n.Close()
		}
	}
	switch {
	case errors.Is(fault, errors.ErrUnsupported), errors.Is(fault, cgroup.ErrGone), errors.Is(fault, cgroup.ErrNoPods): // told elsewhere
	case fault == nil:
		s.close()
		s.notice = n
		s.armed.Store(s.mark)
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

func (s *spot) close() {
	s.armed.Store(0)
	if s.notice != nil {
		s.notice.Close()
		s.notice = nil
	}
}

// follow moves usage thresholds to their marks: memory that was used, and file pages
// that came or went, have moved them. One that is a little off is left alone.
func (w *Watch) follow(a Aims) {
	for i := range a {
		s := &w.spots[nodeUsage+i]
		if mark, known := a[i].tells(); known && !a[i].near(s.armed.Load()) {
			s.mark = mark
			w.open(nodeUsage+i, w.visit(s.group))
		}
	}
}
