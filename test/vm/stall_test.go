package vm_test

import (
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/evictd/evictd/internal/wait"
)

// impatience is with machines that were stopped.
var impatience = patience{all: time.Hour, silent: time.Second, answer: time.Second, apart: time.Second}

// TestVirtualMachineThatHangs has machines whose kernels wait for a disk that does not
// appear.
func TestVirtualMachineThatHangs(t *testing.T) {
	m := newMachine(t, "make test-all PARTS=vm")
	for name, c := range map[string]struct {
		stop     func(*emulator)
		answered bool
		shown    []string // by the record or the console
		times    int
	}{
		"a kernel that waits": {
			stop: func(e *emulator) {
				e.await(time.Hour, func() bool { return strings.Contains(string(e.printed(0)), "Waiting for root device") })
			},
			answered: true, shown: []string{"NMI backtrace for cpu"}, times: 1,
		},
		"an emulator whose processors are stopped": {
			stop:  func(e *emulator) { e.command("stop") },
			shown: []string{"CPU#1", "the host's load"}, times: 2,
		},
		"an emulator that is stopped": {
			stop:  func(e *emulator) { _ = e.Signal(syscall.SIGSTOP) },
			shown: []string{"info registers -a: the monitor does not answer", "the host's load"}, times: 2,
		},
	} {
		t.Run(name, func(t *testing.T) {
			e := emulate(t, filepath.Join(t.TempDir(), "console"), hardware{
				kernel: filepath.Join(m.image, "kernel"), arguments: "loglevel=7 root=/dev/absent rootwait",
			})
			c.stop(e)
			p := impatience
			if c.answered {
				p.answer = wait.Limit
			}
			s := e.watch(p)
			if e.Running() {
				t.Error("the machine has not been ended")
			}
			if s == nil {
				t.Fatalf("the machine ended by itself: %s\n%s", e.complaints.String(), e.printed(0))
			}
			shown := s.record + string(e.printed(0))
			t.Logf("%s; record and console have %d bytes", s.reason, len(shown))
			if s.answered != c.answered {
				t.Errorf("%s; answered: %t\n%s", s.reason, s.answered, shown)
			}
			for _, text := range c.shown {
				if strings.Count(shown, text) < c.times {
					t.Errorf("%q is to be shown %d times by\n%s", text, c.times, shown)
				}
			}
		})
	}
}

func TestVirtualMachineWhoseEmulatorHangsIsBootedAgain(t *testing.T) {
	m := newMachine(t, "make test-all PARTS=vm")
	var watched []*stall
	m.watch = func(e *emulator, p patience) *stall {
		if len(watched) == 0 {
			e.command("stop")
			p = impatience
		}
		s := e.watch(p)
		watched = append(watched, s)
		return s
	}
	m.boot(t, boot{name: "v2"})
	if len(watched) != 2 || watched[0] == nil || watched[1] != nil {
		t.Errorf("stalls are %v, expected one, and then a boot without", watched)
	}
}
