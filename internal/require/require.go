// Package require has the steps of a test that must not fail: the test ends where one does.
package require

import (
	"context"
	"os"
	"path/filepath"
	"sync"
	"testing"
)

// NoError ends the test with an error, unless that is nil.
func NoError(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// ReadFile is the content of a file.
func ReadFile(t testing.TB, name string) []byte {
	t.Helper()
	text, err := os.ReadFile(name)
	NoError(t, err)
	return text
}

// FileOnDisk makes a file of holes, whose page cache the kernel can reclaim, unlike that of a tmpfs, until the end of
// the test.
func FileOnDisk(t testing.TB, size int64) (name string) {
	t.Helper()
	dir, err := os.MkdirTemp("/var/lib", "evictd-test-")
	NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	name = filepath.Join(dir, "file")
	NoError(t, os.WriteFile(name, nil, 0o644))
	NoError(t, os.Truncate(name, size))
	return name
}

// Running runs a function in a goroutine of its own until stop is called, which waits for its
// end, or the test ends. Its error must be nil.
func Running(t testing.TB, run func(context.Context) error) (stop func()) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	return stop
}
