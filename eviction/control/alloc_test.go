package control

import (
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/evictd/evictd/eviction"
	"github.com/evictd/evictd/eviction/kill"
	"github.com/evictd/evictd/stats"
	"github.com/evictd/evictd/stats/collect"
)

// manyPods is a node of many pods that is short of memory, and fakes of the ports of
// a loop, none of which allocates.
type manyPods struct {
	left    int64
	mallocs uint64 // when the killer was last called
	kills   int
	refuses int      // so many kills do not begin
	calls   []string // where it has capacity
}

func (c *manyPods) Read(n *stats.Node, _ collect.Ask) {
	*n = stats.Node{Time: time.Now(), Memory: stats.Memory{Limit: stats.Known(64 << 30), Usage: stats.Known(64<<30 - c.left)}}
}
func (c *manyPods) Wait(time.Duration) string                    { return "" }
func (c *manyPods) Wake()                                        {}
func (c *manyPods) SetLevels(collect.MemoryLevels) collect.Armed { return collect.ArmedForNode }

func (c *manyPods) called(what string, uid types.UID) {
	if len(c.calls) < cap(c.calls) {
		c.calls = append(c.calls, what+" "+string(uid))
	}
}

func (c *manyPods) Kill(v kill.Victim) error {
	c.kills++
	c.mallocs = mallocs()
	c.called("kill", v.UID)
	if c.refuses > 0 {
		c.refuses--
		return errors.New("refused")
	}
	return nil
}
func (c *manyPods) Put(e *eviction.Eviction, f *eviction.InFlight) { c.called("put", f.UID) }
func (c *manyPods) Withdraw(f *eviction.InFlight)                  { c.called("withdraw", f.UID) }
func (c *manyPods) Hasten(types.UID, time.Duration)                {}
func (c *manyPods) Killed(types.UID) bool                          { return true }
func (c *manyPods) Ended(kill.Target) bool                         { return false }
func (c *manyPods) Results() <-chan kill.Result                    { return nil }

func mallocs() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.Mallocs
}

type meter struct{ bytes int64 }

func (m meter) Read(s *stats.Pod) error         { return m.ReadMemory(s, true) }
func (m meter) ReadStall() (stats.Stall, error) { return stats.Stall{}, nil }
func (m meter) ReadMemory(s *stats.Pod, _ bool) error {
	s.Time, s.Memory, s.Threads = time.Now(), stats.Known(m.bytes), stats.Known(1)
	return nil
}

type target struct{ kill.Target }

func newManyPods(pods int) (*manyPods, *Loop) {
	c := &manyPods{}
	cfg := Config{
		Eviction: eviction.New(eviction.Config{
			Thresholds: []eviction.Threshold{
				{Signal: eviction.MemoryAvailable, Value: eviction.Value{Amount: 100 << 20}},
				{Signal: eviction.MemoryStall, Value: eviction.Share(4000).Value()},
			},
			MemoryStallWindow:             time.Second,
			PressureTransitionPeriod:      time.Minute,
			LocalStorageCapacityIsolation: true,
			HardGrace:                     time.Second,
		}, eviction.SharedFs),
		HousekeepingInterval: time.Hour,
	}
	l := New(cfg, Ports{Sensor: c, Waiter: c, Killer: c, Intents: c}, slog.New(slog.DiscardHandler))
	var all []Pod
	for i := range pods {
		all = append(all, Pod{
			Pod: &eviction.Pod{
				UID: types.UID(fmt.Sprint("uid-", i)), Namespace: "default", Name: fmt.Sprint("pod-", i), Priority: int32(i % 3),
				MemoryRequest: 1 << 20, Containers: make([]eviction.Container, 2),
			},
			Meter: meter{int64(i%17) << 20}, Target: target{},
		})
	}
	l.replacePods(all)
	return c, l
}

// cross takes available memory below the threshold and above it again, without a kill in flight.
func (c *manyPods) cross(l *Loop) {
	c.left = 50 << 20
	l.pass(eviction.Event, "memcg-threshold")
	c.left = 32 << 30
	l.outcomes = append(l.outcomes, eviction.Outcome{UID: l.driver.State.InFlight[0].UID})
	l.pass(eviction.Event, Poll)
	for len(l.reports) > 0 {
		<-l.reports
	}
}

func TestNothingIsAllocatedBetweenTheWakeAndTheKill(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	c, l := newManyPods(110)
	const rounds = 100
	allocated := 0 // rounds; the runtime may allocate for itself in some
	for range rounds {
		before := mallocs()
		c.cross(l)
		if c.mallocs > before {
			allocated++
		}
	}
	if c.kills != rounds || allocated > rounds/2 {
		t.Errorf("%d of %d rounds have allocated before one of %d kills", allocated, rounds, c.kills)
	}
}

func TestAnEvictionIsKeptBeforeItsSignalAndWithdrawnWhereTheKillDoesNotBegin(t *testing.T) {
	c, l := newManyPods(2)
	c.refuses, c.calls = 1, make([]string, 0, 10)
	c.cross(l)
	if got, want := strings.Join(c.calls, ", "), "put uid-0, kill uid-0, withdraw uid-0, put uid-1, kill uid-1"; got != want {
		t.Errorf("calls %s, want %s", got, want)
	}
}

// BenchmarkCrossing is a whole crossing of 110 pods: the decision with the kill,
// what is made for the report and for the next one, and a pass without a cause.
func BenchmarkCrossing(b *testing.B) {
	c, l := newManyPods(110)
	b.ReportAllocs()
	for b.Loop() {
		c.cross(l)
	}
}
