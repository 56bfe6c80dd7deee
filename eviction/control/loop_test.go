package control_test

import (
	"errors"
	"fmt"
	"io/fs"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/evictd/evictd/eviction"
	"github.com/evictd/evictd/eviction/kill"
	"github.com/evictd/evictd/stats"
)

func quantity(n int64) *resource.Quantity { return resource.NewQuantity(n, resource.BinarySI) }

var (
	memoryHard = []eviction.Threshold{hard(eviction.MemoryAvailable, gibi)}
	diskHard   = []eviction.Threshold{hard(eviction.NodeFsAvailable, gibi)}
	plenty     = memory(32 * gibi)
	short      = memory(900 * mebi)
	spent      = memory(200 * mebi) // less than a quarter of the threshold
	immortal   = end{after: -1}
)

// ending makes a pod whose kills end so.
func ending(p *pod, ends ...end) *pod {
	p.ends = ends
	return p
}

func requesting(p *pod, memory int64) *pod {
	p.request = memory
	return p
}

// rule: M.46
// rule: M.64
// rule: M.95
func TestWhichPodIsKilledAndWhen(t *testing.T) {
	for _, c := range []struct {
		name string
		setting
		run  func(*fixture)
		want []string
	}{
		{
			"a hard threshold is acted on between housekeeping passes",
			setting{thresholds: memoryHard, node: plenty, pods: []*pod{using("a", gibi)}},
			func(w *fixture) { w.at(12500 * time.Millisecond); w.sensor.set(short); w.at(15 * time.Second) },
			[]string{"13s kill a"},
		},
		{
			"another pod follows one that holds its memory 200 ms after SIGKILL was sent, not when it was due",
			setting{thresholds: memoryHard, node: plenty, relief: true, late: 700 * time.Millisecond, pods: []*pod{ending(using("a", gibi), immortal), ending(using("b", gibi/8), immortal)}},
			func(w *fixture) { w.at(12500 * time.Millisecond); w.sensor.set(spent); w.at(15 * time.Second) },
			[]string{"13s kill a", "13.9s kill b"},
		},
		{
			"a pod of exited processes is not killed again and again, nor when pods are added meanwhile",
			setting{thresholds: memoryHard, node: plenty, pods: []*pod{
				ending(using("a", gibi), end{unreaped: true}, end{unreaped: true}), using("b", gibi/8),
			}},
			func(w *fixture) {
				w.at(12500 * time.Millisecond)
				w.sensor.set(short)
				w.at(13050 * time.Millisecond)
				w.setPods(w.pods[0], w.pods[1], ending(using("c", mebi), immortal))
				w.at(15 * time.Second)
			},
			[]string{"13s kill a", "13s kill b", "13.1s kill c"},
		},
		{
			"a pod within its request stays while unknown pods run",
			setting{thresholds: memoryHard, node: plenty, pods: []*pod{requesting(using("a", gibi), 2*gibi)}, unknown: true},
			func(w *fixture) {
				w.at(12500 * time.Millisecond)
				w.sensor.set(short)
				w.at(13500 * time.Millisecond)
				w.setPods(requesting(using("a", gibi), 2*gibi), using("b", gibi/8))
				w.at(13550 * time.Millisecond)
			},
			[]string{"13.5s kill b"},
		},
		{
			"a soft threshold is seen in housekeeping passes alone, and acted on when its grace ends",
			setting{thresholds: []eviction.Threshold{soft(eviction.MemoryAvailable, gibi, 5*time.Second)}, node: plenty, pods: []*pod{using("a", gibi)}},
			func(w *fixture) { w.at(12500 * time.Millisecond); w.sensor.set(short); w.at(35 * time.Second) },
			[]string{"25s kill a in 1m0s"},
		},
		{
			"the next pass follows a victim's end at once",
			setting{thresholds: memoryHard, node: short, pods: []*pod{using("a", 3*gibi), using("b", 2*gibi), using("c", gibi)}},
			func(w *fixture) { w.at(5 * time.Second) },
			[]string{"0s kill a", "100ms kill b", "200ms kill c"},
		},
		{
			"a pod that has ended is not killed again for the memory that its cgroup still has",
			setting{thresholds: memoryHard, node: short, pods: []*pod{{name: "a", leaves: true, usage: stats.Pod{Memory: stats.Known(3 * gibi), Processes: stats.Known(1)}}, ending(using("b", 2*gibi), immortal)}},
			func(w *fixture) { w.at(5 * time.Second) },
			[]string{"0s kill a", "100ms kill b"},
		},
		{
			"a pod that has ended by itself is not killed for the memory that its cgroup still has, and is no candidate any more",
			setting{thresholds: memoryHard, node: short, pods: []*pod{{name: "a", ended: true, usage: stats.Pod{Memory: stats.Known(3 * gibi), Processes: stats.Known(0)}}, using("b", 2*gibi), ending(using("c", gibi), immortal)}},
			func(w *fixture) { w.at(5 * time.Second) },
			[]string{"0s kill b", "100ms kill c"},
		},
		{
			"a kill that cannot begin gives way to the next candidate of the same pass",
			setting{thresholds: memoryHard, node: short, pods: []*pod{ending(using("a", 3*gibi), end{refused: kill.ErrFull}), using("b", 2*gibi)}},
			func(w *fixture) { w.at(5 * time.Second) },
			[]string{"0s kill a: too many pods are being killed", "0s kill b", "100ms kill a"},
		},
		{
			"a kill that reaches no process gives way to the next candidate",
			setting{thresholds: memoryHard, node: short, pods: []*pod{ending(using("a", 3*gibi), end{after: time.Second, err: kill.ErrNotSignalled}, end{after: -1}), ending(using("b", 2*gibi), immortal)}},
			func(w *fixture) { w.at(5 * time.Second) },
			[]string{"0s kill a", "1s kill b"},
		},
		{
			"a victim that outlives its grace stays in flight, and the next one is killed when it is overdue",
			setting{thresholds: memoryHard, node: short, pods: []*pod{ending(using("a", 3*gibi), end{after: 11010 * time.Millisecond, err: kill.ErrPopulated}), ending(using("b", 2*gibi), immortal)}},
			func(w *fixture) { w.at(21 * time.Second) },
			[]string{"0s kill a", "11s kill b"},
		},
		{
			"a victim of a disk has a minute to free what would be enough",
			setting{thresholds: diskHard, node: disk(stats.Node{}, 0), pods: []*pod{storing("a", gibi), storing("b", gibi/2)}},
			func(w *fixture) { w.at(65 * time.Second) },
			[]string{"0s kill a", "1m1s kill b"},
		},
		{
			"a victim of process ids counts until it is reaped, ten seconds at most",
			setting{thresholds: []eviction.Threshold{hard(eviction.PIDAvailable, 10)}, node: pids(stats.Node{}, 5), pods: []*pod{
				{name: "a", lingers: true, usage: stats.Pod{Processes: stats.Known(3)}},
				{name: "b", lingers: true, usage: stats.Pod{Processes: stats.Known(2)}},
				ending(&pod{name: "c", usage: stats.Pod{Processes: stats.Known(1)}}, immortal),
			}},
			func(w *fixture) { w.at(3 * time.Second); w.pods[0].reap(); w.at(15 * time.Second) },
			[]string{"0s kill a", "3.001s kill b", "13.101s kill c"},
		},
		{
			"also where its cgroup is gone before, for the node counts them",
			setting{thresholds: []eviction.Threshold{hard(eviction.PIDAvailable, 10)}, node: pids(stats.Node{}, 5), pods: []*pod{
				{name: "a", lingers: true, usage: stats.Pod{Processes: stats.Known(3)}},
				{name: "b", lingers: true, usage: stats.Pod{Processes: stats.Known(2)}},
				ending(&pod{name: "c", usage: stats.Pod{Processes: stats.Known(1)}}, immortal),
			}},
			func(w *fixture) {
				w.at(500 * time.Millisecond)
				w.pods[0].vanish()
				w.at(3 * time.Second)
				w.sensor.set(pids(stats.Node{}, 8))
				w.at(4 * time.Second)
				w.pods[1].vanish()
				w.at(15 * time.Second)
			},
			[]string{"0s kill a", "3.001s kill b", "13.101s kill c"},
		},
		{
			"what has ended is no candidate, nor is what cannot be killed",
			setting{thresholds: memoryHard, node: short, pods: []*pod{
				{name: "ended", usage: stats.Pod{Memory: stats.Known(9 * gibi), Processes: stats.Known(0)}},
				{name: "vanished", usage: stats.Pod{Memory: stats.Known(9 * gibi)}, fault: fmt.Errorf("cgroup: %w", fs.ErrNotExist)},
				{name: "lost", lost: true, usage: stats.Pod{Memory: stats.Known(9 * gibi), Processes: stats.Known(1)}},
				ending(using("alive", mebi), immortal),
			}},
			func(w *fixture) { w.at(time.Minute) },
			[]string{"0s kill alive"},
		},
		{
			"a pod that can be measured in part keeps its place, one that cannot at all ranks last",
			setting{thresholds: memoryHard, node: short, pods: []*pod{
				{name: "dark", fault: errors.New("permission denied")},
				using("small", mebi),
				{name: "dim", usage: stats.Pod{Memory: stats.Known(3 * gibi)}, fault: errors.New("permission denied")},
			}},
			func(w *fixture) { w.at(250 * time.Millisecond) },
			[]string{"0s kill dim", "100ms kill small", "200ms kill dark"},
		},
		{
			"a signal that cannot be read evicts no pod until it can",
			setting{thresholds: memoryHard, node: plenty, pods: []*pod{using("a", gibi)}},
			func(w *fixture) {
				w.at(2500 * time.Millisecond)
				w.sensor.set(stats.Node{})
				w.at(59500 * time.Millisecond)
				w.expect()
				w.sensor.set(short)
				w.at(61 * time.Second)
			},
			[]string{"1m0s kill a"},
		},
		{
			"new pods replace the old ones, and are looked at once",
			setting{thresholds: memoryHard, node: short, pods: []*pod{ending(using("a", gibi), immortal)}},
			func(w *fixture) {
				w.at(12500 * time.Millisecond)
				w.setPods(using("b", gibi))
				w.at(14 * time.Second)
			},
			[]string{"0s kill a", "12.5s kill b"},
		},
		{
			"a limit of a pod's own is held to in housekeeping passes",
			setting{limits: true, node: plenty, pods: []*pod{{name: "a", limited: true, usage: stats.Pod{
				Processes: stats.Known(1), Containers: []stats.Container{{Rootfs: stats.Known(1001 * gibi)}}}}}},
			func(w *fixture) { w.at(15 * time.Second) },
			[]string{"10s kill a"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			withLoop(t, c.setting, func(w *fixture) {
				c.run(w)
				w.expect(c.want...)
			})
		})
	}
}

func TestOneConfigurationFollowsAnother(t *testing.T) {
	const grace = 25 * time.Second
	before := []eviction.Threshold{soft(eviction.MemoryAvailable, gibi, grace)}
	for _, c := range []struct {
		name       string
		thresholds []eviction.Threshold
		want       []string
	}{
		{"a threshold that stays keeps its standing", append(before[:1:1], hard(eviction.PIDAvailable, 10)), []string{"25s kill a in 1m0s"}},
		{"the grace of a threshold that changes starts again", []eviction.Threshold{soft(eviction.MemoryAvailable, gibi+mebi, grace)}, []string{"40s kill a in 1m0s"}},
		{"a threshold that is gone acts no more", nil, nil},
		{"a hard one acts at once", memoryHard, []string{"15s kill a"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			withLoop(t, setting{thresholds: before, node: short, pods: []*pod{ending(using("a", gibi), immortal)}}, func(w *fixture) {
				w.at(15 * time.Second)
				cfg := (&setting{thresholds: c.thresholds}).config()
				cfg.HousekeepingInterval = 3 * time.Second // stays as it was
				w.Configure(cfg)
				w.at(55 * time.Second)
				w.expect(c.want...)
			})
		})
	}
}

func TestADryRunTouchesNothingAndRepeatsItselfOnlyWhenTheVictimWouldBeGone(t *testing.T) {
	withLoop(t, setting{thresholds: memoryHard, node: short, pods: []*pod{using("a", gibi), using("b", mebi)}, dryRun: true}, func(w *fixture) {
		w.at(21 * time.Second)
		w.expect()
		var evicted []string
		for _, r := range w.reported() {
			for _, d := range r.Decisions {
				for _, e := range d.Evictions {
					if !r.DryRun {
						t.Error("the report does not say that it is of a dry run")
					}
					evicted = append(evicted, r.At.Sub(w.begun).Round(10*time.Millisecond).String()+" "+e.Pod.Name)
				}
			}
		}
		if got, want := fmt.Sprint(evicted), "[0s a 11s a]"; got != want {
			t.Errorf("reported %v, want %v", got, want)
		}
	})
}

func TestADecisionAboutADiskWaitsForAScanYoungerThanTheCrossing(t *testing.T) {
	node, full := disk(plenty, 50*gibi), disk(plenty, 0)
	a := func() *pod { return ending(storing("a", gibi), immortal) }
	for _, c := range []struct {
		name string
		setting
		run   func(*fixture)
		asked int
		want  []string
	}{
		{
			"until it is there",
			setting{thresholds: diskHard, scanner: &scanner{takes: 2 * time.Second}, pods: []*pod{a()}},
			func(w *fixture) { w.at(2500 * time.Millisecond); w.sensor.set(full); w.at(9 * time.Second) },
			1, []string{"5s kill a"},
		},
		{
			"no longer than five seconds",
			setting{thresholds: diskHard, scanner: &scanner{takes: -1}, pods: []*pod{a()}},
			func(w *fixture) { w.at(2500 * time.Millisecond); w.sensor.set(full); w.at(9 * time.Second) },
			1, []string{"8.001s kill a"},
		},
		{
			"at a second crossing as at the first",
			setting{thresholds: diskHard, scanner: &scanner{takes: 2 * time.Second}, pods: []*pod{a()}},
			func(w *fixture) {
				w.at(2500 * time.Millisecond)
				w.sensor.set(full)
				w.at(4 * time.Second)
				w.sensor.set(node)
				w.at(14500 * time.Millisecond)
				w.sensor.set(full)
				w.at(19 * time.Second)
			},
			2, []string{"17s kill a"},
		},
		{
			"also where pods were measured for another reason",
			setting{thresholds: diskHard, limits: true, scanner: &scanner{takes: 2 * time.Second}, pods: []*pod{a(), {name: "b", limited: true, usage: using("", mebi).usage}}},
			func(w *fixture) { w.at(9999 * time.Millisecond); w.sensor.set(full); w.at(19 * time.Second) },
			1, []string{"12s kill a"},
		},
		{
			"soft ones too, whatever polls are between",
			setting{thresholds: []eviction.Threshold{soft(eviction.NodeFsAvailable, gibi, time.Second)}, scanner: &scanner{takes: 3 * time.Second}, pods: []*pod{a()}},
			func(w *fixture) { w.at(5 * time.Second); w.sensor.set(full); w.at(29 * time.Second) },
			1, []string{"14s kill a in 1m0s"},
		},
		{
			"while memory does not wait",
			setting{thresholds: append(memoryHard[:1:1], diskHard...), scanner: &scanner{takes: -1}, pods: []*pod{a()}},
			func(w *fixture) { w.at(2500 * time.Millisecond); w.sensor.set(disk(short, 0)); w.at(4 * time.Second) },
			1, []string{"3s kill a"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.node = node
			withLoop(t, c.setting, func(w *fixture) {
				c.run(w)
				w.expect(c.want...)
				if got := w.scanner.asked(); got != c.asked {
					t.Errorf("asked for %d scans, want %d", got, c.asked)
				}
			})
		})
	}
}

// rule: M.35
func TestADiskIsFreedByTheNodeBesideTheLoop(t *testing.T) {
	const freeing = "0s free 1073741824 of nodefs.available by [containers images]"
	full := func() stats.Node { return disk(plenty, 0) }
	writer := func() *pod { return ending(storing("a", gibi), immortal) }
	for _, c := range []struct {
		name string
		setting
		run  func(*fixture)
		want []string
	}{
		{
			"and no pod is killed where that suffices",
			setting{thresholds: diskHard, node: full(), reclaimer: &reclaimer{takes: 5 * time.Second, frees: gibi}, pods: []*pod{writer()}},
			func(w *fixture) { w.at(50 * time.Second) },
			[]string{freeing},
		},
		{
			"a pod is killed at once where it does not",
			setting{thresholds: diskHard, node: full(), reclaimer: &reclaimer{takes: 5 * time.Second, frees: gibi - 1}, pods: []*pod{writer()}},
			func(w *fixture) { w.at(14 * time.Second) },
			[]string{freeing, "5s kill a"},
		},
		{
			"by figures that were taken meanwhile",
			setting{thresholds: diskHard, node: full(), reclaimer: &reclaimer{takes: 5 * time.Second}, scanner: &scanner{takes: 4 * time.Second}, pods: []*pod{writer()}},
			func(w *fixture) { w.at(14 * time.Second) },
			[]string{freeing, "5s kill a"},
		},
		{
			"soft thresholds wait for it, too",
			setting{thresholds: []eviction.Threshold{soft(eviction.NodeFsAvailable, gibi, time.Second)}, node: full(), reclaimer: &reclaimer{takes: 5 * time.Second}, pods: []*pod{writer()}},
			func(w *fixture) { w.at(19 * time.Second) },
			[]string{"1s free 1073741824 of nodefs.available by [containers images]", "6s kill a in 1m0s"},
		},
		{
			"while memory does not wait",
			setting{thresholds: append(memoryHard[:1:1], diskHard...), node: full(), reclaimer: &reclaimer{takes: -1}, pods: []*pod{ending(using("b", gibi), immortal)}},
			func(w *fixture) { w.at(2500 * time.Millisecond); w.sensor.set(disk(short, 0)); w.at(4 * time.Second) },
			[]string{freeing, "3s kill b"},
		},
		{
			"a runtime that hangs is waited for half a minute",
			setting{thresholds: diskHard, node: full(), reclaimer: &reclaimer{takes: -1}, pods: []*pod{writer()}},
			func(w *fixture) { w.at(35 * time.Second) },
			[]string{freeing, "30s kill a"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			withLoop(t, c.setting, func(w *fixture) {
				c.run(w)
				w.expect(c.want...)
			})
		})
	}
}
