package vm_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/evictd/evictd/test/harness"
)

// TestOfTwoThatMakeAnImageTheSecondWaitsAndTakesThatOfTheFirst is itself the first.
func TestOfTwoThatMakeAnImageTheSecondWaitsAndTakesThatOfTheFirst(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("skipped: a root filesystem is made by root")
	}
	harness.Need(t, "flock", "util-linux")
	dir := filepath.Join(t.TempDir(), "image")
	lock, err := os.Create(dir + ".lock")
	if err == nil {
		err = syscall.Flock(int(lock.Fd()), syscall.LOCK_EX)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	second := harness.Run(t, exec.Command("sh", "rootfs.sh", dir))
	waits := fmt.Sprintf("-> FLOCK  ADVISORY  WRITE %d ", second.PID())
	harness.Await(t, "the second to wait", func() bool {
		locks, err := os.ReadFile("/proc/locks")
		return err == nil && strings.Contains(string(locks), waits)
	})
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	lock.Close()
	second.AwaitEnd()
	if made, err := os.ReadDir(dir); err != nil || len(made) > 0 {
		t.Errorf("the image of the first is replaced: %v, %v", made, err)
	}
}
