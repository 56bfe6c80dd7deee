package osprocess_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/evictd/evictd/internal/osprocess"
	"github.com/evictd/evictd/internal/require"
)

func TestHowLongAgoAMomentWasIsKnownAcrossClockJumpsAndBoots(t *testing.T) {
	noon := time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)
	earlier := osprocess.Instant{Boot: "a", Up: time.Hour, Wall: noon}
	for _, c := range []struct {
		name  string
		now   osprocess.Instant
		ago   time.Duration
		known bool
	}{
		{"in the same boot", osprocess.Instant{"a", time.Hour + time.Second, noon.Add(time.Second)}, time.Second, true},
		{"while the wall clock is set back", osprocess.Instant{"a", time.Hour + time.Second, noon.Add(-time.Hour)}, time.Second, true},
		{"and while it is set forward", osprocess.Instant{"a", time.Hour + time.Second, noon.Add(time.Hour)}, time.Second, true},
		{"in another boot, by the wall clock", osprocess.Instant{"b", 20 * time.Second, noon.Add(time.Minute)}, time.Minute, true},
		{"but not where that says it was after the boot", osprocess.Instant{"b", 20 * time.Second, noon.Add(19 * time.Second)}, 0, false},
		{"nor where that was set back", osprocess.Instant{"b", 20 * time.Second, noon.Add(-time.Hour)}, 0, false},
		{"nor where it is later in the same boot", osprocess.Instant{"a", time.Minute, noon}, 0, false},
	} {
		if ago, known := c.now.Since(earlier); known != c.known || known && ago != c.ago {
			t.Errorf("%s: %v ago, %v", c.name, ago, known)
		}
	}
}

func TestAMomentSurvivesBeingWritten(t *testing.T) {
	began := time.Now()
	before, err := osprocess.Now()
	require.NoError(t, err)
	text, err := json.Marshal(before)
	var read osprocess.Instant
	if err == nil {
		err = json.Unmarshal(text, &read)
	}
	require.NoError(t, err)
	after, err := osprocess.Now()
	require.NoError(t, err)
	if ago, known := after.Since(read); !known || ago < 0 || ago > time.Since(began)+time.Second || after.Boot == "" {
		t.Errorf("%v ago, %v, boot %q", ago, known, after.Boot)
	}
}
