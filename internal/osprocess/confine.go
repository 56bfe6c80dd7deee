package osprocess

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// NoNewPrivileges keeps this thread, and every process that it starts, from
// gaining privileges by running a program (PR_SET_NO_NEW_PRIVS).
func NoNewPrivileges() error {
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("set no_new_privs: %w", err)
	}
	return nil
}

// OpenProgram opens a file for nothing but its execution through /proc/self/fd
// (open(2), O_PATH). The caller needs to reach its path, and the user that executes
// it later needs only the permission of the file itself.
func OpenProgram(path string) (*os.File, error) {
	return os.OpenFile(path, unix.O_PATH, 0)
}

// SetName gives the threads of this process a name of at most 15 bytes (comm,
// proc_pid_comm(5)). The kernel names a process that was executed through
// /proc/self/fd after the number of the descriptor.
func SetName(name string) error {
	threads, err := filepath.Glob("/proc/self/task/*/comm")
	for _, thread := range threads {
		if failed := os.WriteFile(thread, []byte(name), 0); failed != nil && !errors.Is(failed, fs.ErrNotExist) {
			err = fmt.Errorf("name own threads: %w", failed)
		}
	}
	return err
}
