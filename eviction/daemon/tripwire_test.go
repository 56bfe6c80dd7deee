package daemon

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/evictd/evictd/eviction/undo"
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
		"it lets go once the threshold is crossed":         {{0, 11000, 500, 11468}, {time.Second, 11468, 0, 0}, {time.Second, 10900, 600, 0}, {2 * time.Second, 10900, 600, 11468}},
		"who stands at it goes free in time, for a while": {
			{0, 11000, 500, 11468}, {time.Second, 11468, 32, 11468}, {2 * time.Second, 11468, 32, 11468}, {time.Millisecond, 11468, 32, 0},
			{59 * time.Second, 11000, 500, 0}, {2 * time.Second, 11000, 500, 11468},
		},
		"who turns back before has time anew": {
			{0, 11000, 500, 11468}, {time.Second, 11468, 32, 11468}, {time.Second, 11400, 100, 11468}, {5 * time.Second, 11468, 32, 11468}, {2 * time.Second, 11468, 32, 11468},
		},
		"file pages move it out of the way":                                    {{0, 11000, 500, 11468}, {time.Second, 11468, 500, 11936}},
		"it is so near in a small group that nobody is kept from the crossing": {{0, 980, 300, 1270}},
	} {
		t.Run(name, func(t *testing.T) {
			var w trip
			now := time.Unix(1, 0)
			for i, s := range steps {
				now = now.Add(s.after)
				w.next(now, s.usage*mib, s.left*mib)
				if w.high != s.want*mib {
					t.Fatalf("step %d: at %d MiB, want %d", i, w.high/mib, s.want)
				}
			}
		})
	}
}

func newTestTripwire(t *testing.T, was string) (*tripwire, *bytes.Buffer) {
	t.Helper()
	dir := t.TempDir()
	file := filepath.Join(dir, "memory.high")
	if err := os.WriteFile(file, []byte(was+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	changes, err := undo.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { changes.Close() })
	var log bytes.Buffer
	return &tripwire{file: func() string { return file }, changes: changes, log: slog.New(slog.NewTextHandler(&log, nil))}, &log
}

func aims(pods, left int64) collect.MemoryLevels {
	return collect.MemoryLevels{{Usage: stats.Known(pods), Threshold: stats.Known(pods + left)}, {Usage: stats.Known(pods)}}
}

func TestTheTripwireIsRemovedByItselfOrByTheNextProcess(t *testing.T) {
	const gib = int64(1) << 30
	wire, log := newTestTripwire(t, "max")
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
	if err := wire.changes.Close(); err != nil {
		t.Fatal(err)
	}
	mustBe("max")
}

func TestMemoryHighOfAnotherProgramIsLeftAlone(t *testing.T) {
	wire, log := newTestTripwire(t, "1073741824")
	for range 3 {
		wire.report(wire.follow(aims(1<<30, 1<<30), time.Now()))
	}
	if is, _ := os.ReadFile(wire.file()); string(is) != "1073741824\n" {
		t.Errorf("memory.high is %s", is)
	}
	if strings.Count(log.String(), "another program has set it") != 1 {
		t.Errorf("logged %s", log)
	}
}

func TestAPodsGroupThatIsNotThereYetIsWaitedFor(t *testing.T) {
	wire, log := newTestTripwire(t, "max")
	if err := os.Remove(wire.file()); err != nil {
		t.Fatal(err)
	}
	wire.report(wire.follow(aims(1<<30, 1<<30), time.Now()))
	if log.Len() > 0 {
		t.Errorf("logged %s", log)
	}
}
