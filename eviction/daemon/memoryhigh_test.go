package daemon

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/evictd/evictd/eviction/control"
	"github.com/evictd/evictd/eviction/undo"
	"github.com/evictd/evictd/internal/require"
	"github.com/evictd/evictd/stats"
	"github.com/evictd/evictd/stats/collect"
)

func TestTheTripwireIsALittleBelowTheCrossingAndLetsGoInTime(t *testing.T) {
	const mib = int64(1) << 20
	type step struct {
		after             time.Duration // since the step before
		usage, left, want int64         // MiB
	}
	for name, steps := range map[string][]step{
		"it follows what is left by more than a sixteenth": {{0, 11000, 500, 11468}, {time.Second, 11100, 400, 11468}, {time.Second, 11100, 600, 11668}, {time.Second, 11100, 590, 11668}},
		"it is not begun with where polling sees all":      {{0, 11000, 64, 0}, {time.Second, 11000, 65, 11033}},
		"it is never put below the usage":                  {{0, 11000, 500, 11468}, {time.Second, 11000, 20, 11468}},
		"it is removed once the threshold is crossed":      {{0, 11000, 500, 11468}, {time.Second, 11468, 0, 0}, {time.Second, 10900, 600, 0}, {2 * time.Second, 10900, 600, 11468}},
		"it is removed for a minute from pods that stay at it": {
			{0, 11000, 500, 11468}, {time.Second, 11468, 32, 11468}, {2 * time.Second, 11468, 32, 11468}, {time.Millisecond, 11468, 32, 0},
			{59 * time.Second, 11000, 500, 0}, {2 * time.Second, 11000, 500, 11468},
		},
		"the time begins again for pods that fall below it": {
			{0, 11000, 500, 11468}, {time.Second, 11468, 32, 11468}, {time.Second, 11400, 100, 11468}, {5 * time.Second, 11468, 32, 11468}, {2 * time.Second, 11468, 32, 11468},
		},
		"file pages move it out of the way":                                     {{0, 11000, 500, 11468}, {time.Second, 11468, 500, 11936}},
		"in a small group it is near enough that pods still reach the crossing": {{0, 980, 300, 1270}},
	} {
		t.Run(name, func(t *testing.T) {
			w := high{tripwire: true}
			now := time.Unix(1, 0)
			for i, s := range steps {
				now = now.Add(s.after)
				w.next(now, s.usage*mib, s.left*mib)
				if w.value != s.want*mib {
					t.Fatalf("step %d: at %d MiB, want %d", i, w.value/mib, s.want)
				}
			}
		})
	}
}

// TestMarksHalveTheDistanceToTheThreshold has one value for each halving, and none near the
// threshold.
//
// rule: M.91
func TestMarksHalveTheDistanceToTheThreshold(t *testing.T) {
	const mib = int64(1) << 20
	type step struct{ usage, left, want int64 } // MiB
	for name, steps := range map[string][]step{
		"each mark stays until it is reached": {
			{0, 8192, 4096}, {2000, 6192, 4096}, {4094, 4098, 4096}, {4096, 4096, 6144}, {6200, 1992, 7196},
		},
		"near the threshold it is max, and is not set again before twice the distance": {
			{7900, 292, 8046}, {8050, 142, 8121}, {8070, 122, 0}, {8000, 192, 0}, {7936, 256, 8064},
		},
		"it follows where more is left":                        {{4000, 4192, 6096}, {3000, 5192, 6096}, {2000, 6192, 5096}},
		"it follows where file pages have moved the threshold": {{4000, 1000, 4500}, {4600, 1000, 5100}, {4600, 1200, 5100}, {4600, 700, 5100 - 150}},
		"it is max once the threshold is crossed":              {{4000, 1000, 4500}, {5000, 0, 0}, {4000, 1000, 0}},
	} {
		t.Run(name, func(t *testing.T) {
			h := high{marks: true}
			for i, s := range steps {
				h.next(time.Unix(1, 0), s.usage*mib, s.left*mib)
				if h.value != s.want*mib {
					t.Fatalf("step %d: at %d MiB, want %d", i, h.value/mib, s.want)
				}
			}
		})
	}
}

// rule: M.91
func TestMarksEndInTheTripwire(t *testing.T) {
	const mib = int64(1) << 20
	h := high{marks: true, tripwire: true}
	for i, s := range []struct{ usage, left, want int64 }{{7000, 1192, 7596}, {8000, 192, 8096}, {8100, 92, 8160}, {8000, 192, 8160}, {7000, 1192, 7596}} {
		h.next(time.Unix(1, 0), s.usage*mib, s.left*mib)
		if h.value != s.want*mib {
			t.Fatalf("step %d: at %d MiB, want %d", i, h.value/mib, s.want)
		}
	}
}

// TestMemoryHighIsTrustedWhereItIsSet has the loop poll seldom only while the kernel has the mark
// and its events are watched.
//
// rule: M.92
func TestMemoryHighIsTrustedWhereItIsSet(t *testing.T) {
	const gib = int64(1) << 30
	h, log := newTestMemoryHigh(t, "max", high{marks: true})
	watched := false
	h.notified = func() bool { return watched }
	levels := func(usage, left int64, want collect.Armed, writes bool) {
		t.Helper()
		if got := h.SetLevels(aims(usage, left)); got != want {
			t.Errorf("armed %v, want %v", got, want)
		}
		select {
		case a := <-h.levels:
			if !writes {
				t.Error("memory.high is looked at again")
			}
			h.report(h.follow(a, time.Unix(1, 0)))
		default:
			if writes {
				t.Error("memory.high is not looked at")
			}
		}
	}
	levels(gib, 4*gib, collect.Unarmed, true)
	levels(gib, 4*gib, collect.Unarmed, false)
	watched = true
	levels(gib, 4*gib, collect.ArmedForPods, false)
	levels(2*gib, 3*gib, collect.ArmedForPods, false)
	levels(3*gib, 2*gib, collect.Unarmed, true) // it was reached
	levels(3*gib, 2*gib, collect.ArmedForPods, false)
	levels(5*gib-64<<20, 64<<20, collect.Unarmed, true)
	levels(5*gib-64<<20, 64<<20, collect.Unarmed, false)
	levels(gib, 4*gib, collect.Unarmed, true)
	if err := os.WriteFile(h.file(), []byte("max\n"), 0o644); err != nil { // as systemd does when it loads its units again
		t.Fatal(err)
	}
	h.report(h.check())
	levels(gib, 4*gib, collect.Unarmed, true)
	levels(gib, 4*gib, collect.ArmedForPods, false)
	require.NoError(t, os.WriteFile(h.file(), []byte("2147483648\n"), 0o644))
	levels(3*gib, 2*gib, collect.Unarmed, true)
	levels(3*gib, 2*gib, collect.Unarmed, true)
	require.NoError(t, h.changes.Close())
	if is, _ := os.ReadFile(h.file()); string(is) != "2147483648\n" {
		t.Errorf("memory.high is %s", is)
	}
	if strings.Count(log.String(), "another program has set it") != 1 {
		t.Errorf("logged %s", log)
	}
}

func newTestMemoryHigh(t *testing.T, was string, with high) (*memoryHigh, *bytes.Buffer) {
	t.Helper()
	dir := t.TempDir()
	file := filepath.Join(dir, "memory.high")
	require.NoError(t, os.WriteFile(file, []byte(was+"\n"), 0o644))
	changes, err := undo.Open(dir)
	require.NoError(t, err)
	t.Cleanup(func() { changes.Close() })
	var log bytes.Buffer
	return &memoryHigh{
		Waiter: unnotified{}, notified: func() bool { return true }, file: func() string { return file }, changes: changes, log: slog.New(slog.NewTextHandler(&log, nil)),
		levels: make(chan collect.MemoryLevels, 1), high: with,
	}, &log
}

// TestMemoryHighOfAKilledEvictdStaysForTwoSeconds has the levels of before that time
// set nothing.
//
// rule: M.94
func TestMemoryHighOfAKilledEvictdStaysForTwoSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const gib = int64(1) << 30
		killed, _ := newTestMemoryHigh(t, "max", high{tripwire: true})
		require.NoError(t, killed.set(gib))
		h, log := newTestMemoryHigh(t, "max", high{tripwire: true})
		h.file, h.dir = killed.file, t.TempDir()
		logs, err := filepath.Glob(filepath.Join(filepath.Dir(killed.file()), "undo-*"))
		if err != nil || len(logs) != 1 {
			t.Fatalf("undo logs %q, %v", logs, err)
		}
		recorded, err := os.ReadFile(logs[0])
		if err == nil { // a copy has no lock, as after the end of a process
			err = os.WriteFile(filepath.Join(h.dir, "undo-killed"), recorded, 0o600)
		}
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { defer close(ended); h.run(ctx) }()
		h.SetLevels(aims(gib/2, gib/4))
		mustBe := func(want string) {
			t.Helper()
			synctest.Wait()
			if text, err := os.ReadFile(h.file()); err != nil || strings.TrimSpace(string(text)) != want {
				t.Errorf("memory.high is %q, %v, want %s; log: %s", text, err, want, log)
			}
		}
		time.Sleep(tripPatience - 1)
		mustBe(strconv.FormatInt(gib, 10))
		time.Sleep(time.Nanosecond)
		mustBe("max")
		h.SetLevels(aims(gib/2, gib/4))
		synctest.Wait()
		if h.placed.Load() == 0 {
			t.Error("memory.high is not set afterwards")
		}
		cancel()
		<-ended
		mustBe("max")
	})
}

// unnotified is a Waiter whose SetLevels arms nothing.
type unnotified struct{ control.Waiter }

func (unnotified) SetLevels(collect.MemoryLevels) collect.Armed { return collect.Unarmed }

func aims(pods, left int64) collect.MemoryLevels {
	return collect.MemoryLevels{{Usage: stats.Known(pods), Threshold: stats.Known(pods + left)}, {Usage: stats.Known(pods)}}
}

func TestTheTripwireIsRemovedByItselfOrByTheNextProcess(t *testing.T) {
	const gib = int64(1) << 30
	wire, log := newTestMemoryHigh(t, "max", high{tripwire: true})
	mustBe := func(want string) {
		t.Helper()
		if is, err := os.ReadFile(wire.file()); err != nil || strings.TrimSpace(string(is)) != want {
			t.Errorf("memory.high is %q, %v, want %s", is, err, want)
		}
	}
	now := time.Unix(1, 0)
	for _, s := range []struct {
		aims collect.MemoryLevels
		want string
	}{
		{aims(gib, gib), "2130706432"},
		{aims(gib, 2*gib), "3196059648"},
		{collect.MemoryLevels{}, "max"}, // nothing is measured
		{aims(gib, gib), "2130706432"},
		{aims(2*gib, 0), "max"},
	} {
		wire.report(wire.follow(s.aims, now))
		mustBe(s.want)
	}
	wire.report(wire.follow(aims(gib, gib), now.Add(2*tripPatience)))
	mustBe("2130706432")
	if log.Len() > 0 {
		t.Errorf("logged %s", log)
	}
	require.NoError(t, wire.changes.Close())
	mustBe("max")
}

func TestMemoryHighOfAnotherProgramIsLeftAlone(t *testing.T) {
	wire, log := newTestMemoryHigh(t, "1073741824", high{marks: true, tripwire: true})
	for _, left := range []int64{1 << 30, 1 << 20, 1 << 30} {
		wire.report(wire.follow(aims(1<<30, left), time.Now()))
		wire.report(wire.check())
		if armed := wire.SetLevels(aims(1<<30, left)); armed != collect.Unarmed {
			t.Errorf("armed %v", armed)
		}
	}
	if is, _ := os.ReadFile(wire.file()); string(is) != "1073741824\n" {
		t.Errorf("memory.high is %s", is)
	}
	if strings.Count(log.String(), "another program has set it") != 1 {
		t.Errorf("logged %s", log)
	}
}

func TestAPodsGroupThatIsNotThereYetIsWaitedFor(t *testing.T) {
	wire, log := newTestMemoryHigh(t, "max", high{marks: true})
	require.NoError(t, os.Remove(wire.file()))
	wire.report(wire.follow(aims(1<<30, 1<<30), time.Now()))
	if log.Len() > 0 {
		t.Errorf("logged %s", log)
	}
}
