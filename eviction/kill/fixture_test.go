package kill

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/evictd/evictd/internal/require"
)

// scripted is a Target that answers each listing with the next of its lists, and
// with the last one from then on.
type scripted struct {
	mu        sync.Mutex
	lists     [][]int
	populated bool
	killError error
	listError error
	kills     int
}

func (s *scripted) AppendProcesses(pids []int) ([]int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.lists) == 0 || s.listError != nil {
		return pids, s.listError
	}
	pids = append(pids, s.lists[0]...)
	if len(s.lists) > 1 {
		s.lists = s.lists[1:]
	}
	return pids, nil
}

func (s *scripted) Kill() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.kills++
	return s.killError
}

func (s *scripted) Populated() (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.populated, nil
}

func (s *scripted) empty() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.populated, s.lists = false, nil
}

func (s *scripted) killed() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.kills
}

func sorted(pids []int) []int {
	slices.Sort(pids)
	return pids
}

// fakePod is a Target of fake processes, each with the signals it dies of.
type fakePod struct {
	mu        sync.Mutex
	processes map[int]*fakeProcess
	listed    int
}

type fakeProcess struct {
	pod    *fakePod
	pid    int
	diesOf []unix.Signal
	refuse error
	got    []unix.Signal
	ended  chan struct{}
	closed atomic.Int32
	// signalled is called at each signal, under the pod's lock.
	signalled func()
}

func newFakePod(k *Killer, processes ...*fakeProcess) *fakePod {
	pod := &fakePod{processes: map[int]*fakeProcess{}}
	for i, p := range processes {
		p.pod, p.pid, p.ended = pod, 1<<30+i, make(chan struct{})
		pod.processes[p.pid] = p
	}
	k.open = pod.open
	return pod
}

func (f *fakePod) AppendProcesses(pids []int) ([]int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.listed++
	for pid := range f.processes {
		pids = append(pids, pid)
	}
	return pids, nil
}

func (f *fakePod) Kill() error { return errors.ErrUnsupported }

func (f *fakePod) Populated() (bool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.processes) > 0, nil
}

func (f *fakePod) open(pid int) (process, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if p := f.processes[pid]; p != nil {
		return p, nil
	}
	return nil, os.ErrProcessDone
}

func (p *fakeProcess) signal(sig unix.Signal) error {
	p.pod.mu.Lock()
	defer p.pod.mu.Unlock()
	if p.refuse != nil {
		return p.refuse
	}
	p.got = append(p.got, sig)
	if p.signalled != nil {
		p.signalled()
	}
	if slices.Contains(p.diesOf, sig) {
		p.end()
	}
	return nil
}

func (p *fakeProcess) end() {
	if p.pod.processes[p.pid] == p {
		delete(p.pod.processes, p.pid)
		close(p.ended)
	}
}

func (p *fakeProcess) endAfter(d time.Duration) {
	time.AfterFunc(d, func() {
		p.pod.mu.Lock()
		defer p.pod.mu.Unlock()
		p.end()
	})
}

func (p *fakeProcess) release() error        { return unix.EINVAL }
func (p *fakeProcess) gone() <-chan struct{} { return p.ended }
func (p *fakeProcess) close()                { p.closed.Add(1) }
func (p *fakeProcess) exited() bool {
	select {
	case <-p.ended:
		return true
	default:
		return false
	}
}

// inBubble runs a Killer in simulated time; body makes the fake pods, for their
// channels must be of the bubble.
func inBubble(t *testing.T, cfg Config, body func(t *testing.T, k *Killer)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		k := New(cfg, slog.New(slog.DiscardHandler))
		k.alarm = simulated
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- k.Run(ctx) }()
		body(t, k)
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("Run returned %v", err)
		}
		if _, open := <-k.Results(); open {
			t.Error("a result is left, or the results are open still")
		}
		if err := k.Kill(Victim{}); !errors.Is(err, ErrStopped) {
			t.Errorf("kill after the end: %v, want %v", err, ErrStopped)
		}
	})
}

// simulated is alarm in the time of a bubble.
func simulated(at time.Time) (rings <-chan struct{}, stop func()) {
	ringing := make(chan struct{})
	t := time.AfterFunc(time.Until(at), func() { close(ringing) })
	return ringing, func() { t.Stop() }
}

func start(t *testing.T, k *Killer, v Victim) time.Time {
	t.Helper()
	require.NoError(t, k.Kill(v))
	return time.Now()
}

// wantAfter takes the next result and checks how long after the start it came.
func wantAfter(t *testing.T, k *Killer, since time.Time, least, most time.Duration) Result {
	t.Helper()
	r := <-k.Results()
	if took := time.Since(since); took < least || took > most {
		t.Errorf("result after %v, want between %v and %v: %+v", took, least, most, r)
	}
	return r
}
