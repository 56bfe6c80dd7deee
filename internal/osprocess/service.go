package osprocess

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"time"
	"unicode"

	"github.com/coreos/go-systemd/v22/daemon"
	"golang.org/x/sys/unix"
)

// Service sends datagrams to the service manager (sd_notify(3)). Without a manager it
// sends nothing. Unlike go-systemd's SdNotify it never waits for the manager to read,
// and Heartbeat allocates nothing: the sensing loop uses it.
type Service struct {
	socket int
	to     unix.Sockaddr // nil without a service manager
	every  time.Duration // between heartbeats; zero without a watchdog
	last   time.Time     // last heartbeat
}

// heartbeatsPerInterval is the number of heartbeats within the watchdog's interval.
const heartbeatsPerInterval = 4

var heartbeat = []byte("WATCHDOG=1")

// NewService finds the manager by the environment: NOTIFY_SOCKET, WATCHDOG_USEC
// and WATCHDOG_PID.
func NewService() (*Service, error) {
	path := os.Getenv("NOTIFY_SOCKET")
	if path == "" {
		return &Service{}, nil
	}
	if !strings.HasPrefix(path, "/") && !strings.HasPrefix(path, "@") {
		return nil, fmt.Errorf("NOTIFY_SOCKET %q: expected an absolute path, or one that begins with @", path)
	}
	interval, err := daemon.SdWatchdogEnabled(false)
	if err != nil {
		return nil, fmt.Errorf("WATCHDOG_USEC and WATCHDOG_PID: %w", err)
	}
	socket, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("make a socket to the service manager: %w", err)
	}
	return &Service{socket: socket, to: &unix.SockaddrUnix{Name: path}, every: interval / heartbeatsPerInterval}, nil
}

// Exists says whether there is a service manager.
func (s *Service) Exists() bool { return s.to != nil }

// Notify sends assignments such as READY=1, together. Characters that do not print
// become question marks: a line break would begin another assignment. The error is
// ErrServiceBusy where the manager does not read now.
func (s *Service) Notify(assignments ...string) error {
	if s.to == nil {
		return nil
	}
	safe := make([]string, len(assignments))
	for i, a := range assignments {
		safe[i] = strings.Map(func(r rune) rune {
			if unicode.IsPrint(r) {
				return r
			}
			return '?'
		}, a)
	}
	return s.send([]byte(strings.Join(safe, "\n")))
}

// ErrServiceBusy says that the service manager has more messages than it reads.
var ErrServiceBusy = errors.New("the service manager does not read")

func (s *Service) send(message []byte) error {
	err := unix.Sendto(s.socket, message, unix.MSG_NOSIGNAL, s.to)
	if errors.Is(err, unix.EAGAIN) {
		return ErrServiceBusy
	}
	if err != nil {
		return fmt.Errorf("notify the service manager: %w", err)
	}
	return nil
}

// Heartbeat notifies the watchdog that the calling loop is alive, at most four times
// within the watchdog's interval. A failed notification is repeated by the next call.
// One goroutine may call it.
func (s *Service) Heartbeat(now time.Time) {
	if s.every == 0 || now.Sub(s.last) < s.every {
		return
	}
	if s.send(heartbeat) == nil {
		s.last = now
	}
}

// WatchdogInterval is the interval between heartbeats; zero without a watchdog.
func (s *Service) WatchdogInterval() time.Duration { return s.every }

// Reloading are the assignments that announce a reload, which READY=1 ends
// (systemd.service(5), Type=notify-reload).
func Reloading() string {
	var now unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &now) // fails for unknown clocks only
	return fmt.Sprintf("RELOADING=1\nMONOTONIC_USEC=%d", now.Nano()/int64(time.Microsecond))
}
