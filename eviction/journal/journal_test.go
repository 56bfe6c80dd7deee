package journal

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/evictd/evictd/internal/require"
)

func open(t testing.TB, dir string) (*Journal, *bytes.Buffer) {
	t.Helper()
	var log bytes.Buffer
	j, err := Open(dir, slog.New(slog.NewTextHandler(&log, nil)))
	require.NoError(t, err)
	return j, &log
}

// written runs the journal until what was changed is on the disk.
func written(t testing.TB, j *Journal) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.NoError(t, j.Run(ctx))
}

func ids(j *Journal, kind string) string {
	var all []string
	for _, e := range j.Entries(kind) {
		all = append(all, e.ID+"="+string(e.Data))
	}
	return strings.Join(all, " ")
}

func put(t testing.TB, j *Journal, kind, id string, value any) {
	t.Helper()
	require.NoError(t, j.Put(kind, id, value))
}

func TestWhatWasPutIsThereAfterARestartAndWhatWasDroppedIsNot(t *testing.T) {
	dir := t.TempDir()
	j, _ := open(t, dir)
	put(t, j, "intent", "b", 1)
	put(t, j, "intent", "a", 2)
	put(t, j, "hold", "a", 3)
	put(t, j, "intent", "b", 4)
	j.Drop("intent", "a")
	written(t, j)
	j, log := open(t, dir)
	if got := ids(j, "intent"); got != "b=4" || ids(j, "hold") != "a=3" || log.Len() > 0 {
		t.Errorf("intents %q, holds %q, log %q", got, ids(j, "hold"), log)
	}
}

// TestEntryThatWasDroppedWhileTheDiskHungIsNotThere changes more than are kept for a disk that hangs.
func TestEntryThatWasDroppedWhileTheDiskHungIsNotThere(t *testing.T) {
	dir := t.TempDir()
	j, _ := open(t, dir)
	put(t, j, "intent", "a", 1)
	written(t, j)
	j.Drop("intent", "a")
	for i := range 2*maxEntries + 1 {
		put(t, j, "intent", "b", i)
	}
	written(t, j)
	j, _ = open(t, dir)
	if got, want := ids(j, "intent"), fmt.Sprint("b=", 2*maxEntries); got != want {
		t.Errorf("intents %q, want %q", got, want)
	}
}

func TestTornTailIsSetAsideAndWhatCameBeforeIsKept(t *testing.T) {
	dir := t.TempDir()
	j, _ := open(t, dir)
	put(t, j, "intent", "a", "first")
	put(t, j, "intent", "b", "second")
	written(t, j)
	path := filepath.Join(dir, fileName)
	whole := require.ReadFile(t, path)
	first := bytes.IndexByte(whole, '\n') + 1
	for cut := first + 1; cut < len(whole); cut++ {
		require.NoError(t, os.WriteFile(path, whole[:cut], 0o600))
		j, log := open(t, dir)
		if got := ids(j, "intent"); got != `a="first"` || !strings.Contains(log.String(), "torn") {
			t.Fatalf("cut at %d: %q, log %q", cut, got, log)
		}
		if aside, err := os.ReadFile(filepath.Join(dir, damagedName)); err != nil || !bytes.Equal(aside, whole[:cut]) {
			t.Fatalf("cut at %d: set aside %q, %v", cut, aside, err)
		}
	}
}

func TestJournalOpensWhereNothingCanBeWrittenAndIsWrittenWhenItCan(t *testing.T) {
	dir := t.TempDir()
	draft := filepath.Join(dir, fileName+".new")
	require.NoError(t, os.MkdirAll(filepath.Join(draft, "in-the-way"), 0o700))
	j, log := open(t, dir)
	if log.Len() > 0 {
		t.Errorf("to open it says %q", log)
	}
	put(t, j, "intent", "a", 1)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := j.Run(ctx); err == nil {
		t.Error("it was written")
	}
	if got := ids(j, "intent"); got != "a=1" {
		t.Errorf("entries %q", got)
	}
	require.NoError(t, os.RemoveAll(draft))
	written(t, j)
	if j, _ := open(t, dir); ids(j, "intent") != "a=1" {
		t.Errorf("after all: %q", ids(j, "intent"))
	}
}

func TestWrittenCountsTheChangesThatAreDurable(t *testing.T) {
	dir := t.TempDir()
	j, _ := open(t, dir)
	var counts []uint64
	j.Written(func(changes uint64) { counts = append(counts, changes) })
	put(t, j, "intent", "a", 1)
	put(t, j, "intent", "b", 2)
	j.Drop("intent", "a")
	if j.Changes() != 3 {
		t.Errorf("%d changes, want 3", j.Changes())
	}
	obstacle := filepath.Join(dir, fileName+".new")
	require.NoError(t, os.Mkdir(obstacle, 0o700))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := j.Run(ctx); err == nil || len(counts) > 0 {
		t.Errorf("error %v, counts %v", err, counts)
	}
	require.NoError(t, os.Remove(obstacle))
	written(t, j)
	put(t, j, "intent", "c", 3)
	written(t, j)
	if got := fmt.Sprint(slices.Compact(counts)); got != "[3 4]" {
		t.Errorf("counts %s, want [3 4]", got)
	}
}

// smallDisk mounts a filesystem of 64 MiB until the test ends.
func smallDisk(t *testing.T) (dir string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("skipped: needs root, to mount a disk of its own")
	}
	image, dir := filepath.Join(t.TempDir(), "image"), t.TempDir()
	for _, args := range [][]string{{"mke2fs", "-q", "-t", "ext4", "-m", "0", image, "64M"}, {"mount", "-o", "loop", image, dir}} {
		if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
			t.Skipf("skipped: needs loop devices and Debian's package e2fsprogs: %s: %v: %s", args[0], err, bytes.TrimSpace(out))
		}
	}
	t.Cleanup(func() {
		if out, err := exec.Command("umount", dir).CombinedOutput(); err != nil {
			t.Errorf("umount: %v: %s", err, out)
		}
	})
	return dir
}

// fill takes all that is left of a disk, and returns what gives it back.
func fill(t *testing.T, disk string) (free func()) {
	t.Helper()
	name := filepath.Join(disk, "filler")
	file, err := os.Create(name)
	require.NoError(t, err)
	defer file.Close()
	for size := 1 << 20; size > 0; {
		if _, err := file.Write(make([]byte, size)); err != nil {
			size /= 2
		}
	}
	require.NoError(t, file.Sync())
	return func() {
		require.NoError(t, os.Remove(name))
	}
}

func TestFullDiskTakesTheJournalAlsoAfterARestart(t *testing.T) {
	disk := smallDisk(t)
	dir := filepath.Join(disk, "state")
	j, _ := open(t, dir)
	put(t, j, "hold", "before", 1)
	written(t, j)
	fill(t, disk)
	j, _ = open(t, dir)
	for i := range 2 * compactBytes / 10_000 { // twice the size at which it is written again
		put(t, j, "intent", fmt.Sprint(i%10), strings.Repeat(fmt.Sprint(i%10), 9_000))
		if i*9_000 < preallocatedBytes-compactBytes {
			written(t, j)
		}
	}
	j, log := open(t, dir)
	if len(j.Entries("intent")) != 10 || ids(j, "hold") != "before=1" || log.Len() > 0 {
		t.Errorf("%d intents, holds %q, log %q", len(j.Entries("intent")), ids(j, "hold"), log)
	}
}

func TestDiskThatIsReadOnlyDoesNotPreventTheStart(t *testing.T) {
	disk := smallDisk(t)
	remount := func(how string) {
		t.Helper()
		if out, err := exec.Command("mount", "-o", "remount,"+how, disk).CombinedOutput(); err != nil {
			t.Fatalf("remount %s: %v: %s", how, err, out)
		}
	}
	remount("ro")
	j, _ := open(t, filepath.Join(disk, "state"))
	put(t, j, "intent", "a", 1)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := j.Run(ctx); !errors.Is(err, syscall.EROFS) {
		t.Errorf("written: %v", err)
	}
	remount("rw")
	written(t, j)
	if j, _ := open(t, filepath.Join(disk, "state")); ids(j, "intent") != "a=1" {
		t.Errorf("after all: %q", ids(j, "intent"))
	}
}

func TestWhatCannotBeAJournalIsSetAside(t *testing.T) {
	for name, make := range map[string]func(string) error{
		"a directory": func(path string) error { return os.MkdirAll(path+"/below", 0o700) },
		"a pipe":      func(path string) error { return syscall.Mkfifo(path, 0o600) },
		"a link":      func(path string) error { return os.Symlink("/dev/zero", path) },
		"without an end": func(path string) error {
			return errors.Join(os.WriteFile(path, nil, 0o600), os.Truncate(path, 1<<40))
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			require.NoError(t, make(filepath.Join(dir, fileName)))
			j, log := open(t, dir)
			if !strings.Contains(log.String(), "is renamed") {
				t.Errorf("log %q", log)
			}
			put(t, j, "intent", "a", 1)
			written(t, j)
			if j, log := open(t, dir); ids(j, "intent") != "a=1" || log.Len() > 0 {
				t.Errorf("after a restart %q, log %q", ids(j, "intent"), log)
			}
		})
	}
}

func TestForeignFileIsSetAside(t *testing.T) {
	for _, text := range []string{"hello\n", "00000000 {}\n", "\x00\x01\n", "\n", strings.Repeat("x", 1<<20)} {
		dir := t.TempDir()
		require.NoError(t, os.WriteFile(filepath.Join(dir, fileName), []byte(text), 0o600))
		j, log := open(t, dir)
		if len(j.entries) > 0 || !strings.Contains(log.String(), "damaged") {
			t.Errorf("%.20q: %d entries, log %q", text, len(j.entries), log)
		}
		put(t, j, "intent", "a", 1)
		written(t, j)
		if j, log := open(t, dir); ids(j, "intent") != "a=1" || log.Len() > 0 {
			t.Errorf("%.20q: after a restart %q, log %q", text, ids(j, "intent"), log)
		}
	}
}

func TestJournalStaysSmall(t *testing.T) {
	dir := t.TempDir()
	j, _ := open(t, dir)
	stop := require.Running(t, j.Run)
	for i := range 3 * maxEntries {
		put(t, j, "intent", fmt.Sprint(i), strings.Repeat("x", 1000))
		if i%2 == 0 {
			j.Drop("intent", fmt.Sprint(i))
		}
	}
	stop()
	j, _ = open(t, dir)
	entries := j.Entries("intent")
	if len(entries) != maxEntries || entries[len(entries)-1].ID != fmt.Sprint(3*maxEntries-1) {
		t.Errorf("%d entries, the last %s", len(entries), entries[len(entries)-1].ID)
	}
	info, err := os.Stat(filepath.Join(dir, fileName))
	if err != nil || info.Size() > 2*compactBytes {
		t.Errorf("journal of %d bytes, %v", info.Size(), err)
	}
	if err := j.Put("intent", "large", strings.Repeat("x", maxEntryBytes)); err == nil {
		t.Error("an entry of more than 64 KiB was taken")
	}
}

func TestDirectoryThatCannotBeMadeIsAnError(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	if _, err := Open(filepath.Join(file, "state"), slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), "open journal") {
		t.Errorf("got %v", err)
	}
}

// A line that is read is written back the same, and nothing makes parse panic.
func FuzzLine(f *testing.F) {
	f.Add(line{Entry: Entry{"intent", "a", []byte(`{"pod":"x"}`)}}.append(nil))
	f.Add(line{Entry: Entry{Kind: "intent", ID: "a"}, Dropped: true}.append(nil))
	f.Add([]byte("00000000 {}\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		for text, whole := range split(data) {
			l, err := parse(text, whole)
			if err != nil {
				continue
			}
			back, err := parse(bytes.TrimSuffix(l.append(nil), []byte{'\n'}), true)
			if err != nil || back.Kind != l.Kind || back.ID != l.ID || back.Dropped != l.Dropped {
				t.Errorf("%q became %+v, %v", text, back, err)
			}
		}
	})
}
