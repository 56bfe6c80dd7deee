package rt

import (
	"fmt"

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
