package gc

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/evictd/evictd/eviction"
	"github.com/evictd/evictd/eviction/control"
	"github.com/evictd/evictd/eviction/reclaim"
	"github.com/evictd/evictd/internal/wire"
	"github.com/evictd/evictd/stats"
)

const (
	// batchSize is how many containers or sandboxes are removed at the same time.
	// Images are removed one by one, so that no more are removed than needed.
	batchSize = 4
	// containerGainTimeout is how long the space of removed containers may take to
	// become free: containerd's garbage collection follows later (1.6: after 0.2 s; 2:
	// after 1.3 s and more, by the size of its metadata).
	containerGainTimeout = 5 * time.Second
	pollInterval         = 50 * time.Millisecond
	// imageGainTimeout is the same for images: xfs frees deleted files later, and
	// containerd reports an image as collected after a garbage collection that began
	// before its removal.
	imageGainTimeout = 2 * time.Second
	// compressionFactor is how many times its reported size an image may free:
	// containerd reports the size of its compressed layers, and stores the unpacked
	// layers besides.
	compressionFactor = 5
	// gainPause is how long after the last gain an image has freed all its space.
	gainPause = 250 * time.Millisecond
	// runtimeTimeout is how long a runtime may be down, as during its restart, before
	// the collection fails.
	runtimeTimeout = 10 * time.Second
	// diskTimeout is how long new figures of a disk are awaited.
	diskTimeout      = time.Second
	diskPollInterval = 2 * time.Millisecond
)

// orderTimeout bounds one order to the runtime, by kind.
var orderTimeout = [...]time.Duration{
	reclaim.KindContainer: 10 * time.Second,
	reclaim.KindSandbox:   10 * time.Second,
	reclaim.KindImage:     time.Minute,
}

// orders are the runtime's orders, by kind.
var orders = [...]wire.OrderKind{
	reclaim.KindContainer: wire.RemoveContainer,
	reclaim.KindSandbox:   wire.RemoveSandbox,
	reclaim.KindImage:     wire.RemoveImage,
}

var (
	errNoRuntime = errors.New("there is no container runtime")
	errNoAnswer  = errors.New("the container runtime has not answered in time")
)

// collection is one running collection.
type collection struct {
	Report
	*Collector
	ctx       context.Context
	policy    *reclaim.Policy
	first     control.Snapshot // the last before anything was removed
	failedIDs map[string]bool  // ids that could not be removed
	awaySince time.Time        // since when the runtime is down; zero while it answers
	lacked    eviction.Need    // at the last measurement
}

// begin measures the disks before anything is removed.
func (c *Collector) begin(ctx context.Context, o Trigger, s eviction.Signal, need eviction.Need) *collection {
	w := &collection{
		Report:    Report{Trigger: o, Signal: s, Need: need, Begun: time.Now(), DryRun: c.cfg.DryRun},
		Collector: c, ctx: ctx, policy: c.currentPolicy(), failedIDs: map[string]bool{},
	}
	w.first, w.Error = c.ports.ReadDisks(ctx)
	return w
}

// readDisks measures the disks and waits for figures younger than the call. A snapshot from before a change of the
// layout has no figures of a disk that is new in the layout, so that an older snapshot is never used.
func (w *collection) readDisks() (control.Snapshot, error) {
	for begun := time.Now(); ; {
		s, err := w.ports.ReadDisks(w.ctx)
		at := disk(w.Signal, &s.Node).Time
		young := at.After(begun) || at.IsZero() && !s.At.Before(begun)
		if err != nil || young || time.Since(begun) > diskTimeout {
			return s, err
		}
		select {
		case <-w.ctx.Done():
			return s, w.ctx.Err()
		case <-time.After(diskPollInterval):
		}
	}
}

// step removes what a goal allows until lacks is satisfied; without lacks it removes
// everything. The space that a removal frees differs from its expectation, so the disk
// is measured after each removal and the rest is chosen again.
func (w *collection) step(g reclaim.Goal, lacks func(*control.Snapshot) eviction.Need) {
	for g.Except = w.failedIDs; w.Error == nil && (lacks == nil || w.updateNeed(&g, lacks)); {
		inv, err := w.inventory()
		if errors.Is(err, wire.ErrAway) && w.waitForRuntime() {
			continue
		}
		if err != nil {
			w.Error = err
			return
		}
		w.detect(inv)
		if w.Trigger == Evicted {
			inv.Containers = slices.DeleteFunc(inv.Containers, func(c reclaim.Container) bool { return !inv.Evicted[c.Pod] })
			inv.Sandboxes = slices.DeleteFunc(inv.Sandboxes, func(s reclaim.Sandbox) bool { return !inv.Evicted[s.Pod] })
		}
		if w.Trigger == Pressure {
			if w.Error = w.narrow(&g); w.Error != nil {
				return
			}
		}
		plan, before := reclaim.Choose(inv, w.policy, g, time.Now()), len(w.Removed)
		if len(plan.Removals) == 0 || !w.execute(plan.Removals, g.Need, lacks) {
			break
		}
		need := g.Need
		if g.Images { // the next step evicts a pod
			need.Bytes /= compressionFactor
		}
		w.awaitGain(w.Removed[before:], need, lacks)
	}
	if g.Containers && w.Error == nil && w.Trigger != Evicted {
		w.Logs += w.removeLogs()
	}
}

// narrow limits a goal to what the disk has by its present layout: the reclaim was requested before the runtime was waited
// for, and images may have turned out to be on another disk.
func (w *collection) narrow(g *reclaim.Goal) error {
	s, err := w.ports.ReadDisks(w.ctx)
	if err != nil {
		return err
	}
	steps := s.Eviction.ReclaimSteps(w.Signal)
	g.Containers = g.Containers && slices.Contains(steps, eviction.DeadContainers)
	g.Images = g.Images && slices.Contains(steps, eviction.UnusedImages)
	return nil
}

// mayFree says whether the removed objects may have freed enough: their sizes sum up to
// the need, or some size is unknown.
func mayFree(removed []reclaim.Removal, n eviction.Need) bool {
	unknown := false
	for _, r := range removed {
		n.Bytes -= r.Bytes.Or(0)
		n.Inodes -= r.Inodes.Or(0)
		unknown = unknown || n.Bytes > 0 && !r.Bytes.IsKnown() || n.Inodes > 0 && !r.Inodes.IsKnown()
	}
	return unknown || satisfied(n)
}

// updateNeed sets what a goal still needs. It says whether the goal needs more
// removals.
func (w *collection) updateNeed(g *reclaim.Goal, lacks func(*control.Snapshot) eviction.Need) bool {
	if w.DryRun {
		return true
	}
	if err := w.updateLacked(lacks); err != nil {
		w.Error = err
		return false
	}
	g.Need.Bytes, g.Need.Inodes = w.lacked.Bytes, w.lacked.Inodes
	return !satisfied(w.lacked) || !g.Pressure || w.policy.Everything
}

// updateLacked measures what the disk lacks now.
func (w *collection) updateLacked(lacks func(*control.Snapshot) eviction.Need) error {
	s, err := w.readDisks()
	if err != nil {
		return err
	}
	if len(w.Removed) == 0 {
		w.first = s
	}
	w.lacked = lacks(&s)
	return nil
}

func satisfied(n eviction.Need) bool { return n.Bytes <= 0 && n.Inodes <= 0 }

// execute removes the chosen objects until the need is satisfied. It says whether to
// choose again.
func (w *collection) execute(removals []reclaim.Removal, need eviction.Need, lacks func(*control.Snapshot) eviction.Need) bool {
	if w.DryRun {
		w.Removed = append(w.Removed, removals...)
		return false
	}
	failed, before := len(w.Failed), len(w.Removed)
	for len(removals) > 0 && w.Error == nil && w.ctx.Err() == nil {
		if len(w.Failed) > failed && removals[0].Kind == reclaim.KindSandbox {
			return true // removing a sandbox removes its containers, and one of them could not be removed
		}
		n := w.batch(removals)
		batch := removals[:n]
		removals = removals[n:]
		away := false
		for i, err := range w.order(batch) {
			switch {
			case err == nil:
				w.addRemoved(batch[i])
			case w.ctx.Err() != nil: // evictd ends: no failure
				return false
			case errors.Is(err, wire.ErrAway) && w.waitForRuntime(): // the runtime is down: no failure
				away = true
			default:
				w.addFailure(batch[i], err)
			}
		}
		if away {
			return true
		}
		if len(removals) == 0 || batch[0].Why == reclaim.Age || w.removesAll(lacks) {
			continue
		}
		if batch[0].Kind == reclaim.KindImage {
			w.awaitGain(w.Removed[before:], need, lacks)
		}
		if w.updateLacked(lacks) == nil && satisfied(w.lacked) {
			return false
		}
	}
	return w.ctx.Err() == nil
}

// waitForRuntime waits a moment for a runtime that is down, and says whether to retry.
func (w *collection) waitForRuntime() bool {
	if w.awaySince.IsZero() {
		w.awaySince = time.Now()
		if has := w.ports.Runtime.Runtime(); has != nil && !has.Connected {
			w.awaySince = has.Since
		}
	}
	if time.Since(w.awaySince) > runtimeTimeout {
		return false
	}
	select {
	case <-w.ctx.Done():
		return false
	case <-time.After(pollInterval):
		return true
	}
}

// addFailure records that an object could not be removed, and why.
func (w *collection) addFailure(r reclaim.Removal, err error) {
	w.failedIDs[r.ID] = true
	w.Failed = append(w.Failed, Failure{r, err})
	if errors.Is(err, errNoAnswer) {
		w.Error = err
	}
}

// addRemoved records a removed object and removes its log.
func (w *collection) addRemoved(r reclaim.Removal) {
	w.awaySince = time.Time{}
	w.Removed = append(w.Removed, r)
	w.mu.Lock()
	w.removed[r.ID] = time.Now()
	w.mu.Unlock()
	if r.Log != "" {
		logs := w.openLogs()
		defer logs.close()
		logs.remove(r.Log)
	}
}

// batch is how many of the removals are ordered at the same time.
func (w *collection) batch(removals []reclaim.Removal) int {
	n := 1
	for n < min(batchSize, len(removals)) && removals[0].Kind != reclaim.KindImage && removals[n].Kind == removals[0].Kind {
		n++
	}
	return n
}

// removesAll says that removals do not end when the disk lacks nothing.
func (w *collection) removesAll(lacks func(*control.Snapshot) eviction.Need) bool {
	return lacks == nil || w.policy.Everything && w.Trigger == Pressure
}

// awaitGain waits, for a bounded time, until the removed objects have freed what is
// needed, if they can: runtimes and filesystems free space with a delay.
func (w *collection) awaitGain(removed []reclaim.Removal, need eviction.Need, lacks func(*control.Snapshot) eviction.Need) {
	if w.removesAll(lacks) || len(removed) == 0 || !mayFree(removed, need) {
		return
	}
	patience, images := containerGainTimeout, removed[len(removed)-1].Kind == reclaim.KindImage
	if images {
		patience = imageGainTimeout
	}
	var gained time.Time
	for until := time.Now().Add(patience); time.Now().Before(until); {
		before := w.lacked
		if err := w.updateLacked(lacks); err != nil || satisfied(w.lacked) {
			return
		}
		if before.Bytes > 0 && w.lacked.Bytes < before.Bytes || before.Inodes > 0 && w.lacked.Inodes < before.Inodes {
			gained = time.Now()
		}
		if images && !gained.IsZero() && time.Since(gained) >= gainPause {
			return
		}
		select {
		case <-w.ctx.Done():
			return
		case <-time.After(pollInterval):
		}
	}
}

// order sends a batch of removals and waits for the answers, at most until their
// deadline.
func (w *collection) order(batch []reclaim.Removal) []error {
	limit := orderTimeout[batch[0].Kind]
	deadline := time.Now().Add(limit)
	answers := make([]chan error, len(batch))
	for i, r := range batch {
		done := make(chan error, 1)
		answers[i] = done
		err := w.ports.Runtime.Order(wire.Order{Kind: orders[r.Kind], Target: r.ID, Deadline: wire.Instant{Time: deadline}}, func(err error) { done <- err })
		if err != nil {
			done <- err
		}
	}
	timeout := time.NewTimer(limit + time.Second) // the runtime's own deadline error is received before
	defer timeout.Stop()
	errs := make([]error, len(batch))
	for i := range batch {
		select {
		case errs[i] = <-answers[i]:
			if errs[i] != nil && !time.Now().Before(deadline) {
				errs[i] = errNoAnswer
			}
		case <-timeout.C:
			timeout.Reset(0)
			errs[i] = errNoAnswer
		case <-w.ctx.Done():
			errs[i] = w.ctx.Err()
		}
	}
	return errs
}

// end measures what the collection has freed.
func (w *collection) end(lacks func(*control.Snapshot) eviction.Need) {
	w.Ended, w.Expected, w.Insufficient = time.Now(), 0, false
	for _, r := range w.Removed {
		w.Expected += r.Bytes.Or(0)
	}
	s, err := w.readDisks()
	if err != nil || w.DryRun {
		return
	}
	before, after := disk(w.Signal, &w.first.Node), disk(w.Signal, &s.Node)
	w.Freed, w.FreedInodes = gain(before.Available, after.Available), gain(before.InodesFree, after.InodesFree)
	w.Insufficient = lacks != nil && !satisfied(lacks(&s))
}

// disk is the filesystem that a signal is of.
func disk(s eviction.Signal, n *stats.Node) stats.Filesystem {
	switch s {
	case eviction.ImageFsAvailable, eviction.ImageFsInodesFree:
		return n.ImageFs
	case eviction.ContainerFsAvailable, eviction.ContainerFsInodesFree:
		return n.ContainerFs
	}
	return n.NodeFs
}

// gain is what became free; negative where others used more.
func gain(before, after stats.Amount) int64 {
	if !before.IsKnown() || !after.IsKnown() {
		return 0
	}
	return after.Or(0) - before.Or(0)
}

// failures joins the errors of all objects that could not be removed.
func (w *collection) failures() error {
	var errs []error
	for _, f := range w.Failed {
		errs = append(errs, fmt.Errorf("remove %v %s: %w", f.Kind, f.ID, f.Err))
	}
	if len(errs) == 0 {
		return w.Error
	}
	return errors.Join(errs...)
}
