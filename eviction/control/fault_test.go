package control_test

import (
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/evictd/evictd/eviction"
	"github.com/evictd/evictd/eviction/control"
	"github.com/evictd/evictd/eviction/kill"
	"github.com/evictd/evictd/internal/campaign"
	"github.com/evictd/evictd/stats"
	"github.com/evictd/evictd/stats/collect"
)

// fault is one that a port can have for a while: it fails, hangs, or lies.
type fault struct {
	name string
	// hides is the resource that is unknown meanwhile, so that no pod may be evicted for
	// it; everything where nothing can be done at all.
	hides string
	// spreads where the hog cannot be ended, or its end be seen: others are killed, too.
	spreads bool
}

const everything = "everything"

var faults = []fault{
	{name: "cgroupfs: the node's memory cannot be read", hides: "memory"},
	{name: "cgroupfs: the node's memory is an old reading", hides: "memory", spreads: true}, // what was short stays so
	{name: "cgroupfs: the node uses less than nothing", hides: "memory"},
	{name: "cgroupfs: the time of a reading goes backwards", hides: everything},
	{name: "cgroupfs: reading hangs", hides: everything},
	{name: "cgroupfs: reading takes three seconds"},
	{name: "cgroupfs: pods cannot be measured"},
	{name: "cgroupfs: pods use no memory"},
	{name: "cgroupfs: measuring a pod hangs", hides: everything},
	{name: "cgroupfs: a kill cannot begin", hides: everything},
	{name: "cgroupfs: a kill does not end", spreads: true},
	{name: "cgroupfs: a kill reaches no process", spreads: true},
	{name: "statfs: the disk is unknown", hides: "disk"},
	{name: "statfs: the disk is an old reading", hides: "disk"},
	{name: "disk: a scan is never complete"},
	{name: "disk: a scan is always complete and of long ago"},
	{name: "runtime: a reclaim never ends"},
	{name: "runtime: a reclaim ends at once and frees nothing"},
	{name: "API: pods change all the time"},
	{name: "API: there are unknown pods"},
	{name: "configuration: it changes all the time"},
	{name: "journal: reports are not received"},
	{name: "kernel: notifications arrive all the time"},
	{name: "kernel: the loop is woken five seconds late"},
}

// faultyFixture is a fixture some of whose ports have faults. Its node has what its pods
// leave, and one of them is a hog.
type faultyFixture struct {
	*fixture
	pods []*pod

	mu        sync.Mutex
	hidden    bool          // no pod may be killed now
	now       []string      // faults
	over      chan struct{} // closed when they are
	frozen    stats.Node
	kills     map[types.UID]int // that did not fail
	first     time.Time         // when one was first accepted
	scanned   chan struct{}
	reclaimed chan eviction.Signal
}

func (w *faultyFixture) has(name string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Contains(w.now, name)
}

func (w *faultyFixture) begin(names []string) {
	var n stats.Node
	w.measure(&n)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.now, w.over, w.frozen = names, make(chan struct{}), n
}

func (w *faultyFixture) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.now = nil
	close(w.over)
}

func (w *faultyFixture) hide(hidden bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.hidden = hidden
}

// victims are which pods were killed, how often, and when the first was.
func (w *faultyFixture) victims() (kills map[types.UID]int, first time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return maps.Clone(w.kills), w.first
}

// hang waits until the faults are over.
func (w *faultyFixture) hang() {
	w.mu.Lock()
	over := w.over
	w.mu.Unlock()
	<-over
}

// measure reads the node as it is.
func (w *faultyFixture) measure(n *stats.Node) {
	memoryLeft, diskLeft := 64*gibi, 100*gibi
	for _, p := range w.pods {
		p.mu.Lock()
		memoryLeft -= p.usage.Memory.Or(0)
		for _, c := range p.usage.Containers {
			diskLeft -= c.Rootfs.Or(0)
		}
		p.mu.Unlock()
	}
	*n = disk(memory(max(0, memoryLeft)), max(0, diskLeft))
	n.Time = time.Now()
	n.NodeFs.Time = n.Time
}

// Read implements control.Sensor.
func (w *faultyFixture) Read(n *stats.Node, ask collect.Ask) {
	w.fixture.sensor.Read(n, ask)
	if w.has("cgroupfs: reading hangs") {
		w.hang()
	}
	if w.has("cgroupfs: reading takes three seconds") {
		time.Sleep(3 * time.Second)
	}
	w.measure(n)
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, name := range w.now {
		switch name {
		case "cgroupfs: the node's memory cannot be read":
			n.Memory = stats.Memory{}
		case "cgroupfs: the node's memory is an old reading":
			n.Memory = w.frozen.Memory
		case "cgroupfs: the node uses less than nothing":
			n.Memory.Usage = stats.Known(-5 * gibi)
		case "cgroupfs: the time of a reading goes backwards":
			n.Time = w.begun.Add(-time.Since(w.begun))
			n.NodeFs.Time = n.Time
		case "statfs: the disk is unknown":
			n.NodeFs = stats.Filesystem{}
		case "statfs: the disk is an old reading":
			n.NodeFs = w.frozen.NodeFs
		}
	}
}

// faultyPod is the meter of a pod of such a fixture.
type faultyPod struct {
	*pod
	w *faultyFixture
}

// Read implements control.Meter.
func (p *faultyPod) Read(s *stats.Pod) error {
	if p.w.has("cgroupfs: measuring a pod hangs") {
		p.w.hang()
	}
	if p.w.has("cgroupfs: pods cannot be measured") {
		*s = stats.Pod{Time: time.Now()}
		return fs.ErrPermission
	}
	err := p.pod.Read(s)
	if p.w.has("cgroupfs: pods use no memory") {
		s.Memory = stats.Known(0)
	}
	return err
}

// ReadMemory implements control.Meter.
func (p *faultyPod) ReadMemory(s *stats.Pod, _ bool) error { return p.Read(s) }
func (p *faultyPod) ReadStall() (stats.Stall, error)       { return stats.Stall{}, nil }

// Kill implements control.Killer.
func (w *faultyFixture) Kill(v kill.Victim) error {
	if w.has("cgroupfs: a kill cannot begin") {
		return kill.ErrFull
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.hidden {
		w.Errorf("%v: %s is killed although no pod may be", time.Since(w.begun), v.UID)
	}
	w.kills[v.UID]++
	if w.first.IsZero() {
		w.first = time.Now()
	}
	over := w.over
	switch {
	case slices.Contains(w.now, "cgroupfs: a kill reaches no process"):
		w.kills[v.UID]--
		time.AfterFunc(time.Second, func() {
			w.killer.results <- kill.Result{UID: v.UID, Err: kill.ErrNotSignalled}
		})
	case slices.Contains(w.now, "cgroupfs: a kill does not end"):
		go func() {
			<-over
			_ = w.killer.Kill(v)
		}()
	default:
		return w.killer.Kill(v)
	}
	return nil
}

func (w *faultyFixture) Hasten(types.UID, time.Duration) {}
func (w *faultyFixture) Killed(types.UID) bool           { return true }
func (w *faultyFixture) Ended(kill.Target) bool          { return false }
func (w *faultyFixture) Results() <-chan kill.Result     { return w.killer.results }

// Wait implements control.Waiter.
func (w *faultyFixture) Wait(d time.Duration) string {
	if w.has("kernel: notifications arrive all the time") {
		time.Sleep(min(max(d, 0), 20*time.Millisecond))
		return collect.MemoryStall
	}
	if w.has("kernel: the loop is woken five seconds late") {
		time.Sleep(d + 5*time.Second)
		return ""
	}
	return w.waiter.Wait(d)
}

func (w *faultyFixture) Wake()                                        { w.waiter.Wake() }
func (w *faultyFixture) SetLevels(collect.MemoryLevels) collect.Armed { return collect.Unarmed }

// UnknownPods implements control.UnknownPods.
func (w *faultyFixture) UnknownPods([]control.Pod) bool {
	return w.has("API: there are unknown pods")
}

// Request and the rest implement control.DiskScanner: a round takes no time.
func (w *faultyFixture) Request() {
	if !w.has("disk: a scan is never complete") {
		w.scanned <- struct{}{}
	}
}

func (w *faultyFixture) LastScan() time.Time {
	if w.has("disk: a scan is never complete") || w.has("disk: a scan is always complete and of long ago") {
		return w.begun
	}
	return time.Now()
}

func (w *faultyFixture) Done() <-chan struct{} { return w.scanned }

// Reclaim implements control.Reclaimer: there is nothing to free.
func (w *faultyFixture) Reclaim(s eviction.Signal, _ []eviction.ReclaimStep, _ eviction.Need) {
	over := w.over
	switch {
	case w.has("runtime: a reclaim never ends"):
		go func() {
			<-over
			w.reclaimed <- s
		}()
	case w.has("runtime: a reclaim ends at once and frees nothing"):
		w.reclaimed <- s
	default:
		time.AfterFunc(time.Second, func() { w.reclaimed <- s })
	}
}

func (w *faultyFixture) Reclaimed() <-chan eviction.Signal { return w.reclaimed }

// handed are the pods as the loop is given them.
func (w *faultyFixture) handed() (all []control.Pod) {
	for _, p := range w.pods {
		handled := p.handled()
		handled.Meter = &faultyPod{p, w}
		if handled.Priority = 10; p.name == "hog" {
			handled.Priority = 0
		}
		all = append(all, handled)
	}
	return all
}

// agitate changes all the time what changes all the time, until ctx ends.
func (w *faultyFixture) agitate(cfg control.Config) {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-w.ended:
			return
		case <-tick.C:
		}
		if w.has("API: pods change all the time") {
			w.SetPods(w.handed())
		}
		if w.has("configuration: it changes all the time") {
			w.Configure(cfg)
		}
	}
}

// receive receives reports, or blocks.
func (w *faultyFixture) receive() {
	for range w.Reports() {
		if w.has("journal: reports are not received") {
			w.hang()
		}
	}
}

// pressures are what the hog takes, and how long after all is well the hog must
// have gone at the latest: a disk waits for its reclaim and its scan.
var pressures = []struct {
	resource string
	take     func(*stats.Pod)
	within   time.Duration
}{
	{"memory", func(p *stats.Pod) { p.Memory = stats.Known(64*gibi - 900*mebi) }, 20 * time.Second},
	{"disk", func(p *stats.Pod) { p.Containers = []stats.Container{{Rootfs: stats.Known(100*gibi - 900*mebi)}} }, time.Minute},
}

// TestFaultsOfPortsAloneAndInPairsEvictNoOtherPod has each fault last from
// before a crossing until long after it, and from the middle of a kill on, for each
// resource; and each pair in one of those ways. The hog is ended, once, as soon as its
// shortage can be known; no pod is ended for one that cannot be, and none in the place
// of a hog that can be ended; further passes run.
func TestFaultsOfPortsAloneAndInPairsEvictNoOtherPod(t *testing.T) {
	withEachPair(t, func(i, j, way int) bool { return i == j || (i+j)%4 == way })
}

// TestCampaignFaultsOfPortsInPairs has each pair in all of the ways.
func TestCampaignFaultsOfPortsInPairs(t *testing.T) {
	campaign.Only(t)
	withEachPair(t, func(i, j, way int) bool { return i == j || campaign.Size(true, (i+j)%4 == way) })
}

func withEachPair(t *testing.T, wanted func(i, j, way int) bool) {
	for i := range faults {
		for j := i; j < len(faults); j++ {
			both := []fault{faults[i], faults[j]}
			name := both[0].name + " and " + both[1].name
			if i == j {
				both, name = both[:1], both[0].name
			}
			for way := range 4 {
				p, late := pressures[way/2], way%2 == 1
				if wanted(i, j, way) {
					t.Run(fmt.Sprintf("%s, %s, late %v", name, p.resource, late), func(t *testing.T) {
						t.Parallel()
						withFaults(t, both, p.resource, p.take, p.within, late)
					})
				}
			}
		}
	}
}

func withFaults(t *testing.T, both []fault, resource string, take func(*stats.Pod), within_ time.Duration, late bool) {
	const crossing, begins, ends = 20 * time.Second, 10 * time.Second, 40 * time.Second
	hides, spreads := false, false
	var names []string
	for _, f := range both {
		names, spreads = append(names, f.name), spreads || f.spreads
		hides = hides || f.hides == resource || f.hides == everything
	}
	if spreads { // what another pod held has a minute to show
		within_ += time.Minute
	}
	hog := storing("hog", gibi)
	w := &faultyFixture{pods: []*pod{hog}, kills: map[types.UID]int{}}
	for i := range 3 {
		p := requesting(storing(fmt.Sprint("bystander-", i), gibi), gibi)
		p.usage.Memory = stats.Known(gibi / 2)
		w.pods = append(w.pods, p)
	}
	s := setting{thresholds: append(memoryHard[:1:1], diskHard...), unread: true}
	s.wrap = func(around *fixture, ports *control.Ports) {
		w.fixture, w.scanned, w.reclaimed = around, make(chan struct{}, 8), make(chan eviction.Signal, 8)
		*ports = control.Ports{Sensor: w, Waiter: w, Killer: w, DiskScanner: w, Reclaimer: w, UnknownPods: w}
	}
	s.before = func(around *fixture) { around.SetPods(w.handed()) }
	withLoop(t, s, func(*fixture) {
		go w.receive()
		if slices.ContainsFunc(names, func(name string) bool { return strings.HasSuffix(name, "all the time") }) {
			go w.agitate(s.config())
		}
		if !late {
			w.at(begins)
			w.begin(names)
		}
		w.at(crossing)
		w.hide(hides && !late)
		hog.mu.Lock()
		take(&hog.usage)
		hog.mu.Unlock()
		if late {
			for _, first := w.victims(); first.IsZero() && time.Since(w.begun) < ends; _, first = w.victims() {
				time.Sleep(10 * time.Millisecond)
			}
			w.begin(names)
		}
		w.at(ends)
		w.hide(false)
		w.end()
		w.at(ends + within_)
		kills, first := w.victims()
		if kills["hog"] != 1 {
			t.Errorf("the hog was ended %d times", kills["hog"])
		}
		if latest := crossing + within_; !hides && !spreads && first.Sub(w.begun) > latest {
			t.Errorf("the hog was ended after %v, want %v at most", first.Sub(w.begun), latest)
		}
		w.at(ends + within_ + 10*time.Second)
		before := w.sensor.count()
		w.at(ends + within_ + 40*time.Second)
		if passes := w.sensor.count() - before; passes < 29 {
			t.Errorf("%d passes in 30 s after all faults", passes)
		}
		kills, _ = w.victims()
		for uid, kills := range kills {
			if kills > 1 || uid != "hog" && !spreads {
				t.Errorf("%s was ended %d times", uid, kills)
			}
		}
	})
}
