package kill

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/evictd/evictd/stats"
)

const (
	// termRounds bounds how often processes forked between the listing and the
	// signal are looked for before the grace period is waited out.
	termRounds = 3
	// killRounds is after how many rounds of SIGKILL in a row that found somebody
	// the pod is frozen for the next.
	killRounds = 2
	// A pod whose killed processes do not end is listed again after a pause
	// that doubles; the end of the last one ends the pause.
	shortestPause = time.Millisecond
	longestPause  = 100 * time.Millisecond
	overduePause  = time.Second
)

// termination is the kill of one pod. Its goroutine owns everything but the time of
// SIGKILL.
type termination struct {
	Victim
	*pidfdSet
	k                 *Killer
	signalled, killed time.Time // first signal, first SIGKILL
	fault             error     // the last one
	restoreCPU        func()    // undoes what hurry did; nil before
	releasing         pendingReleases

	mu        sync.Mutex
	ends      time.Time // of the grace period
	shortened chan struct{}
}

func newTermination(k *Killer, v Victim, ends time.Time) *termination {
	return &termination{Victim: v, pidfdSet: k.takeReadyLocked(v.UID, v.Target), k: k, ends: ends, shortened: make(chan struct{}, 1), releasing: pendingReleases{none: make(chan struct{}, 1)}}
}

// shorten brings the end of the grace period forward, never back.
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
	told, rounds := false, 0
	for pause := shortestPause; ctx.Err() == nil; {
		if len(p.ready) == 0 && p.ended() {
			p.awaitReleases(ctx)
			p.k.removeInFlight(p)
			if p.Ended != nil {
				p.Ended()
			}
			p.report(ctx, Result{Gone: time.Now(), Freed: p.Held.Minus(p.usage())})
			return
		}
		if rounds == killRounds {
			p.freeze()
		}
		struck := p.signalRemaining(unix.SIGKILL)
		p.boost()
		if err := p.failure(); err != nil && !told {
			p.endBoost()
			p.report(ctx, Result{Err: err})
			told = true
		}
		if struck > 0 { // who was forked meanwhile?
			pause = shortestPause
			rounds++
			continue
		}
		rounds = 0
		p.wait(ctx, pause)
		pause = min(2*pause, longestPause)
		if told {
			pause = overduePause
		}
	}
}

// awaitReleases waits until nobody takes back memory of the pod any more.
func (p *termination) awaitReleases(ctx context.Context) {
	enough := time.NewTimer(releaseTimeout)
	defer enough.Stop()
	for p.releasing.count.Load() > 0 {
		select {
		case <-p.releasing.none:
		case <-enough.C:
			return
		case <-ctx.Done():
			return
		}
	}
}

// signalReady sends the first signal to the processes that were prepared, unless they
// are told elsewhere. It opens nothing.
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

// terminate sends SIGTERM and returns when the processes have ended, when the
// grace period has, or when there is nobody to wait for. Children of a process
// that lives on are left to it, for they may be how it shuts down; those that
// outlive all their elders are told themselves.
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
		rings, stop := p.k.alarm(ends)
		p.await(ctx, rings)
		stop()
	}
}

// awaitElsewhere waits while somebody else tells the processes to end. Those that are
// left when that is over are told again.
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

// signalRemaining signals every process that was not signalled in this stage, holds it,
// and counts how many that were. Those that are ready come first: nothing is
// opened before. Then SIGKILL goes to all at once where the kernel can.
func (p *termination) signalRemaining(sig unix.Signal) int {
	struck := p.signalAll(p.ready, sig)
	clear(p.ready)
	pinned, err := p.openMembers(maxHeld)
	p.noteFault(err)
	if errors.Is(err, errOwnProcess) {
		return struck
	}
	if sig == unix.SIGKILL {
		p.noteSignal(sig, p.Target.Kill())
	}
	struck += p.signalAll(pinned, sig)
	if t, ok := p.Target.(thawer); ok {
		p.noteFault(t.Thaw())
	}
	return struck
}

func (p *termination) signalAll(processes map[int]process, sig unix.Signal) int {
	p.pidfdSet.signal(processes, sig, func(err error) { p.noteSignal(sig, err) })
	if sig == unix.SIGKILL {
		p.k.release(processes, &p.releasing)
	}
	return len(processes)
}

// boost lets the killed processes have the processor until they are gone: dying
// takes some, and a throttled pod has none. It does not matter to them that the
// signal came first.
func (p *termination) boost() {
	h, ok := p.Target.(CPUBooster)
	if !ok || p.restoreCPU != nil {
		return
	}
	undo, err := h.BoostCPU()
	if err != nil {
		p.k.log.Warn("a victim may be slow to die: it could not be given the processor", "pod", p.Name, "error", err)
	}
	p.restoreCPU = sync.OnceFunc(undo)
}

func (p *termination) endBoost() {
	if p.restoreCPU != nil {
		p.restoreCPU()
	}
}

// freeze stops the pod's processes until the next strike: those that fork faster
// than they can be listed.
func (p *termination) freeze() {
	if f, ok := p.Target.(freezer); ok {
		p.noteFault(f.Freeze())
	}
}

// ended says whether no process is left. cgroup.procs may not list a process any more
// while its last thread gives its memory back, so those that are held must have exited.
func (p *termination) ended() bool {
	if p.dropExited(); len(p.held) > 0 {
		return false
	}
	populated, err := p.Target.Populated()
	p.noteFault(err)
	return errors.Is(err, fs.ErrNotExist) || err == nil && !populated
}

// wait returns when every held process has ended, at the latest after d; after d
// where none is held.
func (p *termination) wait(ctx context.Context, d time.Duration) {
	enough := make(chan struct{})
	timer := time.AfterFunc(d, func() { close(enough) })
	defer timer.Stop()
	p.await(ctx, enough)
}

// await returns when every held process has ended, or it was enough.
func (p *termination) await(ctx context.Context, enough <-chan struct{}) {
	ended := func(end <-chan struct{}) bool {
		select {
		case <-end:
			return true
		case <-enough:
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

// failure is why the kill counts as failed, nil while it does not.
func (p *termination) failure() error {
	hopeless := p.signalled.IsZero() && p.fault != nil
	if !hopeless && time.Since(p.graceEnds()) < Overdue {
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

// noteFault keeps a fault. What cannot be done here and who is gone are none.
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
	}
}

func (p *termination) report(ctx context.Context, r Result) {
	r.UID, r.Signalled, r.Killed = p.UID, p.signalled, p.killed
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
