package control_test

import (
	"slices"
	"testing"
	"time"

	"github.com/evictd/evictd/eviction"
	"github.com/evictd/evictd/eviction/kill"
	"github.com/evictd/evictd/stats"
)

// TestTheLoopLooksAsOftenAsTheNearestHardThresholdAsks reads the poll interval
// off the readings, once the world has stood still for a while.
func TestTheLoopLooksAsOftenAsTheNearestHardThresholdAsks(t *testing.T) {
	memorySoft := []eviction.Threshold{soft(eviction.MemoryAvailable, gibi, time.Minute)}
	for _, c := range []struct {
		name string
		setting
		after time.Duration
		want  time.Duration
	}{
		{"far from it, once a second", setting{node: memory(32 * gibi), thresholds: memoryHard}, 5 * time.Second, time.Second},
		{"nearer, before it can be reached", setting{node: memory(gibi + 600*mebi), thresholds: memoryHard}, 5 * time.Second, 97700 * time.Microsecond},
		{"near it, every few milliseconds", setting{node: memory(gibi + mebi), thresholds: memoryHard}, 5 * time.Second, 5 * time.Millisecond},
		{"below it while a victim ends", setting{node: memory(mebi), thresholds: memoryHard, pods: []*pod{ending(using("a", gibi), immortal)}}, 5 * time.Second, 5 * time.Millisecond},
		{"below it where nobody can go, once a second", setting{node: memory(mebi), thresholds: memoryHard}, 5 * time.Second, time.Second},
		{"below it where the last victim does not end, once a second", setting{node: memory(mebi), thresholds: memoryHard, pods: []*pod{ending(using("a", gibi), immortal)}}, 15 * time.Second, time.Second},
		{"below it where no kill can begin, once a second",
			setting{node: memory(mebi), thresholds: memoryHard, pods: []*pod{ending(using("a", gibi), slices.Repeat([]end{{refused: kill.ErrStopped}}, 1000)...)}}, 5 * time.Second, time.Second},
		{"below another where nobody can go, as near as this one is",
			setting{node: disk(memory(gibi+mebi), 0), thresholds: []eviction.Threshold{memoryHard[0], hard(eviction.NodeFsAvailable, gibi)}, pods: []*pod{storing("a", 0)}}, 5 * time.Second, 5 * time.Millisecond},
		{"below a soft one only, once a second", setting{node: memory(mebi), thresholds: memorySoft}, 5 * time.Second, time.Second},
		{"where nothing is measured, once a second", setting{thresholds: memoryHard}, 5 * time.Second, time.Second},
		{"the nearest of several counts",
			setting{node: pids(memory(32*gibi), 2000), thresholds: []eviction.Threshold{memoryHard[0], hard(eviction.PIDAvailable, 1000)}}, 5 * time.Second, 10 * time.Millisecond},
		{"below it while the disks are surveyed",
			setting{node: disk(stats.Node{}, 0), thresholds: diskHard, pods: []*pod{storing("a", gibi)}, survey: &survey{takes: -1}}, 3 * time.Second, 5 * time.Millisecond},
	} {
		t.Run(c.name, func(t *testing.T) {
			within(t, c.setting, func(w *world) {
				w.at(c.after)
				if got := w.sensor.gap(); got != c.want {
					t.Errorf("looked every %v, want %v", got, c.want)
				}
			})
		})
	}
}
