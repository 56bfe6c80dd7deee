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

// Event is a descriptor by which the kernel tells of something that happened to
// a group's memory. A Bell rings at it.
type Event struct {
	fd     int
	events uint32 // of epoll_ctl(2)
	once   bool   // who polls it first takes the news
	source File   // what else must stay open
}

// Close ends the notification; no Bell rings at it any more.
func (n *Event) Close() {
	unix.Close(n.fd)
	n.source.Close()
}

// NotifyUsage tells when the memory usage of the group, page cache included,
// comes to a mark in bytes or falls below it again, and when the group is
// removed (cgroup.event_control, v1). The kernel looks every 128 pages that a
// processor charges. It waits for all processors to arm this, some ten
// milliseconds, and so does the caller. It is errors.ErrUnsupported on v2.
func (g *Group) NotifyUsage(mark int64) (*Event, error) {
	if g.version != V1 {
		return nil, errors.ErrUnsupported
	}
	usage, err := openat(g.dirs[memory], usageFile[V1], unix.O_RDONLY)
	if err != nil {
		return nil, g.fault("notify of memory usage", goneOr(err))
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

// NotifyEvents tells when memory.events changes: the group, or one below it, was
// throttled at memory.high, reached memory.max or lost a process to the kernel.
// It is errors.ErrUnsupported on v1 and at the top.
func (g *Group) NotifyEvents() (*Event, error) {
	if g.version != V2 || g.top {
		return nil, errors.ErrUnsupported
	}
	fd, err := openat(g.dirs[memory], "memory.events\x00", unix.O_RDONLY)
	if err != nil {
		return nil, g.fault("notify of memory events", goneOr(err))
	}
	// kernfs counts as news whatever was not read since the file was opened.
	var buf [readSize]byte
	if _, err := (&File{fd + 1}).Read(buf[:]); err != nil {
		unix.Close(fd)
		return nil, g.fault("notify of memory events", err)
	}
	return &Event{fd: fd, events: unix.EPOLLPRI}, nil
}

// NotifyStall tells when tasks of the group have waited for memory, some of them
// at a time, for so long in so long a window. Windows off the 2 s grid need
// CAP_SYS_RESOURCE, else the error is EINVAL (Linux 6.5; before, every trigger
// needs it). It is errors.ErrUnsupported where nobody measures stalls.
func (g *Group) NotifyStall(stall, window time.Duration) (*Event, error) {
	if g.dirs[unified] < 0 {
		return nil, errors.ErrUnsupported
	}
	fd, err := openat(g.dirs[unified], pressureFiles[MemoryStall], unix.O_RDWR|unix.O_NONBLOCK)
	if err == unix.ENOENT && alive(g.dirs[unified]) == nil || err == unix.EOPNOTSUPP { // no PSI in this kernel, or not in this group
		err = errors.ErrUnsupported
	}
	if err != nil {
		return nil, g.fault("notify of memory stalls", goneOr(err))
	}
	n, err := trigger(fd, stall, window)
	return n, g.fault("notify of memory stalls", err)
}

// NotifyStallAt is NotifyStall for a pressure file that has a path of its own,
// /proc/pressure/memory.
func NotifyStallAt(path string, stall, window time.Duration) (*Event, error) {
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("notify of stalls by %s: %w", path, err)
	}
	n, err := trigger(fd, stall, window)
	if err != nil {
		return nil, fmt.Errorf("notify of stalls by %s: %w", path, err)
	}
	return n, nil
}

// trigger turns a pressure file into a notification: one to a descriptor.
func trigger(fd int, stall, window time.Duration) (*Event, error) {
	line := fmt.Sprintf("some %d %d\x00", stall.Microseconds(), window.Microseconds())
	if _, err := unix.Write(fd, []byte(line)); err != nil {
		unix.Close(fd)
		return nil, err
	}
	return &Event{fd: fd, events: unix.EPOLLPRI, once: true}, nil
}

// Poller wakes one goroutine by notices of the kernel and by Ring. A short wait
// blocks its thread in the kernel and nowhere else, so that a thread of high
// priority depends on no other to go on. A long one parks the goroutine: a thread
// that blocks in the kernel keeps Go's monitor awake, which costs an idle program
// most of what it uses.
type Poller struct {
	epoll, wakeFD int
	file          *os.File // of epoll, which Go's own poller watches
	parked        syscall.RawConn
	look          func(uintptr) bool // method value, made once
	looks         int                // of one parked wait
	once          atomic.Uint64      // ids of notices whose news who polls first takes
	n             int                // of ready
	ready         [16]unix.EpollEvent
}

// longWait is how long a wait is for which the goroutine is parked.
const longWait = 200 * time.Millisecond

// NewPoller makes a bell that nothing rings.
func NewPoller() (*Poller, error) {
	b := &Poller{}
	var err error
	if b.epoll, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return nil, fmt.Errorf("make a bell: %w", err)
	}
	if err = unix.SetNonblock(b.epoll, true); err != nil { // NewFile polls no other
		unix.Close(b.epoll)
		return nil, fmt.Errorf("make a bell: %w", err)
	}
	b.file, b.look = os.NewFile(uintptr(b.epoll), "bell"), b.looked
	if b.wakeFD, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err == nil {
		err = b.add(b.wakeFD, unix.EPOLLIN, -1)
	}
	if err == nil {
		b.parked, err = b.file.SyscallConn()
	}
	if err != nil {
		b.Close()
		return nil, fmt.Errorf("make a bell: %w", err)
	}
	return b, nil
}

// add takes a descriptor up by its edges: nothing has to be read from it before
// it rings again, so that Wait needs nothing but the bell.
func (b *Poller) add(fd int, events uint32, id int32) error {
	return unix.EpollCtl(b.epoll, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: events | unix.EPOLLET, Fd: id})
}

// Add makes a notice ring with an id from 0 to 63. Any goroutine may call it.
func (b *Poller) Add(n *Event, id int) error {
	if err := b.add(n.fd, n.events, int32(id)); err != nil {
		return fmt.Errorf("add a notice to a bell: %w", err)
	}
	if n.once {
		b.once.Or(1 << id)
	}
	return nil
}

// Wake ends the present Wait, or the next. Any goroutine may call it.
func (b *Poller) Wake() {
	one := [8]byte{1}
	unix.Write(b.wakeFD, one[:])
}

// Wait sleeps until a notice or Ring rings, or for so long; durations are rounded
// up to milliseconds. It returns the set of the notices that rang, by id. It
// allocates nothing; one goroutine at a time may call it.
func (b *Poller) Wait(d time.Duration) (rang uint64) {
	if d < longWait || b.file.SetReadDeadline(time.Now().Add(d)) != nil {
		b.await(d)
	} else {
		b.n, b.looks = 0, 0
		_ = b.parked.Read(b.look) // which fails when the time is over
		if b.looks > 1 && b.n == 0 {
			rang = b.once.Load()
		}
	}
	for i := range b.n {
		if id := b.ready[i].Fd; id >= 0 {
			rang |= 1 << id
		}
	}
	return rang
}

// await asks the kernel, and sleeps there.
func (b *Poller) await(d time.Duration) {
	n, err := unix.EpollWait(b.epoll, b.ready[:], int(max(0, (d+time.Millisecond-1)/time.Millisecond)))
	if err == unix.EINTR { // by a signal, or after SIGSTOP, in which much may have rung
		n, _ = unix.EpollWait(b.epoll, b.ready[:], 0)
	}
	b.n = max(0, n)
}

// looked is asked before the goroutine is parked, and when something has rung. Go's
// poller, which asks the kernel about the epoll and so about each notice in it, may
// have taken the news of a stall then (psi_trigger_poll).
func (b *Poller) looked(uintptr) bool {
	b.looks++
	b.await(0)
	return b.n > 0 || b.looks > 1
}

// Close takes the bell down. Nobody may wait for it any more.
func (b *Poller) Close() {
	b.file.Close()
	unix.Close(b.wakeFD)
}
