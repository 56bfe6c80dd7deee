package notify

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// maxText bounds a notice in a file: a write to a FIFO of so many bytes is atomic (PIPE_BUF).
const maxText = 512

var (
	// ErrNoReader: no process has the FIFO open for reading.
	ErrNoReader = errors.New("no process reads the FIFO")
	errKind     = errors.New("it is neither a regular file nor a FIFO")
	errOwner    = errors.New("it does not belong to the user of the container's first process, or is not writable for that user")
	errKernel   = errors.New("it is on a filesystem of the kernel: expected a disk or a tmpfs")
)

// WriteFile writes a line into a file that exists in the root of the process: a FIFO, or a regular
// file, whose content it replaces. The path has no symbolic link. The file belongs to the user of the
// process, so that root's rights of evictd give the container nothing. It may block where the
// filesystem does.
func (p *Process) WriteFile(name, line string) error {
	line = strings.ReplaceAll(line, "\n", " ")
	line = line[:min(len(line), maxText-1)] + "\n"
	uids, err := p.status("Uid", 10)
	if err != nil {
		return err
	}
	if len(uids) < 2 {
		return fmt.Errorf("status of process %d has no effective user", p.pid)
	}
	root, err := unix.Open(fmt.Sprintf("/proc/%d/root", p.pid), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return os.NewSyscallError("open root", err)
	}
	defer unix.Close(root)
	if err := p.runs(); err != nil {
		return err
	}
	// A file that is opened as a path is not opened: a device or FIFO of the container has no effect.
	at, err := unix.Openat2(root, name, &unix.OpenHow{
		Flags: unix.O_PATH | unix.O_NOFOLLOW | unix.O_CLOEXEC, Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS,
	})
	if err != nil {
		return &os.PathError{Op: "openat2", Path: name, Err: err}
	}
	defer unix.Close(at)
	fifo, err := check(at, uint32(uids[1]))
	if err != nil {
		return &os.PathError{Op: "write", Path: name, Err: err}
	}
	file, err := unix.Open(fmt.Sprintf("/proc/self/fd/%d", at), unix.O_WRONLY|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENXIO) {
		return ErrNoReader
	}
	if err != nil {
		return &os.PathError{Op: "open", Path: name, Err: err}
	}
	defer unix.Close(file)
	if fifo {
		_, err = unix.Write(file, []byte(line))
	} else if _, err = unix.Pwrite(file, []byte(line), 0); err == nil {
		err = unix.Ftruncate(file, int64(len(line)))
	}
	if err != nil {
		return &os.PathError{Op: "write", Path: name, Err: err}
	}
	return nil
}

// check says whether a file is a FIFO, and fails if it may not be written.
func check(at int, user uint32) (fifo bool, err error) {
	var st unix.Stat_t
	if err := unix.Fstat(at, &st); err != nil {
		return false, os.NewSyscallError("fstat", err)
	}
	kind := st.Mode & unix.S_IFMT
	switch {
	case kind != unix.S_IFREG && kind != unix.S_IFIFO:
		return false, errKind
	case st.Uid != user || st.Mode&unix.S_IWUSR == 0:
		return false, errOwner
	case kind == unix.S_IFIFO: // of the kernel's own filesystems none has one
		return true, nil
	}
	var fs unix.Statfs_t
	if err := unix.Fstatfs(at, &fs); err != nil {
		return false, os.NewSyscallError("fstatfs", err)
	}
	// procfs, sysfs, cgroupfs and the like have no blocks; a tmpfs without a limit has none either.
	if fs.Blocks == 0 && fs.Type != unix.TMPFS_MAGIC {
		return false, errKernel
	}
	return false, nil
}
