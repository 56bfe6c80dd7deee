package main

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
		"it follows what is left by more than a sixteenth": {{0, 1000, 500, 1468}, {time.Second, 1100, 400, 1468}, {time.Second, 1100, 600, 1668}, {time.Second, 1100, 590, 1668}},
		"it is not begun with where polling sees all":      {{0, 1000, 64, 0}, {time.Second, 1000, 65, 1033}},
		"it is never put below the usage":                  {{0, 1000, 500, 1468}, {time.Second, 1000, 20, 1468}},
		"it lets go once the threshold is crossed":         {{0, 1000, 500, 1468}, {time.Second, 1468, 0, 0}, {time.Second, 900, 600, 0}, {2 * time.Second, 900, 600, 1468}},
		"who stands at it goes free in time, for a while": {
			{0, 1000, 500, 1468}, {time.Second, 1468, 32, 1468}, {2 * time.Second, 1468, 32, 1468}, {time.Millisecond, 1468, 32, 0},
			{59 * time.Second, 1000, 500, 0}, {2 * time.Second, 1000, 500, 1468},
		},
		"who turns back before has time anew": {
			{0, 1000, 500, 1468}, {time.Second, 1468, 32, 1468}, {time.Second, 1400, 100, 1468}, {5 * time.Second, 1468, 32, 1468}, {2 * time.Second, 1468, 32, 1468},
		},
		"file pages move it out of the way": {{0, 1000, 500, 1468}, {time.Second, 1468, 500, 1936}},
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
	return &tripwire{file: file, changes: changes, log: slog.New(slog.NewTextHandler(&log, nil))}, &log
}

func aims(pods, left int64) collect.Aims {
	return collect.Aims{{Usage: stats.Known(pods), Mark: stats.Known(pods + left)}, {Usage: stats.Known(pods)}}
}

func TestTheTripwireIsTakenAwayByItselfOrByWhoeverComesNext(t *testing.T) {
	const gib = int64(1) << 30
	wire, _ := newTestTripwire(t, "max")
	mustBe := func(want string) {
		t.Helper()
		if is, err := os.ReadFile(wire.file); err != nil || strings.TrimSpace(string(is)) != want {
			t.Errorf("memory.high is %q, %v, want %s", is, err, want)
		}
	}
	for _, s := range []struct {
		aims collect.Aims
		want string
	}{
		{aims(gib, gib), "2113929216"},
		{aims(gib, 2*gib), "3187671040"},
		{collect.Aims{}, "max"}, // nothing is measured
		{aims(gib, gib), "2113929216"},
		{aims(2*gib, 0), "max"},
	} {
		wire.tell(wire.follow(s.aims, time.Now()))
		mustBe(s.want)
	}
	wire.rests = time.Time{}
	wire.tell(wire.follow(aims(gib, gib), time.Now()))
	mustBe("2113929216")
	if err := wire.changes.Close(); err != nil {
		t.Fatal(err)
	}
	mustBe("max")
}

func TestMemoryHighOfSomebodyElseIsLeftAlone(t *testing.T) {
	wire, log := newTestTripwire(t, "1073741824")
	for range 3 {
		wire.tell(wire.follow(aims(1<<30, 1<<30), time.Now()))
	}
	if is, _ := os.ReadFile(wire.file); string(is) != "1073741824\n" {
		t.Errorf("memory.high is %s", is)
	}
	if strings.Count(log.String(), "somebody else has set it") != 1 {
		t.Errorf("logged %s", log)
	}
}

func TestAPodsGroupThatIsNotThereYetIsWaitedFor(t *testing.T) {
	wire, log := newTestTripwire(t, "max")
	if err := os.Remove(wire.file); err != nil {
		t.Fatal(err)
	}
	wire.tell(wire.follow(aims(1<<30, 1<<30), time.Now()))
	if log.Len() > 0 {
		t.Errorf("logged %s", log)
	}
}
