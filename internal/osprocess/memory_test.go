package osprocess

import (
	"encoding/binary"
	"errors"
	"os"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/evictd/evictd/internal/require"
)

func TestWhatIsUsedIsLockedAndWhatIsNotIsGivenBack(t *testing.T) {
	before := status(t, "RssFile:")
	for range 2 {
		err := Lock("github.com/evictd/evictd/internal/osprocess")
		if errors.Is(err, unix.EPERM) || errors.Is(err, unix.ENOMEM) {
			t.Skip("skipped: needs CAP_IPC_LOCK or a greater limit of locked memory (ulimit -l):", err)
		}
		require.NoError(t, err)
	}
	defer unix.Munlockall()
	if after, locked := status(t, "RssFile:"), status(t, "VmLck:"); after >= before || locked == 0 {
		t.Errorf("%d KiB of files resident before, %d after, %d locked", before, after, locked)
	}
}

func TestTheCodeThatIsNamedIsThereBeforeItIsUsed(t *testing.T) {
	code := func() uintptr { return reflect.ValueOf(NewService).Pointer() } // which no test before has called
	if err := Lock("github.com/evictd/evictd/internal/osprocess"); err != nil {
		t.Skip("skipped: needs CAP_IPC_LOCK or a greater limit of locked memory (ulimit -l):", err)
	}
	defer unix.Munlockall()
	if !mapped(t, code()) {
		t.Error("it has yet to be mapped")
	}
}

// mapped says whether a page is (proc_pid_pagemap(5)).
func mapped(t *testing.T, at uintptr) bool {
	t.Helper()
	pages, err := os.Open("/proc/self/pagemap")
	require.NoError(t, err)
	defer pages.Close()
	var entry [8]byte
	if _, err := pages.ReadAt(entry[:], int64(at)/int64(os.Getpagesize())*8); err != nil {
		t.Fatal(err)
	}
	return binary.NativeEndian.Uint64(entry[:])>>63 == 1
}

// status is a number of /proc/self/status, KiB.
func status(t *testing.T, key string) int {
	t.Helper()
	text := require.ReadFile(t, "/proc/self/status")
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, key); ok {
			kib, err := strconv.Atoi(strings.Fields(value)[0])
			require.NoError(t, err)
			return kib
		}
	}
	t.Fatal("no", key)
	return 0
}
