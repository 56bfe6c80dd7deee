package cgroup

import (
	"context"
	"errors"

	"golang.org/x/sys/unix"
)

// Kill kills every process in the group and below it at once, forks included,
// by cgroup.kill (Linux 5.14, v2). It is errors.ErrUnsupported where there is no
// such file. On a hybrid host it kills those processes that the v2 hierarchy
// shows in the group: Populated tells whether that was all.
func (g *Group) Kill() error {
	return g.fault("kill processes", write(g.dirs[unified], "cgroup.kill\x00", "1", errors.ErrUnsupported))
}

// Thaw lets frozen processes run, and die. It is errors.ErrUnsupported where
// there is no freezer.
func (g *Group) Thaw() error {
	if g.version == V1 && g.dirs[freezer] >= 0 {
		return g.fault("write freezer.state", write(g.dirs[freezer], "freezer.state\x00", "THAWED", errors.ErrUnsupported))
	}
	return g.fault("write cgroup.freeze", write(g.dirs[unified], "cgroup.freeze\x00", "0", errors.ErrUnsupported))
}

// WaitEmpty blocks until no process lives in the group or below it, or it is
// gone, by the kernel's notification on cgroup.events. It is
// errors.ErrUnsupported on v1, whose caller waits for the processes themselves.
func (g *Group) WaitEmpty(ctx context.Context) error {
	if g.version != V2 || g.top {
		return errors.ErrUnsupported
	}
	events, err := openat(g.dirs[memory], "cgroup.events\x00", unix.O_RDONLY)
	if err != nil {
		return emptyIfGone(g.fault("open cgroup.events", goneOr(err)))
	}
	defer unix.Close(events)
	cancelled, release, err := cancellation(ctx)
	if err != nil {
		return g.fault("wait for the end", err)
	}
	defer release()
	f := File{events + 1}
	poll := []unix.PollFd{{Fd: int32(events), Events: unix.POLLPRI}, {Fd: int32(cancelled), Events: unix.POLLIN}}
	for ctx.Err() == nil {
		var buf [readSize]byte
		b, err := f.Read(buf[:]) // the read re-arms POLLPRI
		if err != nil {
			return emptyIfGone(g.fault("read cgroup.events", err))
		}
		if flat(b, "populated").Or(1) == 0 {
			return nil
		}
		if _, err := unix.Poll(poll, -1); err != nil && err != unix.EINTR {
			return g.fault("poll cgroup.events", err)
		}
	}
	return ctx.Err()
}

func emptyIfGone(err error) error {
	if err == ErrGone {
		return nil
	}
	return err
}

// cancellation returns an eventfd that becomes readable when ctx ends. release
// closes it once nothing writes to it any more.
func cancellation(ctx context.Context) (fd int, release func(), err error) {
	fd, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return -1, nil, err
	}
	written := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(written)
		unix.Write(fd, []byte{1, 0, 0, 0, 0, 0, 0, 0})
	})
	return fd, func() {
		if !stop() {
			<-written
		}
		unix.Close(fd)
	}, nil
}
