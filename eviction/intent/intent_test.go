package intent

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/evictd/evictd/internal/require"
)

// opened opens a file and returns its log.
func opened(t *testing.T, path string) (*File, *bytes.Buffer) {
	t.Helper()
	var log bytes.Buffer
	f, err := open(path, slog.New(slog.NewTextHandler(&log, nil)))
	require.NoError(t, err)
	t.Cleanup(func() { f.file.Close() })
	return f, &log
}

// kill leaves a file as a process does that is killed.
func kill(t *testing.T, f *File) {
	t.Helper()
	require.NoError(t, errors.Join(syscall.Munmap(f.memory), f.file.Close()))
}

func all(f *File) string {
	var texts []string
	for _, e := range f.Entries() {
		texts = append(texts, fmt.Sprintf("%d=%s", e.Key, e.Data))
	}
	return strings.Join(texts, " ")
}

func wants(t *testing.T, f *File, want string) {
	t.Helper()
	if got := all(f); got != want {
		t.Errorf("entries %q, want %q", got, want)
	}
}

func TestWhatWasPutIsThereAfterAKillAndWhatWasFreedIsNot(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	f, _ := opened(t, path)
	f.Put(7, []byte("a"))
	f.Put(8, []byte("b"))
	f.Put(9, []byte("c"))
	f.Put(7, []byte("longer"))
	f.Replace(9, []byte("d"))
	f.Replace(10, []byte("e"))
	f.Free(8)
	kill(t, f)
	f, log := opened(t, path)
	wants(t, f, "7=longer 9=d")
	f.Put(8, []byte("last"))
	f.Free(7)
	kill(t, f)
	f, _ = opened(t, path)
	wants(t, f, "9=d 8=last")
	if log.Len() > 0 {
		t.Errorf("log %s", log)
	}
}

// TestAKillBetweenTwoWritesLeavesOneEntry has the new entry of a key written and the earlier one
// not freed yet.
func TestAKillBetweenTwoWritesLeavesOneEntry(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	f, _ := opened(t, path)
	f.Put(7, []byte("before"))
	f.keys[0].Store(99) // so that it is not found
	f.Put(7, []byte("after"))
	kill(t, f)
	f, _ = opened(t, path)
	wants(t, f, "7=after")
	f.Free(7)
	wants(t, f, "")
}

func TestATornEntryIsDroppedWithOneLineAndTheOthersStay(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	f, _ := opened(t, path)
	const text = "an entry"
	f.Put(7, []byte(text))
	f.Put(8, []byte("other"))
	kill(t, f)
	whole := require.ReadFile(t, path)
	for at := range entryAt + len(text) {
		torn := bytes.Clone(whole)
		torn[at] ^= 0x10
		require.NoError(t, os.WriteFile(path, torn, 0o600))
		f, log := opened(t, path)
		wants(t, f, "8=other")
		if lines := strings.Count(log.String(), "\n"); lines != 1 || !strings.Contains(log.String(), "slot 0") {
			t.Errorf("byte %d: log %s", at, log)
		}
		for range slots - 1 {
			if !f.Put(9, []byte(text)) {
				t.Fatalf("byte %d: the slot is not free", at)
			}
		}
		kill(t, f)
	}
}

func TestAFileOfAnotherSizeOrVersionIsReplaced(t *testing.T) {
	for name, content := range map[string][]byte{
		"short": []byte("x"), "long": make([]byte, fileSize+1), "another version": bytes.Repeat([]byte{1, 0, 0, version + 1}, fileSize/4),
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "f")
			require.NoError(t, os.WriteFile(path, content, 0o600))
			f, log := opened(t, path)
			if strings.Count(log.String(), "\n") != 1 {
				t.Errorf("log %s", log)
			}
			wants(t, f, "")
			f.Put(7, []byte("a"))
			kill(t, f)
			f, _ = opened(t, path)
			wants(t, f, "7=a")
		})
	}
}

func TestAFullFileRefusesAndCounts(t *testing.T) {
	f, _ := opened(t, filepath.Join(t.TempDir(), "f"))
	for i := range uint64(slots) {
		if !f.Put(firstKey+i, []byte("a")) {
			t.Fatalf("entry %d was refused", i)
		}
	}
	if f.Put(100, []byte("a")) || f.Put(firstKey, []byte("b")) || f.Refused() != 2 {
		t.Errorf("%d refused, want 2", f.Refused())
	}
	if f.Replace(firstKey, []byte("b")) || !strings.HasPrefix(all(f), "2=a ") {
		t.Errorf("entries %s", all(f))
	}
	f.Free(firstKey)
	if f.Put(100, make([]byte, MaxEntry+1)) || !f.Put(100, make([]byte, MaxEntry)) || f.Refused() != 3 {
		t.Errorf("%d refused, want 3", f.Refused())
	}
}

func TestAFileOfAnotherProcessOrKindIsNotUsed(t *testing.T) {
	dir := t.TempDir()
	opened(t, filepath.Join(dir, "used"))
	require.NoError(t, errors.Join(os.Mkdir(filepath.Join(dir, "directory"), 0o700), os.Symlink("used", filepath.Join(dir, "link")), syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o600)))
	for _, name := range []string{"used", "directory", "link", "pipe", "missing/f"} {
		if f, err := open(filepath.Join(dir, name), slog.New(slog.DiscardHandler)); err == nil {
			t.Errorf("%s was opened", name)
			f.Close()
		}
	}
}

func TestOpenNeedsATmpfs(t *testing.T) {
	if _, err := Open("/proc/self/fd", "f", slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), "not on a tmpfs") {
		t.Errorf("error %v", err)
	}
	dir, err := os.MkdirTemp("/dev/shm", "intent")
	if err != nil {
		t.Skip("skipped: needs a tmpfs at /dev/shm:", err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	f, err := Open(filepath.Join(dir, "new"), "f", slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	require.NoError(t, f.Close())
}

func TestCloseFreesTheMemoryOfAFileWithoutEntries(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	for _, c := range []struct {
		free bool
		size int64
	}{{false, fileSize}, {true, 0}} {
		f, _ := opened(t, path)
		f.Put(7, []byte("a"))
		if c.free {
			f.Free(7)
		}
		require.NoError(t, f.Close())
		if info, err := os.Stat(path); err != nil || info.Size() != c.size {
			t.Errorf("size %v, %v; want %d", info.Size(), err, c.size)
		}
	}
}

func TestNoFileKeepsNothing(t *testing.T) {
	var f *File
	f.Free(7)
	if f.Put(7, nil) || f.Replace(7, nil) || f.Refused() != 0 || f.Entries() != nil || f.Close() != nil {
		t.Error("it keeps something")
	}
}

func TestAWriteAllocatesNothing(t *testing.T) {
	f, _ := opened(t, filepath.Join(t.TempDir(), "f"))
	entry := make([]byte, MaxEntry)
	if n := testing.AllocsPerRun(100, func() {
		key := Key("a uid", 123456789)
		f.Put(key, entry)
		f.Free(key)
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestKeysDiffer(t *testing.T) {
	keys := map[uint64]bool{}
	for _, uid := range []string{"", "a", "b", "ab", "ba"} {
		for _, decided := range []int64{0, 1, 256, -1, 1700000000000000000, 1700000000000000001} {
			keys[Key(uid, decided)] = true
		}
	}
	if len(keys) != 30 || keys[free] || keys[busy] {
		t.Errorf("%d keys", len(keys))
	}
}

func TestGoroutinesWriteBesideEachOther(t *testing.T) {
	f, _ := opened(t, filepath.Join(t.TempDir(), "f"))
	var writing sync.WaitGroup
	for key := range uint64(4) {
		writing.Go(func() {
			for range 200 {
				if !f.Put(key+firstKey, []byte{byte(key)}) || !f.Replace(key+firstKey, []byte{byte(key)}) {
					t.Error("a write was refused")
				}
				f.Free(key + firstKey)
			}
		})
	}
	writing.Wait()
	wants(t, f, "")
}
