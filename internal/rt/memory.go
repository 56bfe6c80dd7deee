package rt

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Lock keeps every page of this process that is touched from now on in memory,
// and those that are there already (mlockall(2) with MCL_ONFAULT, Linux 4.4: what
// is mapped and never used costs nothing). It needs CAP_IPC_LOCK or an unlimited
// RLIMIT_MEMLOCK, else the error is fs.ErrPermission or ENOMEM.
func Lock() error {
	if err := unix.Mlockall(unix.MCL_CURRENT | unix.MCL_FUTURE | unix.MCL_ONFAULT); err != nil {
		return fmt.Errorf("lock memory: %w", err)
	}
	return nil
}

// Shed unmaps the pages of the program's own file, which the start has touched
// and the rest of its life mostly does not; those that are used come back. It is
// for before Lock.
func Shed() error {
	program, err := os.Executable()
	if err != nil {
		return fmt.Errorf("shed pages of the program: %w", err)
	}
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		return fmt.Errorf("shed pages of the program: %w", err)
	}
	var errs []error
	for line := range strings.Lines(string(maps)) {
		// address perms offset dev inode path (proc_pid_maps(5))
		fields := strings.Fields(line)
		if len(fields) != 6 || fields[5] != program || strings.Contains(fields[1], "w") {
			continue
		}
		from, to, _ := strings.Cut(fields[0], "-")
		begin, err1 := strconv.ParseUint(from, 16, 64)
		end, err2 := strconv.ParseUint(to, 16, 64)
		if err1 != nil || err2 != nil {
			continue
		}
		if _, _, errno := unix.Syscall(unix.SYS_MADVISE, uintptr(begin), uintptr(end-begin), unix.MADV_DONTNEED); errno != 0 {
			errs = append(errs, fmt.Errorf("shed pages of the program: %w", errno))
		}
	}
	return errors.Join(errs...)
}
