package node_test

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/evictd/evictd/eviction"
	"github.com/evictd/evictd/internal/campaign"
	"github.com/evictd/evictd/internal/require"
	"github.com/evictd/evictd/internal/sandbox"
	"github.com/evictd/evictd/nodestatus"
	"github.com/evictd/evictd/test/harness"
	"github.com/evictd/evictd/test/vm/machine"
)

// shortageLasts is how long a shortage of TestLadder is watched.
var shortageLasts = campaign.Size(20*time.Second, 5*time.Second)

// shortage is a shortage of memory on a node of 512 MiB, and the step that is taken before an eviction.
type shortage struct {
	name string
	// causes are the pods that cause it: any other victim is a wrong one.
	causes []string
	// settings of evictd in both runs, and of the step in the second one.
	settings, step string
	// flags are those of evictd; nil for those of a node with a soft threshold.
	flags func(t *testing.T, settings string) []string
	// pods starts all but the bystander. It returns those that evictd has to know, and what happens in each
	// second from 0.
	pods func(n *harness.Node) (pods []*harness.Pod, happens func(second int))
}

var shortages = []shortage{
	{
		// Each file is read three times, so that workingSet counts it as used, and is not needed after that.
		name: "a storm of page cache", causes: []string{"reader"}, settings: "memoryModel: workingSet\n", step: "memoryReclaimBudget: 512Mi\n",
		pods: func(n *harness.Node) ([]*harness.Pod, func(int)) {
			reader := n.Start("reader", sandbox.Spec{Priority: 10})
			var files []string
			for range 12 {
				files = append(files, require.FileOnDisk(n.T, 40*harness.MiB))
			}
			return []*harness.Pod{reader}, func(second int) {
				if second < len(files) {
					reader.Do("read %s 3", files[second])
				}
			}
		},
	},
	{
		name: "a leak that the application can give back", causes: []string{"cache"}, step: "warningNamespaces: [default]\nwarningLead: 5s\n",
		pods: func(n *harness.Node) ([]*harness.Pod, func(int)) {
			cache := n.Start("cache", sandbox.Spec{Annotations: map[string]string{"evictd.io/notify": "SIGUSR1"}})
			cache.Do("on USR1 hold 16Mi")
			return []*harness.Pod{cache}, func(second int) {
				if second == 0 {
					cache.Do("burst 25Mi 20s")
				}
			}
		},
	},
	{
		// The burst needs its memory for as long as it lasts; what is not there is not used.
		name: "a slow leak beside a burst", causes: []string{"leak", "burst"}, step: "memoryThrottlePeriod: 5s\n",
		pods: func(n *harness.Node) ([]*harness.Pod, func(int)) {
			leak := n.Start("leak", sandbox.Spec{Request: "256Mi"})
			leak.Do("hold 160Mi")
			leak.Do("leak 1Mi 200Mi")
			burst := n.Start("burst", sandbox.Spec{Request: "16Mi"})
			burst.Do("hold 16Mi")
			return []*harness.Pod{leak, burst}, func(second int) {
				if second == 2 {
					burst.Do("burst 80Mi 5s")
				}
			}
		},
	},
	{
		// A pod reads a file of 120 MiB again and again, and another one grows until half of the file has no room. No step
		// avoids the eviction; the bystander waits until it comes.
		name: "a node that thrashes", causes: []string{"resident", "reader"}, settings: "memoryModel: available\n", step: "evictionHard: {memory.available: 16Mi, memory.stall: 5%}\nmemoryStallWindow: 2s\n",
		flags: func(t *testing.T, settings string) []string {
			if !strings.Contains(settings, "evictionHard") {
				settings += "evictionHard: {memory.available: 16Mi}\n"
			}
			return []string{sandbox.Config(configFile(t, settings)), noTransition}
		},
		pods: func(n *harness.Node) ([]*harness.Pod, func(int)) {
			t := n.T.(*testing.T)
			resident, reader := n.Start("resident", sandbox.Spec{}), n.Start("reader", sandbox.Spec{Priority: 10})
			resident.Do("hold 280Mi")
			file := written(t, 120*harness.MiB)
			return []*harness.Pod{resident, reader}, func(second int) {
				if second == 0 {
					reader.Send("read %s 1000000", file)
				}
				if second == 4 && resident.Runs() {
					resident.Do("hold 400Mi")
				}
			}
		},
	},
	{
		name: "one bad container of three", causes: []string{"web"}, step: "containerPressure: restart\n",
		flags: func(t *testing.T, settings string) []string {
			return []string{sandbox.Mode("backstop"), sandbox.Config(configFile(t, settings)), sandbox.EvictionHard("memory.available<64Mi"), noTransition}
		},
		pods: func(n *harness.Node) ([]*harness.Pod, func(int)) {
			_, c := startContainers(n, "web", "app", "proxy", "logs")
			return []*harness.Pod{c["proxy"], c["app"]}, func(second int) {
				if second == 0 {
					c["app"].Send("leak 100Mi 600Mi")
				}
			}
		},
	},
}

// TestLadder judges nothing: its lines that begin with | show what becomes of a shortage with and without a step before
// an eviction.
func TestLadder(t *testing.T) {
	machine.Need(t)
	rounds := campaign.Count(t, "EVICTD_ROUNDS", 1, 1)
	fmt.Println("| shortage | step | evicted | wrong victims | under the threshold | work of the bystander | it waited for memory |")
	for _, s := range shortages {
		for range rounds {
			for _, step := range []string{"", s.step} {
				t.Run(s.name+"/"+strings.TrimSpace(cmp.Or(step, "none")), func(t *testing.T) { s.run(t, step) })
			}
		}
	}
}

func (s *shortage) run(t *testing.T, step string) {
	n := boundedInMachine(t)
	bystander := n.Start("bystander", sandbox.Spec{})
	bystander.Do("hold 16Mi")
	count := filepath.Join(t.TempDir(), "count")
	bystander.Do("work %s %s", written(t, 24*harness.MiB), count)
	pods, happens := s.pods(n)
	flags := s.flags
	if flags == nil {
		flags = func(t *testing.T, settings string) []string { return reclaims(t, "10s", settings) }
	}
	d := n.Evictd(flags(t, s.settings+step)...)
	d.AwaitPods(memorySignal, append(pods, bystander)...)
	stalled := func() time.Duration {
		state, err := n.Cgroups.ReclaimState(bystander.Group)
		if err != nil { // it was evicted
			return 0
		}
		return state.Stall.Some
	}
	before, waited, short := stalled(), time.Duration(0), time.Duration(0)
	worked := -counted(t, count)
	begun, last, next := time.Now(), time.Now(), 0
	for range time.Tick(50 * time.Millisecond) {
		if time.Since(begun) >= shortageLasts {
			break
		}
		if time.Since(begun) >= time.Duration(next)*time.Second {
			if pods[len(pods)-1].Runs() {
				happens(next)
			}
			next++
		}
		waited = max(waited, stalled()-before)
		if underPressure(d.Status()) {
			short += time.Since(last)
		}
		last = time.Now()
	}
	worked, lasted := worked+counted(t, count), time.Since(begun)
	var evicted []string
	wrong := 0
	for _, e := range d.Status().Evictions {
		evicted = append(evicted, strings.TrimPrefix(e.Pod, "default/"))
		fmt.Printf("# %s was evicted for %s: %s\n", e.Pod, e.Signal, e.Because)
		if !slices.Contains(s.causes, evicted[len(evicted)-1]) {
			wrong++
		}
	}
	fmt.Printf("| %s | %s | %s | %d | %.1f s | %.1f/s | %d ms |\n", s.name, cmp.Or(strings.TrimSpace(strings.ReplaceAll(step, "\n", " ")), "none"),
		cmp.Or(strings.Join(evicted, ", "), "none"), wrong, short.Seconds(), float64(worked)/lasted.Seconds(), waited.Milliseconds())
	d.Stop()
	n.Clear(n.Pods().Path())
}

// counted is how often the bystander has worked.
func counted(t *testing.T, file string) (n int) {
	t.Helper()
	if _, err := fmt.Sscan(content(t, file), &n); err != nil {
		t.Error(err)
	}
	return n
}

// underPressure says whether memory is short, or contended.
func underPressure(s *nodestatus.Status) bool {
	return slices.ContainsFunc(s.Conditions, func(c nodestatus.ConditionStatus) bool {
		return (c.Type == v1.NodeMemoryPressure || c.Type == eviction.MemoryContention.Type()) && c.Status == v1.ConditionTrue
	})
}
