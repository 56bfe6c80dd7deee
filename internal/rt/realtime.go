package rt

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"golang.org/x/sys/unix"
)

// realtimePriority is the lowest of SCHED_FIFO: before every thread of a normal
// policy, after every other realtime one.
const realtimePriority = 1

// The budget: a thread that runs for more than a part of a period spins.
const (
	budgetPeriod = time.Second
	budget       = budgetPeriod / 2
)

// Thread is a thread of this process that runs under SCHED_FIFO.
type Thread struct{ id int }

// Elevate lets the calling thread, which the goroutine must be locked to, go
// before all normal ones; threads that it starts do not (sched(7),
// SCHED_RESET_ON_FORK). It needs CAP_SYS_NICE, and on cgroup v1 realtime runtime
// for the process's cpu group, else the error is fs.ErrPermission.
func Elevate() (*Thread, error) {
	t := &Thread{unix.Gettid()}
	attr := unix.SchedAttr{
		Size: unix.SizeofSchedAttr, Policy: unix.SCHED_FIFO, Flags: unix.SCHED_FLAG_RESET_ON_FORK, Priority: realtimePriority,
	}
	if err := unix.SchedSetAttr(t.id, &attr, 0); err != nil {
		return nil, fmt.Errorf("run under SCHED_FIFO: %w", err)
	}
	return t, nil
}

// Guard looks after the budget until ctx ends. A thread that has used it up gets a
// normal priority back, for good. RLIMIT_RTTIME would not do: Go's scheduler lets
// a thread that spins sleep for a moment every 10 ms.
func (t *Thread) Guard(ctx context.Context, nice int, log *slog.Logger) {
	period := time.NewTicker(budgetPeriod)
	defer period.Stop()
	used := t.used()
	for {
		select {
		case <-ctx.Done():
			return
		case <-period.C:
		}
		before := used
		if used = t.used(); used-before > budget {
			log.Error("the sensing thread spins and loses its realtime priority", "used", (used - before).String(), "error", t.demote(nice))
			return
		}
	}
}

// used is the processor time of the thread (clock_getcpuclockid(3)).
func (t *Thread) used() time.Duration {
	const perThread, scheduled = 4, 2
	var at unix.Timespec
	_ = unix.ClockGettime(int32(^t.id<<3|perThread|scheduled), &at) // it is there for as long as the thread is
	return time.Duration(at.Nano())
}

func (t *Thread) demote(nice int) error {
	attr := unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_NORMAL, Nice: int32(nice)}
	if err := unix.SchedSetAttr(t.id, &attr, 0); err != nil {
		return fmt.Errorf("give up SCHED_FIFO: %w", err)
	}
	return nil
}
