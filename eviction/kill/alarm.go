package kill

import (
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// alarm closes a channel at an instant, by a timer of the kernel's (timerfd).
// Those of the runtime can be a millisecond late where nothing else runs: it
// waits for them in epoll_wait(2), which counts whole milliseconds. stop ends it.
func alarm(at time.Time) (rings <-chan struct{}, stop func()) {
	ringing := make(chan struct{})
	file, err := timer(time.Until(at))
	if err != nil { // out of descriptors: late is better than never
		t := time.AfterFunc(time.Until(at), func() { close(ringing) })
		return ringing, func() { t.Stop() }
	}
	var waiting sync.WaitGroup
	waiting.Go(func() {
		var expirations [8]byte
		if n, _ := file.Read(expirations[:]); n > 0 {
			close(ringing)
		}
	})
	return ringing, func() {
		file.Close()
		waiting.Wait()
	}
}

// timer is a descriptor that becomes readable after a while.
func timer(d time.Duration) (*os.File, error) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		return nil, err
	}
	at := unix.ItimerSpec{Value: unix.NsecToTimespec(max(1, d.Nanoseconds()))} // zero would disarm it
	if err := unix.TimerfdSettime(fd, 0, &at, nil); err != nil {
		unix.Close(fd)
		return nil, err
	}
	return os.NewFile(uintptr(fd), "timerfd"), nil
}
