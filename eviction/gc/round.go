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
	// together is how many containers or sandboxes are removed at once; images
	// go one by one, so that none goes too many.
	together = 4
	// showing is how long what containers held may take to show on the disk:
	// containerd collects it a little later (1.6 after 0.2 s, 2 after 1.3 s and
	// more, by the size of its metadata).
	showing      = 5 * time.Second
	showingEvery = 50 * time.Millisecond
	// showingImages is the same for images, of which one too many is dear: xfs gives
	// back what was deleted a little later, and containerd says that an image is
	// collected when a collection has ended that began before the image was removed.
	showingImages = 2 * time.Second
	// packed is how many times what a runtime tells of an image it may free:
	// containerd tells the size of its compressed layers, and holds them besides
	// what they were unpacked to.
	packed = 5
	// atRest is how long after the last gain an image is taken to have freed all that
	// it does.
	atRest = 250 * time.Millisecond
	// comeback is how long a runtime may be away, as it is when it is started anew,
	// before its disks count as not to be freed.
	comeback = 10 * time.Second
	// fresh is how long figures of now are waited for: a disk may not answer.
	fresh      = time.Second
	freshEvery = 2 * time.Millisecond
)

// patience with the runtime's answer, by kind.
var patience = [...]time.Duration{
	reclaim.KindContainer: 10 * time.Second,
	reclaim.KindSandbox:   10 * time.Second,
	reclaim.KindImage:     time.Minute,
}

// orders are what the runtime is asked for, by kind.
var orders = [...]wire.OrderKind{
	reclaim.KindContainer: wire.RemoveContainer,
	reclaim.KindSandbox:   wire.RemoveSandbox,
	reclaim.KindImage:     wire.RemoveImage,
}

var (
	errNoRuntime = errors.New("there is no container runtime")
	errNoAnswer  = errors.New("the container runtime has not answered in time")
)

// round is one collection as it goes on.
type round struct {
	Report
	*Collector
	ctx    context.Context
	policy *reclaim.Policy
	first  control.Snapshot
	tried  map[string]bool // and not removed
	away   time.Time       // since when the runtime has not answered; zero while it does
	lacked eviction.Need   // when last looked
}

// begin looks at the disks before anything is removed.
func (c *Collector) begin(ctx context.Context, o Trigger, s eviction.Signal, need eviction.Need) *round {
	w := &round{
		Report:    Report{Trigger: o, Signal: s, Need: need, Begun: time.Now(), DryRun: c.cfg.DryRun},
		Collector: c, ctx: ctx, policy: c.rules(), tried: map[string]bool{},
	}
	w.first, w.Error = c.ports.ReadDisks(ctx)
	return w
}

// glance looks at the disks as they are now. Their figures are those of the look
// before, and so may be from before the last removal.
func (w *round) glance() (control.Snapshot, error) {
	for asked := time.Now(); ; {
		s, err := w.ports.ReadDisks(w.ctx)
		at := disk(w.Signal, &s.Node).Time
		if err != nil || at.IsZero() || at.After(asked) || time.Since(asked) > fresh {
			return s, err
		}
		select {
		case <-w.ctx.Done():
			return s, w.ctx.Err()
		case <-time.After(freshEvery):
		}
	}
}

// step removes what a goal allows until lacks says that it was enough; nil is
// never enough. What was removed frees other than expected, so that the disk is
// looked at after each removal and the rest chosen anew.
func (w *round) step(g reclaim.Goal, lacks func(*control.Snapshot) eviction.Need) {
	for g.Except = w.tried; w.Error == nil && (lacks == nil || w.sized(&g, lacks)); {
		inv, err := w.inventory()
		if errors.Is(err, wire.ErrAway) && w.awaits() {
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
		plan, before := reclaim.Choose(inv, w.policy, g, time.Now()), len(w.Removed)
		if len(plan.Removals) == 0 || !w.carryOut(plan.Removals, g.Need, lacks) {
			break
		}
		need := g.Need
		if g.Images { // a pod is next
			need.Bytes /= packed
		}
		w.show(w.Removed[before:], need, lacks)
	}
	if g.Containers && w.Error == nil && w.Trigger != Evicted {
		w.Logs += w.removeLogs()
	}
}

// mayFree says whether what was removed may be enough, which it may be where it
// is not known what it held.
func mayFree(removed []reclaim.Removal, n eviction.Need) bool {
	unknown := false
	for _, r := range removed {
		n.Bytes -= r.Bytes.Or(0)
		n.Inodes -= r.Inodes.Or(0)
		unknown = unknown || n.Bytes > 0 && !r.Bytes.IsKnown() || n.Inodes > 0 && !r.Inodes.IsKnown()
	}
	return unknown || met(n)
}

// sized sets what a goal still needs, and says whether that is anything, or does
// not count.
func (w *round) sized(g *reclaim.Goal, lacks func(*control.Snapshot) eviction.Need) bool {
	if w.DryRun {
		return true
	}
	if err := w.look(lacks); err != nil {
		w.Error = err
		return false
	}
	g.Need.Bytes, g.Need.Inodes = w.lacked.Bytes, w.lacked.Inodes
	return !met(w.lacked) || !g.Pressure || w.policy.Everything
}

// look sees what the disk lacks now.
func (w *round) look(lacks func(*control.Snapshot) eviction.Need) error {
	s, err := w.glance()
	if err == nil {
		w.lacked = lacks(&s)
	}
	return err
}

func met(n eviction.Need) bool { return n.Bytes <= 0 && n.Inodes <= 0 }

// carryOut removes what was chosen for a need, as long as it is needed. It says
// whether there is more to choose.
func (w *round) carryOut(removals []reclaim.Removal, need eviction.Need, lacks func(*control.Snapshot) eviction.Need) bool {
	if w.DryRun {
		w.Removed = append(w.Removed, removals...)
		return false
	}
	failed, before := len(w.Failed), len(w.Removed)
	for len(removals) > 0 && w.Error == nil && w.ctx.Err() == nil {
		if len(w.Failed) > failed && removals[0].Kind == reclaim.KindSandbox {
			return true // with a sandbox goes what it holds, and that was refused
		}
		n := w.batch(removals)
		batch := removals[:n]
		removals = removals[n:]
		away := false
		for i, err := range w.order(batch) {
			switch {
			case err == nil:
				w.took(batch[i])
			case w.ctx.Err() != nil: // evictd ends: nothing was refused
				return false
			case errors.Is(err, wire.ErrAway) && w.awaits(): // nor was it here
				away = true
			default:
				w.refused(batch[i], err)
			}
		}
		if away {
			return true
		}
		if len(removals) == 0 || batch[0].Why == reclaim.Age || w.insatiable(lacks) {
			continue
		}
		if batch[0].Kind == reclaim.KindImage {
			w.show(w.Removed[before:], need, lacks)
		}
		if w.look(lacks) == nil && met(w.lacked) {
			return false
		}
	}
	return w.ctx.Err() == nil
}

// awaits waits a moment for a runtime that is away, and says whether it may come
// back in time.
func (w *round) awaits() bool {
	if w.away.IsZero() {
		w.away = time.Now()
		if has := w.ports.Runtime.Runtime(); has != nil && !has.Connected {
			w.away = has.Since
		}
	}
	if time.Since(w.away) > comeback {
		return false
	}
	select {
	case <-w.ctx.Done():
		return false
	case <-time.After(showingEvery):
		return true
	}
}

// refused takes up that something was not removed, and why.
func (w *round) refused(r reclaim.Removal, err error) {
	w.tried[r.ID] = true
	w.Failed = append(w.Failed, Failure{r, err})
	if errors.Is(err, errNoAnswer) {
		w.Error = err
	}
}

// took takes up that something was removed, and takes its log away.
func (w *round) took(r reclaim.Removal) {
	w.away = time.Time{}
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

// batch is how many of the removals go at once.
func (w *round) batch(removals []reclaim.Removal) int {
	n := 1
	for n < min(together, len(removals)) && removals[0].Kind != reclaim.KindImage && removals[n].Kind == removals[0].Kind {
		n++
	}
	return n
}

// insatiable says that nothing is enough.
func (w *round) insatiable(lacks func(*control.Snapshot) eviction.Need) bool {
	return lacks == nil || w.policy.Everything && w.Trigger == Pressure
}

// show waits, not for long, until what was removed for a need suffices, if it may:
// runtimes and filesystems may free it a little later.
func (w *round) show(removed []reclaim.Removal, need eviction.Need, lacks func(*control.Snapshot) eviction.Need) {
	if w.insatiable(lacks) || len(removed) == 0 || !mayFree(removed, need) {
		return
	}
	patience, images := showing, removed[len(removed)-1].Kind == reclaim.KindImage
	if images {
		patience = showingImages
	}
	var gained time.Time
	for until := time.Now().Add(patience); time.Now().Before(until); {
		before := w.lacked
		if err := w.look(lacks); err != nil || met(w.lacked) {
			return
		}
		if before.Bytes > 0 && w.lacked.Bytes < before.Bytes || before.Inodes > 0 && w.lacked.Inodes < before.Inodes {
			gained = time.Now()
		}
		if images && !gained.IsZero() && time.Since(gained) >= atRest {
			return
		}
		select {
		case <-w.ctx.Done():
			return
		case <-time.After(showingEvery):
		}
	}
}

// order has the runtime remove a batch and waits for all of it, for as long as
// it may take.
func (w *round) order(batch []reclaim.Removal) []error {
	limit := patience[batch[0].Kind]
	deadline := time.Now().Add(limit)
	answers := make([]chan error, len(batch))
	for i, r := range batch {
		done := make(chan error, 1)
		answers[i] = done
		err := w.ports.Runtime.Order(wire.Order{Kind: orders[r.Kind], Target: r.ID, Deadline: deadline}, func(err error) { done <- err })
		if err != nil {
			done <- err
		}
	}
	timeout := time.NewTimer(limit + time.Second) // what answers late answers with an error first
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

// end tells what the round came to, if it came to anything.
func (w *round) end(lacks func(*control.Snapshot) eviction.Need) {
	w.Ended = time.Now()
	for _, r := range w.Removed {
		w.Expected += r.Bytes.Or(0)
	}
	s, err := w.glance()
	if err != nil || w.DryRun {
		return
	}
	before, after := disk(w.Signal, &w.first.Node), disk(w.Signal, &s.Node)
	w.Freed, w.FreedInodes = gain(before.Available, after.Available), gain(before.InodesFree, after.InodesFree)
	w.Insufficient = lacks != nil && !met(lacks(&s))
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

// gain is what became free; less than nothing where others have used up more.
func gain(before, after stats.Amount) int64 {
	if !before.IsKnown() || !after.IsKnown() {
		return 0
	}
	return after.Or(0) - before.Or(0)
}

// failures are all that could not be removed, together.
func (w *round) failures() error {
	var errs []error
	for _, f := range w.Failed {
		errs = append(errs, fmt.Errorf("remove %v %s: %w", f.Kind, f.ID, f.Err))
	}
	if len(errs) == 0 {
		return w.Error
	}
	return errors.Join(errs...)
}
