package rt

import (
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Lock keeps in memory what this process uses from now on (mlockall(2) with
// MCL_ONFAULT, Linux 4.4: what is mapped and never used costs nothing). Free heap,
// and the pages of the program's own file, are given back first; those of the file
// that are used come back. It needs CAP_IPC_LOCK or an unlimited RLIMIT_MEMLOCK,
// else nothing is locked and the error is fs.ErrPermission or ENOMEM. It may be
// called again when the start is over.
func Lock() error {
	if err := unix.Munlockall(); err != nil {
		return fmt.Errorf("unlock memory: %w", err)
	}
	debug.FreeOSMemory()
	if err := shed(); err != nil {
		return err
	}
	if err := unix.Mlockall(unix.MCL_CURRENT | unix.MCL_FUTURE | unix.MCL_ONFAULT); err != nil {
		return fmt.Errorf("lock memory: %w", err)
	}
	return nil
}

// shed unmaps the pages of the program's file, as far as they are not written to.
func shed() error {
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
		fields := strings.Fields(line) // address, perms, offset, device, inode, path (proc_pid_maps(5))
		if len(fields) != 6 || fields[5] != program || strings.Contains(fields[1], "w") {
			continue
		}
		from, to, _ := strings.Cut(fields[0], "-")
		begin, err1 := strconv.ParseUint(from, 16, 64)
		end, err2 := strconv.ParseUint(to, 16, 64)
		_, _, errno := unix.Syscall(unix.SYS_MADVISE, uintptr(begin), uintptr(end-begin), unix.MADV_DONTNEED)
		if errno != 0 || err1 != nil || err2 != nil {
			errs = append(errs, fmt.Errorf("shed pages of the program at %s: %w", fields[0], errno))
		}
	}
	return errors.Join(errs...)
}
