package kill

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/evictd/evictd/stats"
)

const (
	// maxHeld bounds the processes of a pod that are held at a time. Those
	// beyond follow as the first ones end.
	maxHeld = 4096
	// termRounds bounds how often processes forked between the listing and the
	// signal are looked for before the grace period is waited out.
	termRounds = 3
	// A pod whose killed processes do not end is listed again after a pause
	// that doubles; the end of the last one ends the pause.
	shortestPause = time.Millisecond
	longestPause  = 100 * time.Millisecond
	overduePause  = time.Second
)

var errOwnProcess = errors.New("our own process is among them")

// pursuit is the kill of one pod. Its goroutine owns everything but the time of
// SIGKILL.
type pursuit struct {
	Victim
	k         *Killer
	held      map[int]process // signalled in this stage and not seen to end
	signalled time.Time
	fault     error // the last one

	mu     sync.Mutex
	ends   time.Time // of the grace period
	sooner chan struct{}
}

func newPursuit(k *Killer, v Victim, ends time.Time) *pursuit {
	return &pursuit{Victim: v, k: k, held: map[int]process{}, ends: ends, sooner: make(chan struct{}, 1)}
}

// shorten brings the end of the grace period forward, never back.
func (p *pursuit) shorten(ends time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !ends.Before(p.ends) {
		return
	}
	p.ends = ends
	select {
	case p.sooner <- struct{}{}:
	default:
	}
}

func (p *pursuit) graceEnds() time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.ends
}

func (p *pursuit) run(ctx context.Context) {
	before := p.usage()
	p.terminate(ctx)
	p.letGo()
	defer p.letGo()
	told := false
	for pause := shortestPause; ctx.Err() == nil; {
		if p.over() {
			p.k.settle(p)
			if p.Ended != nil {
				p.Ended()
			}
			p.tell(ctx, Result{Gone: time.Now(), Freed: before.Minus(p.usage())})
			return
		}
		struck := p.strike(unix.SIGKILL)
		if err := p.failure(); err != nil && !told {
			p.tell(ctx, Result{Err: err})
			told = true
		}
		if struck > 0 { // who was forked meanwhile?
			pause = shortestPause
			continue
		}
		p.wait(ctx, pause)
		pause = min(2*pause, longestPause)
		if told {
			pause = overduePause
		}
	}
}

// terminate sends SIGTERM and returns when the processes have ended, when the
// grace period has, or when there is nobody to wait for. Children of a process
// that lives on are left to it, for they may be how it shuts down; those that
// outlive all their elders are told themselves.
func (p *pursuit) terminate(ctx context.Context) {
	p.attend(ctx)
	for ctx.Err() == nil {
		left := time.Until(p.graceEnds())
		if left <= 0 {
			return
		}
		for range termRounds {
			if p.strike(unix.SIGTERM) == 0 {
				break
			}
		}
		if len(p.held) == 0 || p.signalled.IsZero() {
			return
		}
		p.wait(ctx, left)
	}
}

// attend waits while somebody else tells the processes to end. Those that are
// left when that is over are told again.
func (p *pursuit) attend(ctx context.Context) {
	if p.Elsewhere == nil {
		return
	}
	p.signalled = time.Now()
	for over := false; !over && ctx.Err() == nil && time.Until(p.graceEnds()) > 0; {
		pinned, err := p.pin()
		p.note(err)
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
	p.letGo()
	p.Elsewhere = nil
}

// strike signals every process not held yet, holds it, and counts how many that
// were. SIGKILL goes to all at once first where the kernel can.
func (p *pursuit) strike(sig unix.Signal) int {
	pinned, err := p.pin()
	p.note(err)
	if errors.Is(err, errOwnProcess) {
		return 0
	}
	if sig == unix.SIGKILL {
		p.noteSignal(p.Target.Kill())
	}
	for pid, process := range pinned {
		p.held[pid] = process
		p.noteSignal(process.signal(sig))
	}
	if t, ok := p.Target.(thawer); ok {
		p.note(t.Thaw())
	}
	if sig == unix.SIGKILL {
		p.k.release(pinned)
	}
	return len(pinned)
}

// pin opens the processes of the pod that are not held yet. An id may have gone
// to a stranger between listing and opening; but a pidfd stays with one process
// for good, so where the id is listed again now, either the pidfd is that of a
// member, or its process has ended and takes no signal.
func (p *pursuit) pin() (map[int]process, error) {
	for pid, process := range p.held {
		if process.exited() {
			p.drop(pid)
		}
	}
	pids, err := p.list()
	if err != nil {
		return nil, err
	}
	var fault error
	opened := map[int]process{}
	for _, pid := range pids {
		if p.held[pid] != nil {
			continue
		}
		if len(p.held)+len(opened) == maxHeld {
			break
		}
		process, err := p.k.open(pid)
		switch {
		case err == nil:
			opened[pid] = process
		case !errors.Is(err, os.ErrProcessDone):
			fault = err
		}
	}
	if len(opened) == 0 {
		return nil, fault
	}
	members, err := p.list()
	pinned := make(map[int]process, len(opened))
	for _, pid := range members {
		if process := opened[pid]; process != nil {
			pinned[pid] = process
			delete(opened, pid)
		}
	}
	for _, stranger := range opened {
		stranger.close()
	}
	return pinned, errors.Join(fault, err)
}

// list never shows a pod that would take us along.
func (p *pursuit) list() ([]int, error) {
	pids, err := p.Target.AppendProcesses(nil)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, err
	case slices.Contains(pids, os.Getpid()):
		return nil, errOwnProcess
	}
	return pids, nil
}

// over says whether no process is left.
func (p *pursuit) over() bool {
	populated, err := p.Target.Populated()
	p.note(err)
	return errors.Is(err, fs.ErrNotExist) || err == nil && !populated
}

// wait returns when every held process has ended, at the latest after d; after d
// where none is held.
func (p *pursuit) wait(ctx context.Context, d time.Duration) {
	enough := time.NewTimer(d)
	defer enough.Stop()
	await := func(ended <-chan struct{}) bool {
		select {
		case <-ended:
			return true
		case <-enough.C:
		case <-p.sooner:
		case <-p.Elsewhere:
		case <-ctx.Done():
		}
		return false
	}
	if len(p.held) == 0 {
		await(nil)
		return
	}
	for pid, process := range p.held {
		if !await(process.gone()) {
			return
		}
		p.drop(pid)
	}
}

// failure is why the kill counts as failed, nil while it does not.
func (p *pursuit) failure() error {
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

// note keeps a fault. What cannot be done here and who is gone are none.
func (p *pursuit) note(err error) {
	for _, none := range []error{errors.ErrUnsupported, fs.ErrNotExist, os.ErrProcessDone} {
		if errors.Is(err, none) {
			return
		}
	}
	if err != nil {
		p.fault = err
	}
}

func (p *pursuit) noteSignal(err error) {
	p.note(err)
	if err == nil && p.signalled.IsZero() {
		p.signalled = time.Now()
	}
}

func (p *pursuit) tell(ctx context.Context, r Result) {
	r.UID, r.Signalled = p.UID, p.signalled
	select {
	case p.k.results <- r:
	case <-ctx.Done():
	}
}

func (p *pursuit) usage() stats.Amount {
	if p.Usage == nil {
		return stats.Amount{}
	}
	return p.Usage()
}

func (p *pursuit) drop(pid int) {
	p.held[pid].close()
	delete(p.held, pid)
}

func (p *pursuit) letGo() {
	for pid := range p.held {
		p.drop(pid)
	}
}
