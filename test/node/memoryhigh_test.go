package node_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/evictd/evictd/internal/campaign"
	"github.com/evictd/evictd/internal/require"
	"github.com/evictd/evictd/internal/sandbox"
	"github.com/evictd/evictd/test/harness"
	"github.com/evictd/evictd/test/vm/machine"
)

// highFile is memory.high of the pods' cgroup. It skips the test on cgroup v1.
func highFile(n *harness.Node) string {
	n.T.Helper()
	high, ok := n.Cgroups.MemoryHighFile(n.Pods().Path())
	if !ok {
		n.T.Skip("skipped: only cgroup v2 has memory.high")
	}
	return high
}

// awaitMark waits until memory.high is set above a value, and returns it.
func awaitMark(t testing.TB, high string, above int64) (mark int64) {
	t.Helper()
	harness.Await(t, fmt.Sprintf("memory.high above %d", above), func() bool {
		mark, _ = strconv.ParseInt(strings.TrimSpace(content(t, high)), 10, 64) // 0 is max
		return mark > above
	})
	return mark
}

// mustBeNotified has a pod grow past the mark halfway to the threshold, far from it: the kernel
// wakes the loop, which moves the mark on. On a machine where the passes before took too much of the
// processor, a poll does: then the pod grows again. No pod is evicted.
func mustBeNotified(d *harness.Evictd, pod *harness.Pod, high string) {
	d.T.Helper()
	d.AwaitPods(memorySignal, pod)
	number := func(file string) int64 {
		n, _ := strconv.ParseInt(strings.TrimSpace(content(d.T, file)), 10, 64) // 0 is max
		return n
	}
	events := passesBy(d, "memory-events")
	harness.Await(d.T, "a pass that the kernel has called for", func() bool {
		first := awaitMark(d.T, high, 0)
		pod.Do("grow %d", first-number(filepath.Join(filepath.Dir(high), "memory.current"))+8*harness.MiB)
		second := awaitMark(d.T, high, first)
		d.T.Logf("the mark was at %d MiB and is at %d MiB; %d events of memory.high", first/harness.MiB, second/harness.MiB, eventsHigh(d.T, high))
		pod.Do("hold 0")
		harness.Await(d.T, "the mark to follow", func() bool { mark := number(high); return mark > 0 && mark < second })
		return passesBy(d, "memory-events") > events
	})
	harness.MustRun(d.T, pod)
	d.MustHaveEvicted()
}

// TestPodsThatReachMemoryHighWakeTheLoop kills evictd after that, twice. The next one restores
// memory.high, and sets it again until it ends; without a next one the unit restores it.
//
// rule: M.91
// rule: M.94
func TestPodsThatReachMemoryHighWakeTheLoop(t *testing.T) {
	n := harness.NewNode(t, 640*harness.MiB, nodePIDs)
	high := highFile(n)
	pod := n.Start("pod", sandbox.Spec{})
	run := func() *harness.Evictd { return n.Evictd(sandbox.EvictionHard("memory.available<64Mi")) }
	d := run()
	mustBeNotified(d, pod, high)
	undo := func(want string) {
		t.Helper()
		if out, errs, code := evictctl(t, "undo", "--service-result=signal", "--runtime-dir="+n.RuntimeDir()); code != 0 || content(t, high) != want {
			t.Errorf("exit code %d: %s%s; memory.high is %s, want %s", code, out, errs, content(t, high), want)
		}
	}
	d.Kill()
	undo(content(t, high)) // it stays
	d = run()
	d.AwaitLog("restored a setting that an earlier evictd had changed")
	awaitMark(t, high, 0)
	d.Kill()
	undo(content(t, high))
	undo("max") // the next one was killed before it could
	d = run()
	awaitMark(t, high, 0)
	d.Stop()
	if is := content(t, high); is != "max" {
		t.Errorf("evictd ends and leaves memory.high at %s", is)
	}
}

// TestMachineIsNotifiedByMemoryHigh has the next evictd restore memory.high after evictd was killed.
//
// rule: M.91
func TestMachineIsNotifiedByMemoryHigh(t *testing.T) {
	n := newMachine(t)
	high := highFile(n)
	pod := n.Start("pod", sandbox.Spec{})
	mustBeNotified(protect(n, machineHard), pod, high)
	machine.Signal(t, "KILL")
	awaitRestored(t)
	awaitMark(t, high, 0)
	machine.Systemctl(t, "stop", machine.Service)
	if is := content(t, high); is != "max" {
		t.Errorf("evictd ends and leaves memory.high at %s", is)
	}
}

// TestMachineLeavesAMemoryHighThatIsNotItsOwn has another program set it.
//
// rule: M.91
func TestMachineLeavesAMemoryHighThatIsNotItsOwn(t *testing.T) {
	n := newMachine(t)
	high := highFile(n)
	pod := n.Start("pod", sandbox.Spec{})
	pod.Do("hold 0") // its cgroup exists, which systemd makes for it
	const others = "536870912"
	require.NoError(t, os.WriteFile(high, []byte(others), 0o644))
	d := protect(n, machineHard)
	d.AwaitPods(memorySignal, pod)
	harness.Await(t, "evictd to say so", func() bool {
		return strings.Contains(machine.Journal(t, "--unit="+machine.Service), "another program has set it")
	})
	machine.Systemctl(t, "stop", machine.Service)
	if is := content(t, high); is != others {
		t.Errorf("memory.high is %s", is)
	}
}

// passesBy is how many passes a source has caused, up to the last report; all for "".
func passesBy(d *harness.Evictd, source string) (sum int) {
	d.T.Helper()
	for line := range strings.Lines(d.Metrics()) {
		if !strings.HasPrefix(line, "evictd_passes_total{") || !strings.Contains(line, source) {
			continue
		}
		n, err := strconv.ParseFloat(strings.Fields(line)[1], 64)
		if err != nil {
			d.T.Fatal(err)
		}
		sum += int(n)
	}
	return sum
}

// TestCostOfMarks judges nothing: each line that begins with | compares evictd that sets
// memory.high with evictd that does not, in rounds of both, by the ratios of the rounds.
func TestCostOfMarks(t *testing.T) {
	n := newMachine(t)
	high := highFile(n)
	rounds := campaign.Count(t, "EVICTD_ROUNDS", 3, 1)
	of := map[bool]*costs{true: {}, false: {}}
	for round := range rounds {
		for _, marks := range []bool{round%2 == 0, round%2 != 0} {
			pod := n.Start("pod", sandbox.Spec{})
			d := protect(n, fmt.Sprintf("%s\nkernelMemcgNotification: %v\nhousekeepingInterval: 10s", machineHard, marks))
			d.AwaitPods(memorySignal, pod)
			if marks {
				awaitMark(t, high, 0)
			}
			of[marks].measure(t, d, pod, high, round < 3)
			pod.End()
			n.Clear(n.Pods().Path())
		}
	}
	with, without := of[true], of[false]
	ratios := func(of func(*costs) []float64) string {
		all := slices.Clone(of(with))
		for i := range all {
			all[i] /= of(without)[i]
		}
		slices.Sort(all)
		return fmt.Sprintf("%.2f (%.2f to %.2f, half of them %.2f to %.2f)", median(all), all[0], all[len(all)-1], all[len(all)/4], all[len(all)-1-len(all)/4])
	}
	reader, allocator := func(c *costs) []float64 { return c.reader }, func(c *costs) []float64 { return c.allocator }
	fmt.Printf("| throughput with marks, as a ratio to without, %d rounds | page-cache reader %s | allocator %s |\n", rounds, ratios(reader), ratios(allocator))
	fmt.Printf("| MiB a second with marks, without | page-cache reader %.0f, %.0f | allocator %.0f, %.0f |\n",
		median(with.reader)/harness.MiB, median(without.reader)/harness.MiB, median(with.allocator)/harness.MiB, median(without.allocator)/harness.MiB)
	fmt.Printf("| passes a minute | with %.0f | without %.0f |\n", median(with.passes), median(without.passes))
	fmt.Printf("| events of memory.high | reader %.0f | allocator %.0f |\n", median(with.readerEvents), median(with.allocatorEvents))
	t.Logf("with %+v, without %+v", *with, *without)
}

// costs of rounds: bytes a second, and numbers.
type costs struct{ reader, allocator, passes, readerEvents, allocatorEvents []float64 }

func (c *costs) measure(t *testing.T, d *harness.Evictd, pod *harness.Pod, high string, counts bool) {
	t.Helper()
	const size = 384 * harness.MiB // two marks at least, and no threshold
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o644))
	if err := os.Truncate(file, size); err != nil { // holes are cached like data
		t.Fatal(err)
	}
	rate := func(order string, args ...any) (bytes, events float64) {
		before, begun := eventsHigh(t, high), time.Now()
		pod.Do(order, args...)
		return size / time.Since(begun).Seconds(), float64(eventsHigh(t, high) - before)
	}
	bytes, events := rate("read %s", file)
	c.reader, c.readerEvents = append(c.reader, bytes), append(c.readerEvents, events)
	require.NoError(t, os.Remove(file))
	bytes, events = rate("hold %d", size)
	c.allocator, c.allocatorEvents = append(c.allocator, bytes), append(c.allocatorEvents, events)
	pod.Do("hold 0")
	if !counts {
		return
	}
	before := passesBy(d, "")
	watched := campaign.Size(time.Minute, time.Second)
	<-time.After(watched)
	c.passes = append(c.passes, float64(passesBy(d, "")-before)/watched.Minutes())
}

func median(of []float64) float64 {
	of = slices.Sorted(slices.Values(of))
	return of[len(of)/2]
}
