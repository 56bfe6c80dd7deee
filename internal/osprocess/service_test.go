package osprocess

import (
	"errors"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/evictd/evictd/internal/require"
)

// manager listens as a service manager does, with a watchdog of so long.
func manager(t *testing.T, watchdog string) (*Service, *net.UnixConn) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "notify")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	require.NoError(t, err)
	t.Cleanup(func() { conn.Close() })
	t.Setenv("NOTIFY_SOCKET", path)
	t.Setenv("WATCHDOG_USEC", watchdog)
	t.Setenv("WATCHDOG_PID", "")
	s, err := NewService()
	require.NoError(t, err)
	return s, conn
}

// received is all that was sent so far, a message a line.
func received(t *testing.T, conn *net.UnixConn) string {
	t.Helper()
	raw, err := conn.SyscallConn()
	require.NoError(t, err)
	var all []string
	require.NoError(t, raw.Control(func(fd uintptr) {
		for message := make([]byte, 4096); ; {
			n, _, err := unix.Recvfrom(int(fd), message, unix.MSG_DONTWAIT)
			if err != nil {
				return
			}
			all = append(all, string(message[:n]))
		}
	}))
	return strings.Join(all, "\n")
}

func TestTheWatchdogIsNotifiedFourTimesWithinItsInterval(t *testing.T) {
	s, conn := manager(t, "10000000")
	begin := time.Unix(1, 0)
	for after := time.Duration(0); after < 10*time.Second; after += 100 * time.Millisecond {
		s.Heartbeat(begin.Add(after))
	}
	if got := strings.Count(received(t, conn), "WATCHDOG=1"); got != 4 {
		t.Errorf("%d beats in 10 s", got)
	}
}

func TestNoHeartbeatWithoutAWatchdog(t *testing.T) {
	s, conn := manager(t, "")
	s.Heartbeat(time.Unix(1, 0))
	require.NoError(t, s.Notify("READY=1", "STATUS=good\nMAINPID=1\x1b"))
	if got := received(t, conn); got != "READY=1\nSTATUS=good?MAINPID=1?" || s.WatchdogInterval() != 0 {
		t.Errorf("received %q", got)
	}
}

func TestAServiceManagerThatDoesNotReadBlocksNothing(t *testing.T) {
	s, conn := manager(t, "1000000")
	var err error
	for range 10_000 { // the queue of datagrams is net.unix.max_dgram_qlen long
		if err = s.Notify("STATUS=again"); err != nil {
			break
		}
	}
	if !errors.Is(err, ErrServiceBusy) {
		t.Fatalf("a full queue: %v", err)
	}
	now := time.Unix(1, 0)
	s.Heartbeat(now)
	received(t, conn)
	s.Heartbeat(now.Add(time.Millisecond))
	if got := received(t, conn); got != "WATCHDOG=1" {
		t.Errorf("the beat that was lost is followed by %q", got)
	}
}

func TestABeatAllocatesNothing(t *testing.T) {
	s, conn := manager(t, "1000000")
	go func() {
		for message := make([]byte, 4096); ; {
			if _, err := conn.Read(message); err != nil {
				return
			}
		}
	}()
	now := time.Unix(1, 0)
	if n := testing.AllocsPerRun(100, func() {
		now = now.Add(time.Second)
		s.Heartbeat(now)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestWithoutAServiceManagerNothingIsSent(t *testing.T) {
	t.Setenv("NOTIFY_SOCKET", "")
	s, err := NewService()
	require.NoError(t, err)
	s.Heartbeat(time.Now())
	if err := s.Notify("READY=1"); err != nil {
		t.Error(err)
	}
}

func TestAnEnvironmentThatMakesNoSenseIsRefused(t *testing.T) {
	for _, c := range []struct{ socket, watchdog, expected string }{
		{"notify", "", "NOTIFY_SOCKET"},
		{"/run/notify", "often", "WATCHDOG_USEC"},
	} {
		t.Setenv("NOTIFY_SOCKET", c.socket)
		t.Setenv("WATCHDOG_USEC", c.watchdog)
		if _, err := NewService(); err == nil || !strings.Contains(err.Error(), c.expected) {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

func TestAReloadIsDatedByTheMonotonicClock(t *testing.T) {
	first, second := Reloading(), Reloading()
	if !strings.HasPrefix(first, "RELOADING=1\nMONOTONIC_USEC=") || len(first) > len(second) || len(first) == len(second) && first > second {
		t.Errorf("%q, then %q", first, second)
	}
}
