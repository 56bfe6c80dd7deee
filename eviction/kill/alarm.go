package kill

import (
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// alarm closes a channel at an instant, by a timerfd of the kernel. A timer of Go's
// runtime can be a millisecond late: it waits in epoll_wait(2), which counts whole
// milliseconds. stop releases the timer.
func alarm(at time.Time) (expired <-chan struct{}, stop func()) {
	closed := make(chan struct{})
	file, err := timer(time.Until(at))
	if err != nil { // out of descriptors
		t := time.AfterFunc(time.Until(at), func() { close(closed) })
		return closed, func() { t.Stop() }
	}
	var waiting sync.WaitGroup
	waiting.Go(func() {
		var expirations [8]byte
		if n, _ := file.Read(expirations[:]); n > 0 {
			close(closed)
		}
	})
	return closed, func() {
		file.Close()
		waiting.Wait()
	}
}

// timer returns a descriptor that becomes readable after d.
func timer(d time.Duration) (*os.File, error) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		return nil, err
	}
	at := unix.ItimerSpec{Value: unix.NsecToTimespec(max(1, d.Nanoseconds()))} // zero disarms it
	if err := unix.TimerfdSettime(fd, 0, &at, nil); err != nil {
		unix.Close(fd)
		return nil, err
	}
	return os.NewFile(uintptr(fd), "timerfd"), nil
}
