package rt

import (
	"errors"
	"os"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestWhatIsUsedIsLockedAndWhatIsNotIsGivenBack(t *testing.T) {
	before := status(t, "RssFile:")
	for range 2 {
		err := Lock()
		if errors.Is(err, unix.EPERM) || errors.Is(err, unix.ENOMEM) {
			t.Skip("skipped: no memory may be locked here:", err)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	defer unix.Munlockall()
	if after, locked := status(t, "RssFile:"), status(t, "VmLck:"); after >= before || locked == 0 {
		t.Errorf("%d KiB of files resident before, %d after, %d locked", before, after, locked)
	}
}

// status is a number of /proc/self/status, KiB.
func status(t *testing.T, key string) int {
	t.Helper()
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, key); ok {
			kib, err := strconv.Atoi(strings.Fields(value)[0])
			if err != nil {
				t.Fatal(err)
			}
			return kib
		}
	}
	t.Fatal("no", key)
	return 0
}
