package cgroup

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/evictd/evictd/internal/require"
	"github.com/evictd/evictd/stats"
)

func newPoller(t testing.TB) *Poller {
	t.Helper()
	b, err := NewPoller()
	require.NoError(t, err)
	t.Cleanup(b.Close)
	return b
}

// awaitEvents waits for an event, and returns the set of those that are ready.
func awaitEvents(t *testing.T, b *Poller) uint64 {
	t.Helper()
	var ready uint64
	eventually(t, "a notice", func() bool {
		ready = b.Wait(time.Second)
		return ready != 0
	})
	return ready
}

func TestAPollerWakesOnceForEachWake(t *testing.T) {
	b := newPoller(t)
	for _, wait := range []func(time.Duration) uint64{b.Wait, b.Block} {
		testWakes(t, b, wait)
	}
}

func testWakes(t *testing.T, b *Poller, wait func(time.Duration) uint64) {
	b.Wake()
	for _, c := range []struct {
		name     string
		d, least time.Duration
	}{
		{"Wake before Wait", time.Hour, 0},
		{"no Wake", 20 * time.Millisecond, 20 * time.Millisecond},
		{"no Wake for long", longWait + time.Millisecond, longWait},
		{"no Wake, and no time to wait", -time.Second, 0},
	} {
		began := time.Now()
		if ready := wait(c.d); ready != 0 {
			t.Errorf("%s: notices %b", c.name, ready)
		}
		if waited := time.Since(began); waited < c.least {
			t.Errorf("%s: waited %v", c.name, waited)
		}
	}
	go b.Wake()
	if ready := wait(time.Hour); ready != 0 {
		t.Errorf("Wake of another goroutine: ready %b", ready)
	}
}

func TestASignalEndsNoWait(t *testing.T) {
	b := newPoller(t)
	thread, waited := make(chan int), make(chan time.Duration)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		thread <- unix.Gettid()
		began := time.Now()
		b.Block(200 * time.Millisecond)
		waited <- time.Since(began)
	}()
	id := <-thread
	for {
		select {
		case d := <-waited:
			if d < 200*time.Millisecond {
				t.Errorf("waited %v", d)
			}
			return
		case <-time.After(5 * time.Millisecond):
			require.NoError(t, unix.Tgkill(os.Getpid(), id, unix.SIGURG)) // as Go's runtime does, to preempt it
		}
	}
}

func TestWaitingAllocatesNothing(t *testing.T) {
	if raceDetector {
		t.Skip("skipped: needs a build without the race detector, which allocates")
	}
	b := newPoller(t)
	if n := testing.AllocsPerRun(100, func() { b.Wake(); b.Wait(time.Second); b.Wake(); b.Block(time.Second) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestTheKernelNotifiesOfUsageAtAMarkAndOfARemovedGroup(t *testing.T) {
	t.Parallel()
	s, group := realGroup(t, bounded())
	if s.Version() != V1 {
		t.Skip("skipped: needs cgroup v1, which has usage thresholds")
	}
	sub := group + "/sub"
	require.NoError(t, s.Create(sub, bounded()))
	g, err := s.Open(sub)
	require.NoError(t, err)
	defer g.Close()
	n, err := g.NotifyUsage(32 << 20)
	require.NoError(t, err)
	defer n.Close()
	b := newPoller(t)
	require.NoError(t, b.Add(n, 5))
	if ready := b.Wait(0); ready != 0 {
		t.Fatalf("ready %b before anything happened", ready)
	}
	m := join(t, s, sub)
	m.do(t, "x=$(head -c 48000000 /dev/zero | tr '\\0' x)")
	if ready := awaitEvents(t, b); ready != 1<<5 {
		t.Errorf("ready %b", ready)
	}
	if usage, err := g.Usage(); err != nil || usage.Or(0) < 32<<20 {
		t.Errorf("the group uses %v, %v", usage, err)
	}
	m.end()
	for b.Wait(0) != 0 { // it fell below the mark
	}
	require.NoError(t, s.Delete(sub))
	if ready := awaitEvents(t, b); ready != 1<<5 {
		t.Errorf("ready %b", ready)
	}
	if _, err := g.Usage(); err != ErrGone {
		t.Errorf("reading a group whose removal was reported: %v", err)
	}
}

// psi is what triggers on stalls need.
const psi = "Linux 6.5 with pressure stall information (CONFIG_PSI=y, psi=1) and a cgroup v2 hierarchy"

func TestTheKernelNotifiesOfMemoryAtItsLimitAndOfStalls(t *testing.T) {
	t.Parallel()
	s, group := realGroup(t, Limits{Memory: stats.Known(16 << 20), PIDs: stats.Known(64)})
	g := open(t, s, group)
	m := join(t, s, group)
	holes := require.FileOnDisk(t, 32<<20) // written, its page cache would be dirty, and the group out of memory on a slow disk
	for _, notice := range []struct {
		name, needs string
		open        func() (*Event, error)
		times       int // nothing is read between
	}{
		{"memory.events", "cgroup v2", g.NotifyEvents, 2},
		{"memory.pressure", psi, func() (*Event, error) { return g.NotifyStall(Some, time.Millisecond, 2*time.Second) }, 1},
		{"memory.pressure of all tasks", psi, func() (*Event, error) { return g.NotifyStall(Full, time.Millisecond, 2*time.Second) }, 1},
		{"memory.pressure, at once", psi + " and CAP_SYS_RESOURCE", func() (*Event, error) { return g.NotifyStall(Some, time.Millisecond, 500*time.Millisecond) }, 2},
	} {
		t.Run(notice.name, func(t *testing.T) {
			n, err := notice.open()
			if errors.Is(err, errors.ErrUnsupported) || errors.Is(err, unix.EPERM) || errors.Is(err, unix.EINVAL) {
				t.Skip("skipped: needs "+notice.needs+":", err)
			}
			require.NoError(t, err)
			defer n.Close()
			b := newPoller(t)
			require.NoError(t, b.Add(n, 7))
			if ready := b.Wait(0); ready != 0 {
				t.Error("it is ready before any event")
			}
			goes := t.TempDir() + "/goes"
			for range notice.times {
				require.NoError(t, os.WriteFile(goes, nil, 0o600))
				fmt.Fprintf(m.stdin, "while [ -e %s ]; do cat %s >/dev/null; done\n", goes, holes)
				if ready := awaitEvents(t, b); ready != 1<<7 {
					t.Errorf("ready %b", ready)
				}
				_ = os.Remove(goes)
				m.do(t, ":")
			}
		})
	}
}

// rule: M.68
func TestALimitOfAGroupBelowIsNotReported(t *testing.T) {
	t.Parallel()
	s, group := realGroup(t, bounded())
	sub := group + "/sub"
	require.NoError(t, s.Create(sub, Limits{Memory: stats.Known(16 << 20), PIDs: stats.Known(64)}))
	b := newPoller(t)
	const above, below = 1, 2
	for id, path := range map[int]string{above: group, below: sub} {
		n, err := open(t, s, path).NotifyEvents()
		if errors.Is(err, errors.ErrUnsupported) {
			t.Skip("skipped: needs cgroup v2, which has memory.events.local")
		}
		require.NoError(t, err)
		defer n.Close()
		require.NoError(t, b.Add(n, id))
	}
	m := join(t, s, sub)
	holes := require.FileOnDisk(t, 32<<20)
	for range 3 {
		m.do(t, "cat "+holes+" >/dev/null")
		if ready := awaitEvents(t, b); ready != 1<<below {
			t.Errorf("ready %b, want %b alone", ready, 1<<below)
		}
	}
}

// TestAGroupThatReachesMemoryHighIsReported has page cache of the group reach one value after the
// other.
//
// rule: M.91
func TestAGroupThatReachesMemoryHighIsReported(t *testing.T) {
	t.Parallel()
	s, group := realGroup(t, bounded())
	high, ok := s.MemoryHighFile(group)
	if !ok {
		t.Skip("skipped: needs cgroup v2, which has memory.high")
	}
	n, err := open(t, s, group).NotifyEvents()
	require.NoError(t, err)
	defer n.Close()
	b := newPoller(t)
	require.NoError(t, b.Add(n, 3))
	m := join(t, s, group)
	file := t.TempDir() + "/file"
	const step = 16 << 20
	for value := step; value <= 3*step; value += step {
		require.NoError(t, os.WriteFile(high, []byte(strconv.Itoa(value)), 0o644))
		var ready uint64
		eventually(t, "an event", func() bool { // the kernel may have reclaimed more than was above the value before
			m.do(t, fmt.Sprintf("head -c %d /dev/zero >>%s", step/4, file))
			ready = b.Wait(100 * time.Millisecond)
			return ready != 0
		})
		if ready != 1<<3 {
			t.Errorf("ready %b", ready)
		}
	}
}

func TestAStallIsReportedInWindowsOfTwoSecondsWithoutPrivilege(t *testing.T) {
	s, group := realGroup(t, bounded())
	g, err := s.Open(group)
	require.NoError(t, err)
	defer g.Close()
	n, err := g.NotifyStall(Some, 100*time.Millisecond, 2*time.Second)
	if errors.Is(err, errors.ErrUnsupported) || errors.Is(err, unix.EPERM) || errors.Is(err, unix.EINVAL) {
		t.Skip("skipped: needs "+psi+":", err)
	}
	require.NoError(t, err)
	defer n.Close()
	b := newPoller(t)
	require.NoError(t, b.Add(n, 0))
	if ready := b.Wait(0); ready != 0 {
		t.Errorf("ready %b of a group that is empty", ready)
	}
	if _, err := g.NotifyStall(Some, 100*time.Millisecond, 3500*time.Microsecond); !errors.Is(err, unix.EINVAL) {
		t.Errorf("a window of 3.5 ms: %v", err)
	}
}

func TestNoticesThatAVersionDoesNotHaveAreUnsupported(t *testing.T) {
	v1 := &Group{version: V1}
	v1.dirs[unified] = -1
	for name, open := range map[string]func() (*Event, error){
		"usage on v2":                        func() (*Event, error) { return (&Group{version: V2}).NotifyUsage(1) },
		"events on v1":                       v1.NotifyEvents,
		"events at the top":                  (&Group{version: V2, top: true}).NotifyEvents,
		"stalls without cgroup v2 beside it": func() (*Event, error) { return v1.NotifyStall(Some, time.Second, 2*time.Second) },
	} {
		if _, err := open(); !errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
