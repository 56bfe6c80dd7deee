package kill

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/evictd/evictd/stats"
)

const (
	// termRounds bounds the SIGTERM rounds for processes forked between listing and
	// signal.
	termRounds = 3
	// After killRounds SIGKILL rounds in a row that found new processes the pod is
	// frozen for the next round.
	killRounds = 2
	// After SIGKILL the pod is listed again after a pause that doubles; it ends early
	// when all open processes have exited.
	shortestPause = time.Millisecond
	longestPause  = 100 * time.Millisecond
	overduePause  = time.Second
	// freeTimeout bounds how long the result of a pod waits for the kernel to free its page cache, which it may have
	// to write to a disk first.
	freeTimeout = time.Second
)

// termination is the kill of one pod. Its goroutine owns all fields except sigkilled and those
// behind mu.
type termination struct {
	Victim
	*pidfdSet
	k                 *Killer
	signalled, killed time.Time   // first signal, first SIGKILL
	sigkilled         atomic.Bool // killed is set
	fault             error       // the last one
	restoreCPU        func()      // undoes boost; nil before it
	releasing         pendingReleases
	finished          bool // does not count toward the bound; of Killer.mu

	mu        sync.Mutex
	ends      time.Time // of the grace period
	shortened chan struct{}
}

func newTermination(k *Killer) *termination {
	return &termination{k: k, shortened: make(chan struct{}, 1), releasing: pendingReleases{none: make(chan struct{}, 1)}}
}

// shorten sets an earlier end of the grace period; a later one is ignored.
func (p *termination) shorten(ends time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !ends.Before(p.ends) {
		return
	}
	p.ends = ends
	select {
	case p.shortened <- struct{}{}:
	default:
	}
}

func (p *termination) graceEnds() time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.ends
}

func (p *termination) run(ctx context.Context) {
	if !p.Held.IsKnown() {
		p.Held = p.usage()
	}
	p.terminate(ctx)
	p.signalAgain()
	defer p.closeAll()
	defer p.endBoost()
	reported, rounds := false, 0
	for pause := shortestPause; ctx.Err() == nil; {
		if len(p.ready) == 0 && p.ended() && (!p.forbidStarts() || p.ended()) {
			p.awaitReleases(ctx)
			gone := time.Now()
			if p.Ended != nil {
				p.Ended()
			}
			done := p.freeMemory(ctx)
			p.k.removeInFlight(p)
			p.report(ctx, Result{Gone: gone, Freed: p.Held.Minus(p.usage())})
			done()
			return
		}
		if rounds == killRounds {
			p.freeze()
		}
		n := p.signalRemaining(unix.SIGKILL)
		p.boost()
		if err := p.failure(); err != nil && !reported {
			p.endBoost()
			p.k.finish(p)
			p.report(ctx, Result{Err: err})
			reported = true
		}
		if n > 0 { // look for processes forked meanwhile
			pause = shortestPause
			rounds++
			continue
		}
		rounds = 0
		p.wait(ctx, pause)
		pause = min(2*pause, longestPause)
		if reported {
			pause = overduePause
		}
	}
}

// awaitReleases waits until no process_mrelease(2) call of the pod runs, at most
// releaseTimeout.
func (p *termination) awaitReleases(ctx context.Context) {
	timer := time.NewTimer(releaseTimeout)
	defer timer.Stop()
	for p.releasing.count.Load() > 0 {
		select {
		case <-p.releasing.none:
		case <-timer.C:
			return
		case <-ctx.Done():
			return
		}
	}
}

// signalReady sends the first signal to the prepared processes, unless the container
// runtime stops them. It opens nothing, and allocates nothing before the signals.
func (p *termination) signalReady() {
	if p.Elsewhere != nil {
		return
	}
	if !p.Held.IsKnown() {
		p.Held = p.usage()
	}
	sig := unix.SIGTERM
	if p.Grace <= 0 {
		sig = unix.SIGKILL
	}
	p.signalAll(p.ready, sig)
	clear(p.ready)
}

// terminate sends SIGTERM and returns when the processes have exited or the grace
// period has ended. Children of a running signalled process get no SIGTERM of their
// own, as it may use them for its shutdown; they get it once all signalled processes
// have exited.
func (p *termination) terminate(ctx context.Context) {
	p.awaitElsewhere(ctx)
	for ctx.Err() == nil {
		ends := p.graceEnds()
		if time.Until(ends) <= 0 {
			return
		}
		for range termRounds {
			if p.signalRemaining(unix.SIGTERM) == 0 {
				break
			}
		}
		if len(p.held) == 0 || p.signalled.IsZero() {
			return
		}
		expired, stop := p.k.alarm(ends)
		p.await(ctx, expired)
		stop()
	}
}

// awaitElsewhere waits while the container runtime stops the processes. SIGTERM follows
// for those that are left.
func (p *termination) awaitElsewhere(ctx context.Context) {
	if p.Elsewhere == nil {
		return
	}
	p.signalled = time.Now()
	maps.Copy(p.held, p.ready)
	clear(p.ready)
	for over := false; !over && ctx.Err() == nil && time.Until(p.graceEnds()) > 0; {
		pinned, err := p.openMembers(maxHeld)
		p.noteFault(err)
		maps.Copy(p.held, pinned)
		if len(p.held) == 0 {
			break
		}
		p.wait(ctx, time.Until(p.graceEnds()))
		select {
		case <-p.Elsewhere:
			over = true
		default:
		}
	}
	p.closeAll()
	p.Elsewhere = nil
}

// signalRemaining signals every process that was not signalled in this stage, keeps its
// pidfd open and returns their number. Prepared processes are first, before anything is
// opened. For SIGKILL, cgroup.kill follows where it exists, once some pidfds are open that report
// the end of their processes.
func (p *termination) signalRemaining(sig unix.Signal) int {
	n := p.signalAll(p.ready, sig)
	clear(p.ready)
	room := maxHeld
	if sig == unix.SIGKILL {
		room = min(maxHeld, len(p.held)+heldFirst)
	}
	pinned, err := p.openMembers(room)
	p.noteFault(err)
	if errors.Is(err, errOwnProcess) {
		return n
	}
	if sig == unix.SIGKILL {
		p.noteSignal(sig, p.Target.Kill())
	}
	n += p.signalAll(pinned, sig)
	if sig == unix.SIGKILL && len(pinned) == heldFirst {
		more, err := p.openMembers(maxHeld)
		p.noteFault(err)
		n += p.signalAll(more, sig)
	}
	if t, ok := p.Target.(thawer); ok {
		p.noteFault(t.Thaw())
	}
	return n
}

func (p *termination) signalAll(processes map[int]process, sig unix.Signal) int {
	p.pidfdSet.signal(processes, sig, func(err error) { p.noteSignal(sig, err) })
	if sig == unix.SIGKILL {
		p.k.release(processes, &p.releasing)
	}
	return len(processes)
}

// boost raises the CPU weight of the killed processes and lifts their quota until they
// are gone: exiting takes CPU time, and a throttled process has none. A pending SIGKILL
// is not affected.
func (p *termination) boost() {
	h, ok := p.Target.(CPUBooster)
	if !ok || p.restoreCPU != nil {
		return
	}
	undo, err := h.BoostCPU()
	if err != nil {
		p.k.log.Warn("could not raise the CPU weight of a victim, which may exit slowly", "pod", p.Name, "error", err)
	}
	p.restoreCPU = sync.OnceFunc(undo)
}

func (p *termination) endBoost() {
	if p.restoreCPU != nil {
		p.restoreCPU()
	}
}

// freeze stops the processes until the next SIGKILL round, for pods that fork faster
// than they are listed.
func (p *termination) freeze() {
	if f, ok := p.Target.(freezer); ok {
		p.noteFault(f.Freeze())
	}
}

// ended says whether no process is left. cgroup.procs may no longer list a process
// while its last thread frees its memory, so open pidfds must report the exit too.
func (p *termination) ended() bool {
	if p.dropExited(); len(p.held) > 0 {
		return false
	}
	return hasEnded(p.Target, p.noteFault)
}

// hasEnded says whether a target has no process; note gets what went wrong.
func hasEnded(target Target, note func(error)) bool {
	populated, err := target.Populated()
	note(err)
	return errors.Is(err, fs.ErrNotExist) || err == nil && !populated
}

// freeMemory has the kernel free what the pod holds without a process, and returns when that is done, after
// freeTimeout at the latest. done waits for the rest.
func (p *termination) freeMemory(ctx context.Context) (done func()) {
	f, ok := p.Target.(memoryFreer)
	if !ok {
		return func() {}
	}
	freed := make(chan struct{})
	go func() {
		defer close(freed)
		if err := f.FreeMemory(ctx); err != nil && !errors.Is(err, errors.ErrUnsupported) && !errors.Is(err, fs.ErrNotExist) {
			p.k.log.Warn("page cache of a pod that has ended could not be freed", "pod", p.Name, "error", err)
		}
	}()
	timer := time.NewTimer(freeTimeout)
	defer timer.Stop()
	select {
	case <-freed:
	case <-timer.C:
	case <-ctx.Done():
	}
	return func() { <-freed }
}

// forbidStarts says whether processes could be started in the pod before the call, and cannot any
// more.
func (p *termination) forbidStarts() bool {
	f, ok := p.Target.(startForbidder)
	return ok && f.ForbidStarts()
}

// wait returns when all open processes have exited, or after d.
func (p *termination) wait(ctx context.Context, d time.Duration) {
	timeout := make(chan struct{})
	timer := time.AfterFunc(d, func() { close(timeout) })
	defer timer.Stop()
	p.await(ctx, timeout)
}

// await returns when all open processes have exited, or timeout is closed, or the grace
// period was shortened.
func (p *termination) await(ctx context.Context, timeout <-chan struct{}) {
	ended := func(end <-chan struct{}) bool {
		select {
		case <-end:
			return true
		case <-timeout:
		case <-p.shortened:
		case <-p.Elsewhere:
		case <-ctx.Done():
		}
		return false
	}
	if len(p.held) == 0 {
		ended(nil)
		return
	}
	for pid, process := range p.held {
		if !ended(process.gone()) {
			return
		}
		drop(p.held, pid)
	}
}

// failure is the reason why the kill counts as failed; nil while it does not.
func (p *termination) failure() error {
	unsignalled := p.signalled.IsZero() && p.fault != nil
	if !unsignalled && time.Since(p.graceEnds()) < Overdue {
		return nil
	}
	reason := ErrPopulated
	if p.signalled.IsZero() {
		reason = ErrNotSignalled
	}
	if p.fault != nil {
		return fmt.Errorf("kill pod %s: %w: %w", p.Name, reason, p.fault)
	}
	return fmt.Errorf("kill pod %s: %w", p.Name, reason)
}

// noteFault keeps the last fault. An unsupported call and a process or group that is
// gone are no faults.
func (p *termination) noteFault(err error) {
	for _, none := range []error{errors.ErrUnsupported, fs.ErrNotExist, os.ErrProcessDone} {
		if errors.Is(err, none) {
			return
		}
	}
	if err != nil {
		p.fault = err
	}
}

func (p *termination) noteSignal(sig unix.Signal, err error) {
	p.noteFault(err)
	if err != nil {
		return
	}
	if p.signalled.IsZero() {
		p.signalled = time.Now()
	}
	if sig == unix.SIGKILL && p.killed.IsZero() {
		p.killed = time.Now()
		p.sigkilled.Store(true)
	}
}

func (p *termination) report(ctx context.Context, r Result) {
	r.UID, r.Container, r.Signalled, r.Killed = p.UID, p.Container, p.signalled, p.killed
	select {
	case p.k.results <- r:
	case <-ctx.Done():
	}
}

func (p *termination) usage() stats.Amount {
	if p.Usage == nil {
		return stats.Amount{}
	}
	return p.Usage()
}
