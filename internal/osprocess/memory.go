package osprocess

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// LimitHeap makes the heap smaller: it is collected when it has grown by percent, and
// allocations are not sampled.
func LimitHeap(percent int) {
	debug.SetGCPercent(percent)
	runtime.MemProfileRate = 0
}

// Lock keeps in memory what this process uses from now on (mlockall(2) with
// MCL_ONFAULT, Linux 4.4: what is mapped and never used costs nothing). Free heap is
// given back first, and where packages are named so are the pages of the program's own
// file, all but their code; those that are used come back. It needs CAP_IPC_LOCK or an
// unlimited RLIMIT_MEMLOCK, else nothing is locked and the error is fs.ErrPermission or
// ENOMEM. It may be called again.
func Lock(packages ...string) error {
	if err := unix.Munlockall(); err != nil {
		return fmt.Errorf("unlock memory: %w", err)
	}
	if len(packages) > 0 {
		if err := shed(packages); err != nil {
			return fmt.Errorf("shed pages of the program: %w", err)
		}
	}
	debug.FreeOSMemory()
	if err := unix.Mlockall(unix.MCL_CURRENT | unix.MCL_FUTURE | unix.MCL_ONFAULT); err != nil {
		return fmt.Errorf("lock memory: %w", err)
	}
	return nil
}

// shed unmaps the pages of the program's file that are not written to, but for the
// code of some packages. With a page that is used the kernel maps those around it that
// are in its cache, 64 KiB or a large folio, but never beyond the mapping: so that is
// cut into pages, every other of which a core dump would leave out.
func shed(packages []string) error {
	program, err := os.Executable()
	if err != nil {
		return err
	}
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		return err
	}
	page := uint64(os.Getpagesize())
	for line := range strings.Lines(string(maps)) {
		fields := strings.Fields(line) // address, perms, offset, device, inode, path (proc_pid_maps(5))
		if len(fields) != 6 || fields[5] != program || strings.Contains(fields[1], "w") {
			continue
		}
		from, to, _ := strings.Cut(fields[0], "-")
		begin, err1 := strconv.ParseUint(from, 16, 64)
		end, err2 := strconv.ParseUint(to, 16, 64)
		if err := errors.Join(err1, err2); err != nil {
			return err
		}
		if err := advise(begin, end, unix.MADV_DONTNEED); err != nil {
			return err
		}
		for at := begin; at < end; at += page {
			if at/page%2 == 0 {
				err = advise(at, at+page, unix.MADV_DONTDUMP)
			}
			if err == nil && (isOf(packages, at) || isOf(packages, at+page-1)) {
				err = advise(at, at+page, unix.MADV_POPULATE_READ)
			}
			if err != nil && err != unix.EINVAL { // a kernel before 5.14 populates nothing
				return err
			}
		}
	}
	return nil
}

// isOf says whether code of one of the packages is at an address.
func isOf(packages []string, at uint64) bool {
	f := runtime.FuncForPC(uintptr(at))
	if f == nil {
		return false
	}
	name := runtime.FuncForPC(f.Entry()).Name() // and not what is inlined there
	return slices.ContainsFunc(packages, func(p string) bool { return strings.HasPrefix(name, p+".") })
}

func advise(begin, end uint64, advice uintptr) error {
	if _, _, errno := unix.Syscall(unix.SYS_MADVISE, uintptr(begin), uintptr(end-begin), advice); errno != 0 {
		return errno
	}
	return nil
}
