package collect

import (
	"errors"
	"fmt"
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/evictd/evictd/stats"
)

// The raw system calls below take struct statfs as 64-bit systems have it; this
// constant does not compile elsewhere.
const _ = uint(unsafe.Sizeof(uintptr(0)) - 8)

// answerPatience is how long the last figures of a filesystem are taken for
// those of now while it is asked for new ones. The kernel answers in microseconds.
const answerPatience = 10 * time.Second

var errSilent = errors.New("does not answer")

// filesystem is the one that a path is on. It is looked up at every reading anew:
// a descriptor kept open would keep it from being unmounted, and would not see
// what is mounted over it later.
type filesystem struct {
	path  string
	pathZ []byte // with its NUL, because unix.Statfs copies the path
	asked chan struct{}
	busy  sync.Mutex // held while the kernel is asked, which may be for ever

	mu     sync.Mutex
	figure stats.Filesystem // the last one; unknown before the first and where errno says why
	errno  unix.Errno
	device uint64    // the last one found; 0 before the first
	since  time.Time // when it was asked what it has not answered; zero where it has
}

func newFilesystem(path string) *filesystem {
	return &filesystem{path: path, pathZ: append([]byte(path), 0), asked: make(chan struct{}, 1)}
}

// ask has it measured, unless it is being asked.
func (f *filesystem) ask(now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.since.IsZero() {
		f.since = now
		poke(f.asked)
	}
}

// read fills in the last figures.
func (f *filesystem) read(now time.Time, s *stats.Filesystem) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.since.IsZero() && now.Sub(f.since) > answerPatience {
		return fmt.Errorf("statfs %s: %w", f.path, errSilent)
	}
	if f.errno != 0 {
		return fmt.Errorf("statfs %s: %w", f.path, f.errno)
	}
	*s = f.figure
	return nil
}

// measure asks the kernel, and says whether the path is on another device than
// before.
func (f *filesystem) measure() (moved bool) {
	f.busy.Lock()
	defer f.busy.Unlock()
	var figure stats.Filesystem
	device, errno := f.statfs(&figure)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.figure, f.errno, f.since = figure, errno, time.Time{}
	if errno != 0 || device == f.device {
		return false
	}
	f.device = device
	return true
}

// statfs fills in bytes for ordinary users and inodes. A filesystem without a fixed
// number of inodes (btrfs) tells none.
func (f *filesystem) statfs(s *stats.Filesystem) (device uint64, errno unix.Errno) {
	var stx unix.Statx_t
	here := unix.AT_FDCWD
	if _, _, errno := unix.Syscall6(unix.SYS_STATX, uintptr(here), uintptr(unsafe.Pointer(unsafe.SliceData(f.pathZ))), 0, 0, uintptr(unsafe.Pointer(&stx)), 0); errno != 0 {
		return 0, errno
	}
	var st unix.Statfs_t
	now := time.Now()
	if _, _, errno := unix.Syscall(unix.SYS_STATFS, uintptr(unsafe.Pointer(unsafe.SliceData(f.pathZ))), uintptr(unsafe.Pointer(&st)), 0); errno != 0 {
		return 0, errno
	}
	*s = stats.Filesystem{
		Time:      now,
		Capacity:  stats.Known(int64(st.Blocks) * int64(st.Frsize)),
		Available: stats.Known(int64(st.Bavail) * int64(st.Frsize)),
	}
	if st.Files > 0 {
		s.Inodes, s.InodesFree = stats.Known(int64(st.Files)), stats.Known(int64(st.Ffree))
	}
	return unix.Mkdev(stx.Dev_major, stx.Dev_minor), 0
}

// on is the device that the path was last found on; 0 before.
func (f *filesystem) on() uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.device
}

// fault is why there are no figures, or nothing.
func (f *filesystem) fault() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.errno != 0 {
		return fmt.Errorf("stat %s: %w", f.path, f.errno)
	}
	return nil
}
