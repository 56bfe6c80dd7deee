package daemon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/evictd/evictd/eviction"
	"github.com/evictd/evictd/eviction/journal"
	"github.com/evictd/evictd/eviction/notify"
	"github.com/evictd/evictd/internal/procfs"
	"github.com/evictd/evictd/internal/wire"
)

const (
	// noticeQueue bounds the notices that wait for the journal, and maxDelivering those that are delivered at a
	// time: the filesystem of a container may hang.
	noticeQueue, maxDelivering = 1024, 64
	// keptPatience is how long a notice waits for the journal.
	keptPatience = time.Second
	// lastPatience is how long the end of evictd waits for the ends of warnings.
	lastPatience = time.Second
)

// notices delivers warnings and their ends, each once the journal has it: the next evictd ends those
// that this one cannot. It is used by the publisher, and run by one goroutine.
type notices struct {
	find    func(types.UID) *trackedPod
	reports interface {
		StepTaken(*eviction.StepAction, error)
		AnnotationIgnored(wire.PodName, string)
	}
	send    func(*eviction.StepAction) error // delivers one
	journal *journal.Journal                 // nil without one
	written atomic.Uint64                    // changes of the journal that are durable
	wrote   chan struct{}                    // one of them is
	in      chan notice
	log     *slog.Logger

	delivering sync.WaitGroup
	mu         sync.Mutex
	// containers are those that have a notice to deliver, or a warning in effect.
	containers map[noticed]*delivery
	running    int
	// waiting are containers whose next notice waits because maxDelivering others are being delivered; the first one waits longest.
	waiting []noticed
	// faults are the last that were reported of containers.
	faults map[noticed]string
}

// notice is what to deliver once the journal has so many changes.
type notice struct {
	eviction.StepAction
	changes uint64
}

// noticed is a container.
type noticed struct {
	uid  types.UID
	name string
}

// delivery is the state of a container: the notice that is being delivered, the last of those that came since and the
// warning in effect.
type delivery struct{ running, next, warned *eviction.StepAction }

func (d *Daemon) newNotices() *notices {
	n := &notices{
		find: func(uid types.UID) *trackedPod {
			pods := d.tracker.pods()
			if i := slices.IndexFunc(pods, func(p *trackedPod) bool { return p.UID == uid }); i >= 0 {
				return pods[i]
			}
			return nil
		},
		journal: d.journal, wrote: make(chan struct{}, 1), in: make(chan notice, noticeQueue), log: d.log, containers: map[noticed]*delivery{}, faults: map[noticed]string{},
	}
	n.send = n.deliverTo
	if n.journal != nil {
		n.journal.Written(func(changes uint64) {
			n.written.Store(changes)
			select {
			case n.wrote <- struct{}{}:
			default:
			}
		})
	}
	return n
}

var errNoticesFull = errors.New("too many notices wait")

// deliver takes a notice that the journal has, or will have with its present changes. It does not block.
func (n *notices) deliver(s *eviction.StepAction) {
	next := notice{StepAction: *s}
	if n.journal != nil {
		next.changes = n.journal.Changes()
	}
	select {
	case n.in <- next:
	default:
		n.reports.StepTaken(s, errNoticesFull)
	}
}

// run delivers until ctx ends, and then ends the warnings in effect.
func (n *notices) run(ctx context.Context) {
	for {
		select {
		case next := <-n.in:
			n.awaitKept(ctx, next.changes)
			n.begin(&next.StepAction)
		case <-ctx.Done():
			n.end()
			return
		}
	}
}

// awaitKept waits until the journal has so many changes. On a disk that hangs it gives up.
func (n *notices) awaitKept(ctx context.Context, changes uint64) {
	patience := time.NewTimer(keptPatience)
	defer patience.Stop()
	for n.journal != nil && n.written.Load() < changes {
		select {
		case <-n.wrote:
		case <-patience.C:
			return
		case <-ctx.Done():
			return
		}
	}
}

// begin delivers a notice on a goroutine of its own, after the one before to the same container.
func (n *notices) begin(s *eviction.StepAction) {
	n.mu.Lock()
	defer n.mu.Unlock()
	key := noticed{s.Pod.UID, s.Container}
	c := n.containers[key]
	if c == nil {
		c = &delivery{}
		n.containers[key] = c
	}
	waits := c.next != nil
	c.next = s
	switch {
	case c.running != nil || waits:
	case n.running == maxDelivering:
		n.waiting = append(n.waiting, key)
	default:
		n.start(key, c)
	}
}

// start begins to deliver the next notice of a container. It is called with the lock held.
func (n *notices) start(key noticed, c *delivery) {
	s := c.next
	c.running, c.next = s, nil
	n.running++
	n.delivering.Go(func() {
		err := n.send(s)
		n.reports.StepTaken(s, err)
		n.mu.Lock()
		defer n.mu.Unlock()
		n.reportFault(key, s, err)
		c.running = nil
		n.running--
		switch {
		case s.Over:
			c.warned = nil
		case err == nil:
			c.warned = s
		}
		if c.next != nil {
			n.start(key, c)
			return
		}
		if c.warned == nil {
			delete(n.containers, key)
		}
		if len(n.waiting) > 0 {
			key, n.waiting = n.waiting[0], n.waiting[1:]
			n.start(key, n.containers[key])
		}
	})
}

// mostFaults bounds the faults that are remembered.
const mostFaults = 10_000

// reportFault reports why a notice was not delivered as an event of its pod, if the one before was for
// another reason. It is called with the lock held.
func (n *notices) reportFault(key noticed, s *eviction.StepAction, err error) {
	switch {
	case err == nil:
		delete(n.faults, key)
		return
	case errors.Is(err, errNotRunning) || n.faults[key] == err.Error():
		return
	case len(n.faults) == mostFaults:
		clear(n.faults)
	}
	n.faults[key] = err.Error()
	n.reports.AnnotationIgnored(wire.PodName{UID: s.Pod.UID, Namespace: s.Pod.Namespace, Name: s.Pod.Name}, err.Error())
}

// end ends the warnings in effect, as far as their containers take that in time. Warnings that still wait are dropped.
func (n *notices) end() {
	n.mu.Lock()
	n.waiting = nil
	for key, c := range n.containers {
		c.next = nil
		last := cmp.Or(c.running, c.warned)
		if last == nil || last.Over {
			continue
		}
		over := *last
		over.Over, over.Because = true, "evictd ends"
		if c.next = &over; c.running == nil {
			n.start(key, c)
		}
	}
	n.mu.Unlock()
	done := make(chan struct{})
	go func() {
		defer close(done)
		n.delivering.Wait()
	}()
	select {
	case <-done:
	case <-time.After(lastPatience):
		n.log.Warn("the ends of some warnings are not delivered: the filesystems of their containers hang")
	}
}

var errNotRunning = errors.New("the container does not run")

// deliverTo delivers a notice to the first process of a container.
func (n *notices) deliverTo(s *eviction.StepAction) error {
	p := n.find(s.Pod.UID)
	if p == nil {
		return errNotRunning
	}
	asked := &p.Notify // as it is now
	number := asked.Warning
	if s.Over {
		number = asked.Over
	}
	if !asked.Asks() || asked.File == "" && number == 0 {
		return nil
	}
	pid, err := p.firstProcess(s.Container)
	if err != nil {
		return err
	}
	process, err := notify.Open(pid, func() bool {
		pids, err := p.Processes(s.Container, nil)
		return err == nil && slices.Contains(pids, pid)
	})
	if errors.Is(err, os.ErrProcessDone) {
		return errNotRunning
	}
	if err != nil {
		return err
	}
	defer process.Close()
	if asked.File == "" {
		err = process.Signal(number)
	} else {
		line := "warning " + s.Because
		if s.Over {
			line = "over"
		}
		err = process.WriteFile(asked.File, line)
	}
	if err != nil {
		return fmt.Errorf("annotation %s: container %s: %w", eviction.NotifyAnnotation, s.Container, err)
	}
	return nil
}

// firstProcess is the process of a container that has started first.
func (m *members) firstProcess(container string) (first int, err error) {
	pids, err := m.Processes(container, nil)
	if err != nil {
		return 0, err
	}
	var since uint64
	for _, pid := range pids {
		text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
		if err != nil {
			continue // it has ended
		}
		stat, parsed := procfs.ParseStat(text)
		if parsed && (first == 0 || stat.Started < since || stat.Started == since && pid < first) {
			first, since = pid, stat.Started
		}
	}
	if first == 0 {
		return 0, errNotRunning
	}
	return first, nil
}
