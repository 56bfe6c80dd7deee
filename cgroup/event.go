package cgroup

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Event is a descriptor by which the kernel reports a change of a group's memory to a
// Poller.
type Event struct {
	fd       int
	events   uint32 // of epoll_ctl(2)
	consumed bool   // the first poll(2) consumes the event
	source   File   // a file that must stay open with fd
}

// Close ends the notification.
func (n *Event) Close() {
	unix.Close(n.fd)
	n.source.Close()
}

// NotifyUsage reports when the memory usage of the group, page cache included, crosses
// a mark in bytes in either direction, and when the group is removed
// (cgroup.event_control, v1). The kernel compares every 128 pages charged by a
// processor. The call takes some ten milliseconds: the kernel waits for all processors.
// The error is errors.ErrUnsupported on v2.
func (g *Group) NotifyUsage(mark int64) (*Event, error) {
	if g.version != V1 {
		return nil, errors.ErrUnsupported
	}
	usage, err := openat(g.dirs[memory], usageFile[V1], unix.O_RDONLY)
	if err != nil {
		return nil, g.fault("notify of memory usage", asGone(err))
	}
	event, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		unix.Close(usage)
		return nil, g.fault("notify of memory usage", err)
	}
	n := &Event{fd: event, events: unix.EPOLLIN, source: File{usage + 1}}
	line := strconv.Itoa(event) + " " + strconv.Itoa(usage) + " " + strconv.FormatInt(mark, 10)
	if err := write(g.dirs[memory], "cgroup.event_control\x00", line, errNoSuchFile); err != nil {
		n.Close()
		return nil, g.fault("notify of memory usage", err)
	}
	return n, nil
}

// NotifyEvents reports when memory.events.local changes (Linux 5.2): the group was
// throttled at memory.high, reached memory.max or had a process killed by the OOM
// killer, for its own limits. A limit of a group below, which may be reached many times a
// second, is not reported. The error is errors.ErrUnsupported on v1 and for the root.
func (g *Group) NotifyEvents() (*Event, error) {
	if g.version != V2 || g.top {
		return nil, errors.ErrUnsupported
	}
	fd, err := openat(g.dirs[memory], "memory.events.local\x00", unix.O_RDONLY)
	if err != nil {
		return nil, g.fault("notify of memory events", asGone(err))
	}
	// kernfs reports an event for a file that was not read since it was opened.
	var buf [readSize]byte
	if _, err := (&File{fd + 1}).Read(buf[:]); err != nil {
		unix.Close(fd)
		return nil, g.fault("notify of memory events", err)
	}
	return &Event{fd: fd, events: unix.EPOLLPRI}, nil
}

// Stalled is which tasks wait in a PSI trigger.
type Stalled string

// Some tasks wait, or all that are not idle.
const (
	Some Stalled = "some"
	Full Stalled = "full"
)

// NotifyStall reports when tasks of the group have waited for memory for the time
// stall within a window (PSI trigger). A window that is no multiple of 2 s needs
// CAP_SYS_RESOURCE, else the error is EINVAL; before Linux 6.5 every trigger needs it.
// The error is errors.ErrUnsupported where the kernel has no PSI for the group.
func (g *Group) NotifyStall(tasks Stalled, stall, window time.Duration) (*Event, error) {
	if g.dirs[unified] < 0 {
		return nil, errors.ErrUnsupported
	}
	fd, err := openat(g.dirs[unified], pressureFiles[MemoryStall], unix.O_RDWR|unix.O_NONBLOCK)
	if err == unix.ENOENT && alive(g.dirs[unified]) == nil || err == unix.EOPNOTSUPP { // no PSI in this kernel, or not in this group
		err = errors.ErrUnsupported
	}
	if err != nil {
		return nil, g.fault("notify of memory stalls", asGone(err))
	}
	n, err := trigger(fd, tasks, stall, window)
	return n, g.fault("notify of memory stalls", err)
}

// NotifyStallAt is NotifyStall for a pressure file that has a path of its own,
// /proc/pressure/memory.
func NotifyStallAt(path string, tasks Stalled, stall, window time.Duration) (*Event, error) {
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("notify of stalls by %s: %w", path, err)
	}
	n, err := trigger(fd, tasks, stall, window)
	if err != nil {
		return nil, fmt.Errorf("notify of stalls by %s: %w", path, err)
	}
	return n, nil
}

// trigger writes a PSI trigger; a descriptor holds one trigger.
func trigger(fd int, tasks Stalled, stall, window time.Duration) (*Event, error) {
	line := fmt.Sprintf("%s %d %d\x00", tasks, stall.Microseconds(), window.Microseconds())
	if _, err := unix.Write(fd, []byte(line)); err != nil {
		unix.Close(fd)
		return nil, err
	}
	return &Event{fd: fd, events: unix.EPOLLPRI, consumed: true}, nil
}

// Poller wakes one goroutine by events of the kernel and by Wake. Block blocks the
// goroutine's thread in epoll_wait(2): the kernel wakes that thread, and no other thread,
// which may wait for a processor, is between it and an event. Wait parks the goroutine where
// it waits for long, so that a thread of Go's runtime is woken first: a thread blocked in the
// kernel keeps Go's monitor thread running, which is most of what an idle program costs.
type Poller struct {
	epoll, wakeFD int
	file          *os.File // of epoll, watched by Go's poller
	parked        syscall.RawConn
	pollReady     func(uintptr) bool // method value, made once
	polls         int                // calls of epollReady in one parked wait
	consumed      atomic.Uint64      // ids of events that the first poll(2) consumes
	n             int                // entries of ready
	ready         [16]unix.EpollEvent
}

// longWait is the shortest wait for which the goroutine is parked.
const longWait = 200 * time.Millisecond

// NewPoller makes a Poller without events.
func NewPoller() (*Poller, error) {
	b := &Poller{}
	var err error
	if b.epoll, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return nil, fmt.Errorf("make a poller: %w", err)
	}
	if err = unix.SetNonblock(b.epoll, true); err != nil { // NewFile polls no other
		unix.Close(b.epoll)
		return nil, fmt.Errorf("make a poller: %w", err)
	}
	b.file, b.pollReady = os.NewFile(uintptr(b.epoll), "poller"), b.epollReady
	if b.wakeFD, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err == nil {
		err = b.add(b.wakeFD, unix.EPOLLIN, -1)
	}
	if err == nil {
		b.parked, err = b.file.SyscallConn()
	}
	if err != nil {
		b.Close()
		return nil, fmt.Errorf("make a poller: %w", err)
	}
	return b, nil
}

// add registers a descriptor edge-triggered: Wait need not read it before the next
// event.
func (b *Poller) add(fd int, events uint32, id int32) error {
	return unix.EpollCtl(b.epoll, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: events | unix.EPOLLET, Fd: id})
}

// Add registers an event with an id from 0 to 63. Any goroutine may call it.
func (b *Poller) Add(n *Event, id int) error {
	if err := b.add(n.fd, n.events, int32(id)); err != nil {
		return fmt.Errorf("add an event to a poller: %w", err)
	}
	if n.consumed {
		b.consumed.Or(1 << id)
	}
	return nil
}

// Wake ends the present Wait, or the next. Any goroutine may call it.
func (b *Poller) Wake() {
	one := [8]byte{1}
	unix.Write(b.wakeFD, one[:])
}

// Wait sleeps until an event or Wake, or for d, rounded up to milliseconds. It returns
// the set of events that fired, by id. It blocks for less than 200 ms. It allocates
// nothing; one goroutine at a time may call Wait or Block.
func (b *Poller) Wait(d time.Duration) (fired uint64) {
	if d < longWait || b.file.SetReadDeadline(time.Now().Add(d)) != nil {
		return b.Block(d)
	}
	b.n, b.polls = 0, 0
	_ = b.parked.Read(b.pollReady) // fails after d
	if b.n == 0 {                  // an event may have fired while the timer did, as after SIGSTOP
		b.epollWait(0)
	}
	if b.polls > 1 && b.n == 0 {
		return b.consumed.Load()
	}
	return b.fired()
}

// Block is Wait, and blocks the calling thread however long it waits.
func (b *Poller) Block(d time.Duration) (fired uint64) {
	b.epollWait(d)
	return b.fired()
}

// fired is the set of the events that are ready.
func (b *Poller) fired() (fired uint64) {
	for i := range b.n {
		if id := b.ready[i].Fd; id >= 0 {
			fired |= 1 << id
		}
	}
	return fired
}

// epollWait calls epoll_wait(2), again for what is left of d where a signal ended it: Go's
// runtime sends some to preempt a thread, and SIGCONT follows SIGSTOP.
func (b *Poller) epollWait(d time.Duration) {
	end, err := time.Now().Add(d), error(unix.EINTR)
	for err == unix.EINTR {
		b.n, err = unix.EpollWait(b.epoll, b.ready[:], int(max(0, (d+time.Millisecond-1)/time.Millisecond)))
		d = time.Until(end)
	}
	b.n = max(0, b.n)
}

// epollReady is called before the goroutine is parked and after an event. Go's poller polls
// the epoll and with it each event, which may consume the event of a PSI trigger
// (psi_trigger_poll).
func (b *Poller) epollReady(uintptr) bool {
	b.polls++
	b.epollWait(0)
	return b.n > 0 || b.polls > 1
}

// Close closes the poller. No goroutine may be in Wait.
func (b *Poller) Close() {
	b.file.Close()
	unix.Close(b.wakeFD)
}
