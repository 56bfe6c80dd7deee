package undo

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/evictd/evictd/internal/require"
)

func setting(t *testing.T, value string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "cpu.shares")
	put(t, path, value)
	return path
}

func put(t *testing.T, path, value string) {
	t.Helper()
	require.NoError(t, os.WriteFile(path, []byte(value+"\n"), 0o644))
}

func mustHold(t *testing.T, path, want string) {
	t.Helper()
	if got, err := read(path); err != nil || got != want {
		t.Errorf("%s holds %q, %v, want %q", path, got, err, want)
	}
}

func openLog(t *testing.T, dir string) *Log {
	t.Helper()
	l, err := Open(dir)
	require.NoError(t, err)
	t.Cleanup(func() { l.file.Close() })
	return l
}

func set(t *testing.T, l *Log, path, value string) *Change {
	t.Helper()
	c, err := l.Set(path, value)
	require.NoError(t, err)
	return c
}

func undo(t *testing.T, c *Change) {
	t.Helper()
	require.NoError(t, c.Undo())
}

// crash closes a log as the end of its process does.
func crash(l *Log) { l.file.Close() }

func TestASettingIsAsItWasOnceTheLastChangeIsUndone(t *testing.T) {
	path, l := setting(t, "2"), openLog(t, t.TempDir())
	first, second := set(t, l, path, "262144"), set(t, l, path, "262144")
	undo(t, first)
	mustHold(t, path, "262144")
	undo(t, second)
	mustHold(t, path, "2")
	undo(t, set(t, l, path, "7"))
	mustHold(t, path, "2")
}

func TestWhatAnEndedProcessLeftChangedIsPutBackByTheNext(t *testing.T) {
	dir, path, other := t.TempDir(), setting(t, "2"), setting(t, "200000 100000")
	l := openLog(t, dir)
	set(t, l, path, "5")
	set(t, l, path, "262144")
	set(t, l, other, "max")
	put(t, other, "max 100000") // as the kernel shows it
	undo(t, set(t, l, setting(t, "1"), "3"))
	crash(l)
	undone, err := Recover(dir)
	if err != nil || len(undone) != 2 {
		t.Errorf("undone %v, %v", undone, err)
	}
	mustHold(t, path, "2")
	mustHold(t, other, "200000 100000")
	if again, err := Recover(dir); err != nil || len(again) > 0 {
		t.Errorf("a second time undone %v, %v", again, err)
	}
	if left, _ := os.ReadDir(dir); len(left) > 0 {
		t.Errorf("left %v", left)
	}
}

func TestWhatIsDeferredIsPutBackByTheNextUndoingOfAnyKind(t *testing.T) {
	for name, next := range map[string]func(string) ([]string, error){"Recover": Recover, "Defer": Defer} {
		t.Run(name, func(t *testing.T) {
			dir, path := t.TempDir(), setting(t, "max")
			l := openLog(t, dir)
			set(t, l, path, "4096")
			if undone, err := Defer(dir); err != nil || len(undone) > 0 {
				t.Errorf("undone of a process that runs: %q, %v", undone, err)
			}
			crash(l)
			if undone, err := Defer(dir); err != nil || len(undone) > 0 || !Recorded(dir) {
				t.Errorf("undone %q, %v", undone, err)
			}
			mustHold(t, path, "4096")
			if undone, err := next(dir); err != nil || len(undone) != 1 || Recorded(dir) {
				t.Errorf("undone %q, %v", undone, err)
			}
			mustHold(t, path, "max")
		})
	}
}

func TestWhatALivingProcessHasChangedIsItsOwn(t *testing.T) {
	dir, path := t.TempDir(), setting(t, "2")
	l := openLog(t, dir)
	c := set(t, l, path, "262144")
	if undone, err := Recover(dir); err != nil || len(undone) > 0 {
		t.Errorf("undone %v, %v", undone, err)
	}
	mustHold(t, path, "262144")
	undo(t, c)
	mustHold(t, path, "2")
}

func TestASettingThatAnotherProgramHasWrittenSinceIsLeft(t *testing.T) {
	dir, path := t.TempDir(), setting(t, "2")
	l := openLog(t, dir)
	c := set(t, l, path, "262144")
	put(t, path, "512")
	undo(t, c)
	mustHold(t, path, "512")
	set(t, l, path, "262144")
	put(t, path, "100")
	crash(l)
	if undone, err := Recover(dir); err != nil || len(undone) > 0 {
		t.Errorf("undone %v, %v", undone, err)
	}
	mustHold(t, path, "100")
}

func TestAFreezerOnItsWayCountsAsFrozen(t *testing.T) {
	dir, path := t.TempDir(), setting(t, "THAWED")
	l := openLog(t, dir)
	set(t, l, path, "FROZEN")
	put(t, path, "FREEZING")
	crash(l)
	if _, err := Recover(dir); err != nil {
		t.Error(err)
	}
	mustHold(t, path, "THAWED")
}

func TestAGroupThatIsGoneNeedsNoUndoing(t *testing.T) {
	dir, path := t.TempDir(), setting(t, "2")
	l := openLog(t, dir)
	c := set(t, l, path, "262144")
	require.NoError(t, os.Remove(path))
	undo(t, c)
	if _, err := l.Set(path, "1"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v for a file that is gone", err)
	}
	if len(l.changes) > 0 {
		t.Errorf("still recorded: %v", l.changes)
	}
}

func TestWhatCannotBeRecordedIsNotChanged(t *testing.T) {
	path := setting(t, "2")
	t.Run("there is no room", func(t *testing.T) {
		l := openLog(t, t.TempDir())
		for i := range l.used {
			l.used[i] = true
		}
		if _, err := l.Set(path, "3"); !errors.Is(err, ErrFull) {
			t.Errorf("got %v", err)
		}
	})
	t.Run("the path is too long", func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), strings.Repeat("a", 200), strings.Repeat("b", 200), strings.Repeat("c", 200))
		require.NoError(t, os.MkdirAll(dir, 0o755))
		long := filepath.Join(dir, "cpu.shares")
		put(t, long, "2")
		if _, err := openLog(t, t.TempDir()).Set(long, "3"); !errors.Is(err, ErrFull) {
			t.Errorf("got %v", err)
		}
		mustHold(t, long, "2")
	})
	t.Run("the log is closed", func(t *testing.T) {
		l := openLog(t, t.TempDir())
		crash(l)
		if _, err := l.Set(path, "3"); err == nil {
			t.Error("no error")
		}
	})
	mustHold(t, path, "2")
}

// TestAProcessThatIsKilledBeforeItsSecondChangeHasChangedNothingPermanently has a file keep the first of two values.
func TestAProcessThatIsKilledBeforeItsSecondChangeHasChangedNothingPermanently(t *testing.T) {
	dir, path := t.TempDir(), setting(t, "max")
	l := openLog(t, dir)
	set(t, l, path, "5")
	set(t, l, path, "7")
	put(t, path, "5")
	crash(l)
	if undone, err := Recover(dir); err != nil || len(undone) != 1 {
		t.Errorf("undone %v, %v", undone, err)
	}
	mustHold(t, path, "max")
}

func TestAValueThatIsRefusedLeavesTheOneBefore(t *testing.T) {
	path, l := setting(t, "max"), openLog(t, t.TempDir())
	first := set(t, l, path, "5")
	aside := path + ".aside"
	require.NoError(t, errors.Join(os.Rename(path, aside), os.Mkdir(path, 0o755)))
	if _, err := l.Set(path, "7"); err == nil {
		t.Error("no error")
	}
	require.NoError(t, errors.Join(os.Remove(path), os.Rename(aside, path)))
	undo(t, first)
	mustHold(t, path, "max")
}

func TestATornRecordIsPassedOver(t *testing.T) {
	dir, path := t.TempDir(), setting(t, "2")
	l := openLog(t, dir)
	set(t, l, setting(t, "1"), "9")
	set(t, l, path, "262144")
	if _, err := l.file.WriteAt([]byte(`{"path":"/x`), 0); err != nil {
		t.Fatal(err)
	}
	crash(l)
	if undone, err := Recover(dir); err != nil || len(undone) != 1 || undone[0] != path {
		t.Errorf("undone %v, %v", undone, err)
	}
}

func TestCloseUndoesAndLeavesNothing(t *testing.T) {
	dir, path := t.TempDir(), setting(t, "2")
	l := openLog(t, dir)
	set(t, l, path, "262144")
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	mustHold(t, path, "2")
	if left, _ := os.ReadDir(dir); len(left) > 0 {
		t.Errorf("left %v", left)
	}
}

func TestNoDirectoryHasNothingToUndo(t *testing.T) {
	if undone, err := Recover(filepath.Join(t.TempDir(), "none")); err != nil || undone != nil {
		t.Errorf("undone %v, %v", undone, err)
	}
}
