package eviction_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/evictd/evictd/eviction"
	"github.com/evictd/evictd/stats"
)

// rule: M.31
func TestADiskNeedsWhatResolvesAllItsThresholds(t *testing.T) {
	thresholds := []eviction.Threshold{
		{Signal: eviction.NodeFsAvailable, Value: eviction.Value{Amount: 10}, MinReclaim: eviction.Value{Amount: 5}},
		{Signal: eviction.ImageFsAvailable, Value: eviction.Value{Amount: 20}, Grace: time.Hour},
		{Signal: eviction.NodeFsInodesFree, Value: eviction.Value{Amount: 30}},
		{Signal: eviction.ImageFsInodesFree, Value: eviction.Value{Amount: 40}},
	}
	var signals eviction.Observations
	for s, left := range map[eviction.Signal]int64{eviction.NodeFsAvailable: 9, eviction.ImageFsAvailable: 9, eviction.NodeFsInodesFree: 29, eviction.ImageFsInodesFree: 50} {
		signals[s].Available = stats.Known(left)
	}
	for _, c := range []struct {
		layout     eviction.Layout
		thresholds []eviction.Threshold
		signal     eviction.Signal
		want       eviction.Need
	}{
		{eviction.SharedFs, thresholds, eviction.NodeFsAvailable, eviction.Need{Bytes: 11, Inodes: 1, Layers: true, Logs: true}},
		{eviction.SplitFs, thresholds, eviction.NodeFsAvailable, eviction.Need{Bytes: 6, Inodes: 1, Layers: true, Logs: true}},
		{eviction.ImageFs, []eviction.Threshold{{Signal: eviction.ImageFsAvailable, Value: eviction.Value{Amount: 20}}}, eviction.ImageFsAvailable, eviction.Need{Bytes: 11, Layers: true}},
	} {
		cfg := eviction.New(eviction.Config{Thresholds: c.thresholds}, c.layout)
		if _, d := eviction.Decide(&cfg, eviction.State{}, eviction.Input{Now: start, Signals: signals}); d.ReclaimFor != c.signal || d.ReclaimNeed != c.want {
			t.Errorf("%v: reclaim for %v: %+v, want %+v", c.layout, d.ReclaimFor, d.ReclaimNeed, c.want)
		}
	}
}

func TestAPatientDiskLosesNoPodAndAsksOnce(t *testing.T) {
	everywhere(t, func(t *testing.T, r *rand.Rand) {
		n := anyNode(r)
		for range 12 {
			for _, c := range n.pass(t, r, anyKind(r)) {
				for disk, before := range c.before.Reclaims {
					after := c.after.Reclaims[disk]
					went := !before.Since.IsZero() && !after.Since.IsZero()
					if went && !before.Since.Equal(after.Since) {
						t.Errorf("a reclaim was begun over another: %+v, %+v", before, after)
					}
					if !after.Since.IsZero() && !after.Rest.IsZero() {
						t.Errorf("a reclaim runs and is not due before a time: %+v", after)
					}
				}
				if d := c.out; len(d.Reclaim) > 0 && d.ReclaimNeed.Bytes <= 0 && d.ReclaimNeed.Inodes <= 0 {
					t.Errorf("a reclaim is asked for that frees nothing: %s", text(d))
				}
			}
		}
	})
}
