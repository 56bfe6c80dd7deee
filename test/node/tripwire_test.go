package node_test

import (
	"context"
	"math"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/evictd/evictd/internal/campaign"
	"github.com/evictd/evictd/internal/require"
	"github.com/evictd/evictd/internal/sandbox"
	"github.com/evictd/evictd/stats"
	"github.com/evictd/evictd/test/harness"
	"github.com/evictd/evictd/test/vm/machine"
)

// TestMachineHoldsPodsUpForAnEvictdThatIsLate stops evictd with SIGSTOP before a bomb
// starts: the kernel throttles the bomb at memory.high. Then evictd
// continues, or is killed, and the next one starts.
//
// rule: M.94
func TestMachineHoldsPodsUpForAnEvictdThatIsLate(t *testing.T) {
	for _, signal := range []string{"CONT", "KILL"} {
		t.Run(signal, func(t *testing.T) {
			if signal == "KILL" { // the pods run on until the next evictd has started, which a slow machine may be late for
				campaign.Only(t)
			}
			n := newMachine(t)
			high := highFile(n)
			machine.Systemctl(t, "service-watchdogs", "no")
			t.Cleanup(func() { machine.Systemctl(t, "service-watchdogs", "yes") })
			bomb, within := n.Start("bomb", sandbox.Spec{}), n.Start("within", sandbox.Spec{Request: "128Mi"})
			within.Do("hold 100Mi")
			// No pass but those that something calls for, and no mark, which would throttle sooner.
			d := protect(n, machineHard+"\nmemoryHighTripwire: true\nkernelMemcgNotification: false\nhousekeepingInterval: 1h")
			d.AwaitPods(memorySignal, bomb, within)
			harness.Await(t, "the tripwire", func() bool { return content(t, high) != "max" })
			machine.Signal(t, "STOP")
			begun := time.Now()
			bomb.Send("leak 0 768Mi")
			harness.Await(t, "the threshold to be crossed", func() bool {
				left, known := n.Memory(n.Group).Available(stats.WorkingSetModel, false).Get()
				return known && left < 200*harness.MiB
			})
			harness.Await(t, "an event of memory.high", func() bool { return eventsHigh(t, high) > 0 })
			t.Logf("crossed after %v; memory.high %s, %d events; the pods use %s", time.Since(begun), content(t, high), eventsHigh(t, high), content(t, filepath.Join(filepath.Dir(high), "memory.current")))
			machine.Signal(t, signal)
			least := leastAvailable(n)
			bomb.AwaitEnd() // by an evictd that is only being started, maybe
			t.Logf("the least that was available meanwhile is %d MiB", least()/harness.MiB)
			t.Logf("evicted in a pass of %q", d.AwaitGone(bomb).Source) // after the stop a poll is due, too
			if signal == "KILL" {
				awaitRestored(t)
			}
			harness.Await(t, "the tripwire to be there again", func() bool { return content(t, high) != "max" })
			harness.MustRun(t, within)
			machine.Systemctl(t, "stop", machine.Service)
			if is := content(t, high); is != "max" {
				t.Errorf("evictd ends and leaves memory.high at %s", is)
			}
		})
	}
}

// awaitRestored waits until an evictd has restored memory.high of the one before.
func awaitRestored(t testing.TB) {
	t.Helper()
	harness.Await(t, "evictd to restore memory.high of the one before", func() bool {
		return strings.Contains(machine.Journal(t, "_SYSTEMD_INVOCATION_ID="+machine.Show(t, "InvocationID")), "restored a setting")
	})
}

// leastAvailable looks until the returned function is called, which returns the least memory that was
// available, bytes.
func leastAvailable(n *harness.Node) (least func() int64) {
	ctx, cancel := context.WithCancel(n.T.Context())
	found := make(chan int64, 1)
	group := n.Open(n.Group)
	go func() {
		least := int64(math.MaxInt64)
		for tick := time.Tick(5 * time.Millisecond); ctx.Err() == nil; <-tick {
			var m stats.Memory
			if group.Memory(&m) == nil {
				least = min(least, m.Available(stats.WorkingSetModel, false).Or(least))
			}
		}
		found <- least
	}()
	return func() int64 { cancel(); return <-found }
}

// eventsHigh is how often tasks were throttled at memory.high.
func eventsHigh(t testing.TB, high string) int {
	t.Helper()
	return memoryEvents(t, high, "high")
}

// memoryEvents is a count of memory.events beside a file.
func memoryEvents(t testing.TB, beside, key string) int {
	t.Helper()
	for line := range strings.Lines(content(t, filepath.Join(filepath.Dir(beside), "memory.events"))) {
		if n, is := strings.CutPrefix(line, key+" "); is {
			events, err := strconv.Atoi(strings.TrimSpace(n))
			require.NoError(t, err)
			return events
		}
	}
	t.Fatal("memory.events has no count of", key)
	return 0
}
