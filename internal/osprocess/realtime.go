package osprocess

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// realtimePriority is the lowest of SCHED_FIFO: before every thread of a normal
// policy, after every other realtime one.
const realtimePriority = 1

// The budget: a thread that runs for more than a part of a period spins.
const (
	budgetPeriod = time.Second
	budget       = budgetPeriod / 2
	// calm is how long a thread stays within the budget before it has its priority again.
	calm = 10 * time.Second
)

// Thread is a thread of this process that runs under SCHED_FIFO.
type Thread struct{ id int }

// Elevate lets the calling thread, which the goroutine must be locked to, go
// before all normal ones; threads that it starts do not (sched(7),
// SCHED_RESET_ON_FORK). It needs CAP_SYS_NICE, and on cgroup v1 realtime runtime
// for the process's cpu group, else the error is fs.ErrPermission.
func Elevate() (*Thread, error) {
	t := &Thread{unix.Gettid()}
	if err := t.elevate(); err != nil {
		return nil, err
	}
	return t, nil
}

func (t *Thread) elevate() error {
	attr := unix.SchedAttr{
		Size: unix.SizeofSchedAttr, Policy: unix.SCHED_FIFO, Flags: unix.SCHED_FLAG_RESET_ON_FORK, Priority: realtimePriority,
	}
	if err := unix.SchedSetAttr(t.id, &attr, 0); err != nil {
		return fmt.Errorf("run under SCHED_FIFO: %w", err)
	}
	return nil
}

// Guard enforces the budget until ctx ends: a thread that has used it up gets a normal
// priority until it has stayed within it for ten seconds. A timer of the thread's processor time (timer_create(2)) fires
// per budget, so that a sleeping thread causes no wakes. Both clocks are read where Guard
// runs, which may be long after the timer fired. RLIMIT_RTTIME does not work: Go's scheduler
// sleeps every 10 ms in a thread that spins.
func (t *Thread) Guard(ctx context.Context, nice int, log *slog.Logger) {
	t.guard(ctx, nice, calm, log)
}

func (t *Thread) guard(ctx context.Context, nice int, calm time.Duration, log *slog.Logger) {
	rings := make(chan os.Signal, 1)
	signal.Notify(rings, budgetSignal)
	defer signal.Stop(rings)
	stop, err := t.onBudget(budget)
	if err != nil {
		log.Error("the budget of the sensing thread cannot be enforced; it loses its realtime priority", "reason", err, "error", t.demote(nice))
		return
	}
	defer stop()
	last := t.usage()
	var again <-chan time.Time // when to look at a thread without its priority; nil while it has it
	for {
		select {
		case <-ctx.Done():
			return
		case <-rings:
		case <-again:
		}
		now := t.usage()
		used, in := now.since(last)
		switch {
		case again == nil && spins(used, in):
			log.Error("the sensing thread spins and loses its realtime priority", "used", used.String(), "in", in.String(), "error", t.demote(nice))
		case again == nil && used < budget/2, again != nil && in < calm:
			continue
		case again == nil:
			last = now
			continue
		case used*(budgetPeriod/budget) <= in:
			log.Info("the sensing thread has its realtime priority again", "used", used.String(), "in", in.String(), "error", t.elevate())
			last, again = now, nil
			continue
		}
		last, again = now, time.After(calm)
	}
}

// usage is the processor time of a thread at a time.
type usage struct {
	used time.Duration
	at   time.Time
}

func (t *Thread) usage() usage { return usage{read(t.clock()), time.Now()} }

func (u usage) since(last usage) (used, in time.Duration) {
	return u.used - last.used, u.at.Sub(last.at)
}

// spins says whether processor time that was used is more than the budget permits, where it is
// enough to judge by.
func spins(used, in time.Duration) bool {
	return used >= budget/2 && used*(budgetPeriod/budget) > in
}

// ThreadTime is the processor time that the calling thread has used.
func ThreadTime() time.Duration { return read(unix.CLOCK_THREAD_CPUTIME_ID) }

// read reads a clock of processor time; zero where its thread has ended.
func read(clock int32) time.Duration {
	var used unix.Timespec
	_ = unix.ClockGettime(clock, &used)
	return time.Duration(used.Nano())
}

// budgetSignal is a realtime signal that no other part of the program uses. The first
// three are those of the C library, which is not linked.
const budgetSignal = syscall.Signal(40)

// onBudget has budgetSignal sent each time that the thread has used so much processor
// time.
func (t *Thread) onBudget(each time.Duration) (stop func(), err error) {
	event := struct { // struct sigevent of 64-bit systems
		value          uint64
		signal, notify int32
		_              [48]byte
	}{signal: int32(budgetSignal)} // SIGEV_SIGNAL is 0
	var timer int32
	if _, _, errno := unix.Syscall(unix.SYS_TIMER_CREATE, uintptr(t.clock()), uintptr(unsafe.Pointer(&event)), uintptr(unsafe.Pointer(&timer))); errno != 0 {
		return nil, fmt.Errorf("make a timer of processor time: %w", errno)
	}
	stop = func() { unix.Syscall(unix.SYS_TIMER_DELETE, uintptr(timer), 0, 0) }
	period := unix.NsecToTimespec(each.Nanoseconds())
	at := unix.ItimerSpec{Interval: period, Value: period}
	if _, _, errno := unix.Syscall6(unix.SYS_TIMER_SETTIME, uintptr(timer), 0, uintptr(unsafe.Pointer(&at)), 0, 0, 0); errno != 0 {
		stop()
		return nil, fmt.Errorf("set a timer of processor time: %w", errno)
	}
	return stop, nil
}

// clock is that of the thread's processor time (clock_getcpuclockid(3)).
func (t *Thread) clock() int32 {
	const perThread, scheduled = 4, 2
	return int32(^t.id<<3 | perThread | scheduled)
}

func (t *Thread) demote(nice int) error {
	attr := unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_NORMAL, Nice: int32(nice)}
	if err := unix.SchedSetAttr(t.id, &attr, 0); err != nil {
		return fmt.Errorf("give up SCHED_FIFO: %w", err)
	}
	return nil
}
