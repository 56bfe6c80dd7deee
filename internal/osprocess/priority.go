// Package osprocess sets what the operating system lets a process choose for itself: thread
// priority, locked memory, service readiness and watchdog, the program of a child. It knows
// nothing of eviction.
package osprocess

import (
	"errors"
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// Prioritize gives every thread of this process a nice value, from -20, the
// first served, to 19; threads started later inherit it (setpriority(2)). Values
// below the present one need CAP_SYS_NICE: the error is then fs.ErrPermission.
func Prioritize(nice int) error {
	const tasks = "/proc/self/task"
	threads, err := os.ReadDir(tasks)
	if err != nil {
		return fmt.Errorf("list own threads: %w", err)
	}
	for _, thread := range threads {
		id, err := strconv.Atoi(thread.Name())
		if err != nil {
			return fmt.Errorf("list own threads: %w", err)
		}
		if err := unix.Setpriority(unix.PRIO_PROCESS, id, nice); err != nil && !errors.Is(err, unix.ESRCH) {
			return fmt.Errorf("set priority of thread %d: %w", id, err)
		}
	}
	return nil
}
