package osprocess

import (
	"errors"
	"io/fs"
	"os"
	"runtime"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/evictd/evictd/internal/require"
)

func TestEveryThreadAndThoseToComeAreServedFirst(t *testing.T) {
	const nice = -15
	if err := Prioritize(nice); errors.Is(err, fs.ErrPermission) {
		t.Skip("skipped: needs CAP_SYS_NICE:", err)
	} else if err != nil {
		t.Fatal(err)
	}
	started, checked := make(chan struct{}), make(chan struct{})
	defer close(checked)
	for range 4 {
		go func() {
			runtime.LockOSThread() // a thread of its own
			started <- struct{}{}
			<-checked
		}()
	}
	for range 4 {
		<-started
	}
	threads, err := os.ReadDir("/proc/self/task")
	require.NoError(t, err)
	for _, thread := range threads {
		id, err := strconv.Atoi(thread.Name())
		require.NoError(t, err)
		// The system call returns 20 less the nice value.
		if priority, err := unix.Getpriority(unix.PRIO_PROCESS, id); err != unix.ESRCH && (err != nil || priority != 20-nice) {
			t.Errorf("thread %d has priority %d, %v", id, priority, err)
		}
	}
}
