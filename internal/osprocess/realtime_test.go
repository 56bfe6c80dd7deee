package osprocess

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/evictd/evictd/internal/wait"
)

// policy is that of a thread, without the flag of its children.
func policy(t *testing.T, thread int) uint32 {
	t.Helper()
	attr, err := unix.SchedGetAttr(thread, 0)
	if err != nil {
		t.Error(err)
		return 0
	}
	return attr.Policy
}

// elevated runs the test in a thread of its own with a realtime policy; the thread
// ends with the test.
func elevated(t *testing.T, do func(*Thread)) {
	t.Helper()
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		thread, err := Elevate()
		if err == nil {
			do(thread)
		}
		done <- err
	}()
	if err := <-done; errors.Is(err, fs.ErrPermission) {
		t.Skip("skipped: needs CAP_SYS_NICE, and on cgroup v1 cpu.rt_runtime_us of the group of the tests:", err)
	} else if err != nil {
		t.Fatal(err)
	}
}

func TestTheElevatedThreadHasPriorityAndThreadsItStartsDoNot(t *testing.T) {
	elevated(t, func(thread *Thread) {
		if got := policy(t, thread.id); got != unix.SCHED_FIFO {
			t.Errorf("policy %d", got)
		}
		child := exec.Command("cat", "/proc/self/sched") // field "policy"
		if out, err := child.Output(); err == nil && !strings.Contains(string(out), "policy                                       :                    0") {
			t.Errorf("a child has\n%s", out)
		}
	})
}

func TestAThreadThatSpinsHasNoPriorityUntilItIsCalm(t *testing.T) {
	elevated(t, func(thread *Thread) {
		ctx, cancel := context.WithTimeout(t.Context(), wait.Limit)
		defer cancel()
		var logged bytes.Buffer
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			thread.guard(ctx, 0, budgetPeriod, slog.New(slog.NewTextHandler(&logged, nil)))
		}()
		for ctx.Err() == nil && policy(t, thread.id) == unix.SCHED_FIFO {
		}
		if got := policy(t, thread.id); got != unix.SCHED_NORMAL {
			t.Errorf("policy %d", got)
		}
		for ctx.Err() == nil && policy(t, thread.id) == unix.SCHED_NORMAL {
			_ = unix.Nanosleep(&unix.Timespec{Nsec: int64(10 * time.Millisecond)}, nil)
		}
		if got := policy(t, thread.id); got != unix.SCHED_FIFO {
			t.Errorf("policy %d of a thread that is calm", got)
		}
		cancel()
		<-ended
		for _, text := range []string{"loses its realtime priority", "has its realtime priority again"} {
			if !strings.Contains(logged.String(), text) {
				t.Errorf("logged %s", &logged)
			}
		}
	})
}

func TestAThreadSpinsThatUsesMoreThanHalfOfTheTime(t *testing.T) {
	for _, c := range []struct {
		name     string
		used, in time.Duration
		want     bool
	}{
		{"the budget in less than a period", budget, budgetPeriod - time.Millisecond, true},
		{"the budget in a period", budget, budgetPeriod, false},
		{"more in the time until a guard that is late looks", 3 * budget, 3*budgetPeriod + time.Millisecond, false},
		{"all of the time until then", 3 * budget, 3 * budget, true},
		{"too little to judge by, right after a guard that was late", budget / 4, budget / 4, false},
	} {
		if got := spins(c.used, c.in); got != c.want {
			t.Errorf("%s: spins is %v", c.name, got)
		}
	}
}

func TestAThreadThatSleepsKeepsItsPriority(t *testing.T) {
	elevated(t, func(thread *Thread) {
		ctx, cancel := context.WithTimeout(t.Context(), budget*3/2)
		defer cancel()
		var logged bytes.Buffer
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			thread.Guard(ctx, 0, slog.New(slog.NewTextHandler(&logged, nil)))
		}()
		for ctx.Err() == nil {
			_ = unix.Nanosleep(&unix.Timespec{Nsec: int64(time.Millisecond)}, nil)
		}
		<-ended
		if got := policy(t, thread.id); got != unix.SCHED_FIFO || logged.Len() > 0 {
			t.Errorf("policy %d, logged %s", got, &logged)
		}
	})
}
