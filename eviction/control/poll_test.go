package control_test

import (
	"slices"
	"testing"
	"time"

	"github.com/evictd/evictd/eviction"
	"github.com/evictd/evictd/eviction/control"
	"github.com/evictd/evictd/eviction/kill"
	"github.com/evictd/evictd/stats"
	"github.com/evictd/evictd/stats/collect"
)

// TestTheLoopLooksAsOftenAsTheNearestHardThresholdAsks reads the poll interval
// off the readings, once nothing has changed for a while.
//
// rule: M.52
// rule: M.92
// rule: M.93
func TestTheLoopLooksAsOftenAsTheNearestHardThresholdAsks(t *testing.T) {
	memorySoft := []eviction.Threshold{soft(eviction.MemoryAvailable, gibi, time.Minute)}
	for _, c := range []struct {
		name string
		setting
		after time.Duration
		want  time.Duration
	}{
		{"far from it, once a second", setting{node: memory(32 * gibi), thresholds: memoryHard}, 5 * time.Second, time.Second},
		{"every five where the kernel notifies at half the distance", setting{node: memory(32 * gibi), thresholds: memoryHard, before: armed}, 8 * time.Second, 5 * time.Second},
		{"whatever a disk far from its own has", setting{node: disk(memory(32*gibi), 90*gibi), thresholds: append(memoryHard[:1:1], diskHard...), before: armed}, 8 * time.Second, 5 * time.Second},
		{"and a second before the next housekeeping pass", setting{node: memory(32 * gibi), thresholds: memoryHard, before: armed}, 9500 * time.Millisecond, 4 * time.Second},
		{"but once a second where file pages are more than the other half", setting{node: cached(memory(32*gibi), 16*gibi), thresholds: memoryHard, before: armed}, 8 * time.Second, time.Second},
		{"or process ids have a threshold", setting{node: pids(memory(32*gibi), 1<<20), thresholds: []eviction.Threshold{memoryHard[0], hard(eviction.PIDAvailable, 1000)}, before: armed}, 8 * time.Second, time.Second},
		{"whatever a group has that is not limited", setting{node: unlimited(memory(32 * gibi)), thresholds: []eviction.Threshold{memoryHard[0], hard(eviction.AllocatableMemoryAvailable, gibi)}, before: armed}, 8 * time.Second, 5 * time.Second},
		{"where it notifies of the pods alone, before a processor can use up outside of them what is left",
			setting{node: memory(5 * gibi), thresholds: memoryHard, before: armedForPods}, 8 * time.Second, 2 * time.Second},
		{"every five seconds farther away", setting{node: memory(32 * gibi), thresholds: memoryHard, before: armedForPods}, 8 * time.Second, 5 * time.Second},
		{"whatever is left to the pods alone", setting{node: ofPods(memory(32*gibi), 3*gibi), thresholds: []eviction.Threshold{memoryHard[0], hard(eviction.AllocatableMemoryAvailable, gibi)}, before: armedForPods}, 8 * time.Second, 5 * time.Second},
		{"more often the more processors there are", setting{node: memory(9 * gibi), processors: 16, thresholds: memoryHard}, 5 * time.Second, 250 * time.Millisecond},
		{"as with three where there are fewer", setting{node: memory(gibi + 600*mebi), processors: 2, thresholds: memoryHard}, 5 * time.Second, 97700 * time.Microsecond},
		{"nearer, before it can be reached", setting{node: memory(gibi + 600*mebi), thresholds: memoryHard}, 5 * time.Second, 97700 * time.Microsecond},
		{"and less often where the kernel notifies of the crossing", setting{node: memory(gibi + 300*mebi), thresholds: memoryHard, before: armed}, 5 * time.Second, 781300 * time.Microsecond},
		{"but not where file pages would be reclaimed before the crossing", setting{node: cached(memory(gibi+300*mebi), 2*gibi), thresholds: memoryHard, before: armed}, 5 * time.Second, 48800 * time.Microsecond},
		{"near it, every few milliseconds", setting{node: memory(gibi + mebi), thresholds: memoryHard}, 5 * time.Second, 5 * time.Millisecond},
		{"below it while a victim ends", setting{node: memory(mebi), thresholds: memoryHard, pods: []*pod{ending(using("a", gibi), immortal)}}, 5 * time.Second, 5 * time.Millisecond},
		{"below it where no pod can be evicted, once a second", setting{node: memory(mebi), thresholds: memoryHard}, 5 * time.Second, time.Second},
		{"below it where the last victim does not end, once a second", setting{node: memory(mebi), thresholds: memoryHard, pods: []*pod{ending(using("a", gibi), immortal)}}, 15 * time.Second, time.Second},
		{"below it where no kill can begin, once a second",
			setting{node: memory(mebi), thresholds: memoryHard, pods: []*pod{ending(using("a", gibi), slices.Repeat([]end{{refused: kill.ErrStopped}}, 1000)...)}}, 5 * time.Second, time.Second},
		{"below another where no pod can be evicted, as near as this one is",
			setting{node: disk(memory(gibi+mebi), 0), thresholds: []eviction.Threshold{memoryHard[0], hard(eviction.NodeFsAvailable, gibi)}, pods: []*pod{storing("a", 0)}}, 5 * time.Second, 5 * time.Millisecond},
		{"below a soft one only, once a second", setting{node: memory(mebi), thresholds: memorySoft}, 5 * time.Second, time.Second},
		{"where nothing is measured, once a second", setting{thresholds: memoryHard}, 5 * time.Second, time.Second},
		{"the nearest of several counts",
			setting{node: pids(memory(32*gibi), 2000), thresholds: []eviction.Threshold{memoryHard[0], hard(eviction.PIDAvailable, 1000)}}, 5 * time.Second, 10 * time.Millisecond},
		{"below it while the disks are scanned",
			setting{node: disk(stats.Node{}, 0), thresholds: diskHard, pods: []*pod{storing("a", gibi)}, scanner: &scanner{takes: -1}}, 3 * time.Second, 5 * time.Millisecond},
	} {
		t.Run(c.name, func(t *testing.T) {
			withLoop(t, c.setting, func(w *fixture) {
				w.at(c.after)
				if got := w.sensor.gap(); got != c.want {
					t.Errorf("looked every %v, want %v", got, c.want)
				}
			})
		})
	}
}

// unlimited is a node whose pods may use all of it.
func unlimited(n stats.Node) stats.Node {
	n.PodsMemory.Usage = stats.Known(gibi)
	return n
}

// ofPods is a node whose pods may use so much more.
func ofPods(n stats.Node, available int64) stats.Node {
	n.PodsMemory = stats.Memory{Limit: stats.Known(32 * gibi), Usage: stats.Known(32*gibi - available)}
	return n
}

func armed(w *fixture)        { w.waiter.armed = collect.ArmedForNode }
func armedForPods(w *fixture) { w.waiter.armed = collect.ArmedForPods }

// cached is a node with as much of file pages beside what it uses.
func cached(n stats.Node, bytes int64) stats.Node {
	n.Memory.Usage, n.Memory.InactiveFile = stats.Known(n.Memory.Usage.Or(0)+bytes), stats.Known(bytes)
	return n
}

func TestANoticeOfTheKernelIsFollowedAtOnceAndNamedInTheReport(t *testing.T) {
	withLoop(t, setting{thresholds: memoryHard, node: plenty, pods: []*pod{using("a", gibi)}}, func(w *fixture) {
		w.at(500 * time.Millisecond)
		w.sensor.set(short)
		w.waiter.notify("memcg-threshold")
		w.at(501 * time.Millisecond)
		w.expect("500ms kill a")
		for _, r := range w.reported() {
			if len(r.Decisions) > 0 && r.Ended == nil && r.Source != "memcg-threshold" {
				t.Errorf("decided for %q", r.Source)
			}
		}
	})
}

func TestANoticeAloneDecidesNothing(t *testing.T) {
	withLoop(t, setting{thresholds: memoryHard, node: plenty, pods: []*pod{using("a", gibi)}}, func(w *fixture) {
		w.at(500 * time.Millisecond)
		w.waiter.notify("memory-stall")
		w.at(5 * time.Second)
		w.expect()
	})
}

func TestAHailOfNoticesIsFollowedOnceAMillisecond(t *testing.T) {
	withLoop(t, setting{thresholds: memoryHard, node: plenty}, func(w *fixture) {
		w.at(500 * time.Millisecond)
		before := w.sensor.count()
		for range 1000 {
			w.waiter.notify("memcg-threshold")
			time.Sleep(10 * time.Microsecond)
		}
		w.at(520 * time.Millisecond)
		if passes := w.sensor.count() - before; passes < 5 || passes > 20 {
			t.Errorf("%d passes for 1000 notices in 10 ms", passes)
		}
	})
}

func TestANoticeJustBeforeTheCrossingIsFollowedEveryMillisecondForAWhile(t *testing.T) {
	withLoop(t, setting{thresholds: memoryHard, node: memory(gibi + mebi), before: armed}, func(w *fixture) {
		w.at(time.Second + 100*time.Microsecond)
		w.waiter.notify("memcg-threshold")
		for _, c := range []struct{ after, want time.Duration }{{10 * time.Millisecond, time.Millisecond}, {50 * time.Millisecond, 5 * time.Millisecond}} {
			w.at(time.Second + c.after)
			if gap := w.sensor.gap(); gap != c.want {
				t.Errorf("looked every %v %v after the notice, want %v", gap, c.after, c.want)
			}
		}
	})
}

// TestASlowMachineIsNotPolledWithMoreThanAThirdOfAProcessor has passes of 8 ms, as on an emulated
// processor, near a threshold and with notifications: below the budget of the loop's thread.
//
// rule: M.90
func TestASlowMachineIsNotPolledWithMoreThanAThirdOfAProcessor(t *testing.T) {
	const pass = 8 * time.Millisecond
	slow := func(w *fixture) { w.sensor.takes = pass }
	bounded := func(w *fixture, p *control.Ports) { p.CPUTime = w.sensor.used }
	withLoop(t, setting{thresholds: memoryHard, node: memory(gibi + mebi), before: slow, wrap: bounded}, func(w *fixture) {
		for second := 1; second <= 20; second++ {
			before := w.sensor.used()
			for i := 1; i <= 100; i++ {
				if second > 10 {
					w.waiter.notify("memory-events")
				}
				w.at(time.Duration(second-1)*time.Second + time.Duration(i)*10*time.Millisecond)
			}
			if used := w.sensor.used() - before; used < 200*time.Millisecond || used > 450*time.Millisecond {
				t.Errorf("second %d: %v of processor time", second, used)
			}
		}
	})
}

func TestFastFallIsFollowedEveryMillisecondBeforeTheCrossing(t *testing.T) {
	withLoop(t, setting{thresholds: memoryHard, node: memory(gibi + 600*mebi)}, func(w *fixture) {
		w.at(time.Second)
		for left := gibi + 600*mebi; left > gibi+5*mebi; left -= 5 * mebi {
			w.sensor.set(memory(left))
			time.Sleep(time.Millisecond)
		}
		if gap := w.sensor.gap(); gap != time.Millisecond {
			t.Errorf("looked every %v", gap)
		}
	})
}

func TestTheLoopAimsAtTheUseThatCrossesTheNearestHardThreshold(t *testing.T) {
	node := memory(10 * gibi)
	node.Memory.InactiveFile = stats.Known(gibi)
	node.PodsMemory = stats.Memory{Limit: stats.Known(32 * gibi), Usage: stats.Known(20 * gibi)}
	thresholds := []eviction.Threshold{
		hard(eviction.MemoryAvailable, gibi), soft(eviction.MemoryAvailable, 2*gibi, time.Minute), hard(eviction.AllocatableMemoryAvailable, gibi),
	}
	withLoop(t, setting{thresholds: thresholds, node: node}, func(w *fixture) {
		w.at(time.Second)
		want := collect.MemoryLevels{
			{Usage: stats.Known(54 * gibi), Threshold: stats.Known(64 * gibi)}, // 63 GiB, and a GiB of file pages
			{Usage: stats.Known(20 * gibi), Threshold: stats.Known(31 * gibi)},
		}
		if got := w.waiter.aimed(); got != want {
			t.Errorf("aims at %v, want %v", got, want)
		}
	})
}
