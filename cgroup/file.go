package cgroup

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"unsafe"

	"golang.org/x/sys/unix"
)

// ErrGone says that a group was removed after it was opened, or does not exist. That is
// normal: pods end. It is an fs.ErrNotExist.
var ErrGone error = gone{}

type gone struct{}

func (gone) Error() string        { return "cgroup is gone" }
func (gone) Is(target error) bool { return target == fs.ErrNotExist }

// errNoSuchFile says that a file is missing that every group but the top has.
var errNoSuchFile = errors.New("the group has no such file")

// readSize is larger than every file that is read whole: the longest, memory.stat of
// v2, is below 3 KiB in Linux 6.18.
const readSize = 4096

// File is a kernel file that stays open and is read from its beginning each time. The
// zero File is closed. One goroutine at a time may use it.
type File struct {
	fd1 int // descriptor + 1
}

// OpenFile opens a kernel file that has a path of its own, in /proc or /sys.
func OpenFile(path string) (File, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return File{}, fmt.Errorf("open %s: %w", path, err)
	}
	return File{fd + 1}, nil
}

// Read returns the present content of the file in buf. If buf is too small it returns
// the whole lines that fit. It allocates nothing. The error is the kernel's, or ErrGone
// where the file belongs to a group that was removed.
func (f *File) Read(buf []byte) ([]byte, error) {
	if f.fd1 == 0 {
		return nil, unix.EBADF
	}
	for {
		n, err := unix.Pread(f.fd1-1, buf, 0)
		switch err {
		case nil:
			if n == len(buf) {
				n = bytes.LastIndexByte(buf, '\n') + 1
			}
			return buf[:n], nil
		case unix.EINTR:
		case unix.ENODEV: // kernfs: the group was removed under the descriptor
			return nil, ErrGone
		default:
			return nil, err
		}
	}
}

// Close closes the file, if it is open.
func (f *File) Close() {
	if f.fd1 != 0 {
		unix.Close(f.fd1 - 1)
		f.fd1 = 0
	}
}

// openat opens a name that ends in NUL relative to an open directory. Unlike
// unix.Openat it does not copy the name, so it allocates nothing.
func openat(dir int, nameZ string, flags int) (int, error) {
	for {
		fd, _, errno := unix.Syscall6(unix.SYS_OPENAT, uintptr(dir), uintptr(unsafe.Pointer(unsafe.StringData(nameZ))),
			uintptr(flags|unix.O_CLOEXEC), 0, 0, 0)
		switch errno {
		case 0:
			return int(fd), nil
		case unix.EINTR:
		default:
			return -1, errno
		}
	}
}

// readOnce opens, reads and closes a file of a directory. A file that does not exist
// reads as empty if its group exists.
func readOnce(dir int, nameZ string, buf []byte) ([]byte, error) {
	var f File
	defer f.Close()
	return readKept(&f, dir, nameZ, buf)
}

// readKept reads a file of a directory and keeps it open. A file that does not exist
// reads as empty if its group exists: its controller is not enabled, or the kernel has
// no such file.
func readKept(f *File, dir int, nameZ string, buf []byte) ([]byte, error) {
	if dir < 0 {
		return nil, nil
	}
	if f.fd1 == 0 {
		fd, err := openat(dir, nameZ, unix.O_RDONLY)
		if err == unix.ENOENT || err == unix.ENODEV {
			return nil, alive(dir)
		}
		if err != nil {
			return nil, err
		}
		f.fd1 = fd + 1
	}
	return f.Read(buf)
}

// alive returns ErrGone where the group of a directory was removed: every group
// has cgroup.procs.
func alive(dir int) error {
	fd, err := openat(dir, "cgroup.procs\x00", unix.O_PATH)
	if err != nil {
		return ErrGone
	}
	unix.Close(fd)
	return nil
}

// write writes a file of a directory; ENOENT becomes missing where the group
// still exists, ErrGone where it does not. A write that a signal interrupted is
// repeated: memory.limit_in_bytes of v1 answers EINTR while one is pending, and the Go
// runtime sends itself signals.
func write(dir int, nameZ, value string, missing error) error {
	if dir < 0 {
		return missing
	}
	fd, err := openat(dir, nameZ, unix.O_WRONLY)
	if err == nil {
		for _, err = unix.Write(fd, []byte(value)); err == unix.EINTR; {
			_, err = unix.Write(fd, []byte(value))
		}
		unix.Close(fd)
	} else if err == unix.ENOENT && alive(dir) == nil {
		return missing
	}
	if err == unix.ENOENT || err == unix.ENODEV {
		return ErrGone
	}
	return err
}
