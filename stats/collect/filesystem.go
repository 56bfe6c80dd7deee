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

// answerTimeout is how long the last figures of a filesystem count as present while new
// ones are requested. The kernel usually answers in microseconds.
const answerTimeout = 10 * time.Second

var (
	errSilent = errors.New("does not answer")
	errNoSize = errors.New("the filesystem reports no size")
)

// filesystem is the filesystem of a path. The path is looked up at every reading: an
// open descriptor would prevent unmounting, and would not see a later mount over it.
type filesystem struct {
	path      string
	pathZ     []byte // with its NUL, because unix.Statfs copies the path
	requested chan struct{}
	busy      sync.Mutex // held during statfs(2), which may block without end

	mu     sync.Mutex
	figure stats.Filesystem // the last one; unknown before the first and where errno is set
	errno  unix.Errno
	device uint64    // the last one found, of btrfs its id; 0 before the first
	since  time.Time // when the pending request was made; zero without one
}

func newFilesystem(path string) *filesystem {
	return &filesystem{path: path, pathZ: append([]byte(path), 0), requested: make(chan struct{}, 1)}
}

// request asks for a measurement, unless one is pending.
func (f *filesystem) request(now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.since.IsZero() {
		f.since = now
		notify(f.requested)
	}
}

// read fills in the last figures.
func (f *filesystem) read(now time.Time, s *stats.Filesystem) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.since.IsZero() && now.Sub(f.since) > answerTimeout {
		return fmt.Errorf("statfs %s: %w", f.path, errSilent)
	}
	if f.errno != 0 {
		return fmt.Errorf("statfs %s: %w", f.path, f.errno)
	}
	*s = f.figure
	if !s.Time.IsZero() && !s.Capacity.IsKnown() {
		return fmt.Errorf("statfs %s: %w", f.path, errNoSize)
	}
	return nil
}

// measure calls statfs(2), and says whether the path is now on another device.
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

// statfs fills in bytes available to ordinary users, and inodes. Bytes are unknown for a
// filesystem that reports no size (ramfs, some FUSE and network filesystems), inodes for one
// without a fixed number of them (btrfs).
func (f *filesystem) statfs(s *stats.Filesystem) (id uint64, errno unix.Errno) {
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
	s.Time = now
	if st.Blocks > 0 {
		s.Capacity, s.Available = stats.Known(int64(st.Blocks)*int64(st.Frsize)), stats.Known(int64(st.Bavail)*int64(st.Frsize))
	}
	if st.Files > 0 {
		s.Inodes, s.InodesFree = stats.Known(int64(st.Files)), stats.Known(int64(st.Ffree))
	}
	if st.Type == unix.BTRFS_SUPER_MAGIC {
		return f.btrfs(&stx), 0
	}
	return device(&stx), 0
}

// btrfsInfo is struct btrfs_ioctl_fs_info_args.
type btrfsInfo struct {
	maxID, devices uint64
	id             [2]uint64
	_              [124]uint64
}

const getBtrfsInfo = 0x8400941f // BTRFS_IOC_FS_INFO

// btrfs identifies the btrfs filesystem of the path, of which each subvolume has a device number of
// its own. The device number stands in for the id where the ioctl fails.
func (f *filesystem) btrfs(stx *unix.Statx_t) uint64 {
	fd, err := unix.Open(f.path, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return device(stx)
	}
	defer unix.Close(fd)
	var info btrfsInfo
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), getBtrfsInfo, uintptr(unsafe.Pointer(&info))); errno != 0 {
		return device(stx)
	}
	return info.id[0] ^ info.id[1]
}

// lastDevice is the device of the path at the last measurement; 0 before.
func (f *filesystem) lastDevice() uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.device
}

// fault is the error of the last measurement, or nil.
func (f *filesystem) fault() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.errno != 0 {
		return fmt.Errorf("stat %s: %w", f.path, f.errno)
	}
	return nil
}
