package node_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evictd/evictd/internal/campaign"
	"github.com/evictd/evictd/internal/require"
	"github.com/evictd/evictd/internal/sandbox"
	"github.com/evictd/evictd/nodestatus"
	"github.com/evictd/evictd/test/harness"
	"github.com/evictd/evictd/test/harness/kube"
)

const (
	soakPods  = 30 // at a time
	soakEvery = 300 * time.Millisecond
	soakSays  = 5 * time.Minute // a program grows for so long after its start
)

var (
	soakEvict  = campaign.Size(30*time.Second, 5*time.Second)
	soakSample = campaign.Size(10*time.Second, time.Second)
)

// holding is a resource of a process that must not grow while pods start and end.
type holding struct {
	name string
	read func(*harness.Evictd) (int, error)
	// share and few are how far the middle of a soak's last quarter may be above that
	// of its second.
	share float64
	few   int
}

var soaked = []holding{
	{"evictd RssAnon, KiB", func(d *harness.Evictd) (int, error) { return anonymous(d.PID()) }, 0.05, 512},
	{"descriptors", func(d *harness.Evictd) (int, error) { return descriptors(d.PID()) }, 0.1, 64}, // closed by the number
	{"goroutines", goroutines, 0, 8},
	{"agent RssAnon, KiB", func(d *harness.Evictd) (int, error) { return anonymous(d.Agent()) }, 0.05, 1024},
	{"descriptors", func(d *harness.Evictd) (int, error) { return descriptors(d.Agent()) }, 0, 8},
}

// TestCampaignSoak fails if evictd or its agent comes to hold more and more while
// pods come and go, and some of them are evicted. It judges no growth in less than soakSays.
func TestCampaignSoak(t *testing.T) {
	campaign.Only(t)
	span := campaign.Span(t, "EVICTD_SOAK", 30*time.Minute, 12*time.Second)
	n := harness.NewNode(t, bombNode, nodePIDs)
	a := kube.New(n)
	d := runWith(n, a, sandbox.Mode("native"), sandbox.EvictionHard("memory.available<100Mi"), sandbox.Housekeeping("1s"), sandbox.Transition("10s"))
	series := make([][]int, len(soaked))
	var table strings.Builder
	w := tabwriter.NewWriter(&table, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(w, "minute\t")
	for _, r := range soaked {
		fmt.Fprintf(w, "%s\t", r.name)
	}
	begun, came, evicted := time.Now(), 0, 0
	var there []*sleeper
	tick := time.NewTicker(soakEvery)
	defer tick.Stop()
	for ; time.Since(begun) < span; <-tick.C {
		there = append(there, sleepAs(n, a.Create(n, fmt.Sprintf("pod-%d", came), sandbox.Spec{Request: "1Mi"}, nil)))
		if came++; len(there) > soakPods {
			there[0].wake()
			drop(n, a, there[0].name, there[0].group)
			there = there[1:]
		}
		if time.Since(begun) > time.Duration(evicted+1)*soakEvict {
			evictOne(n, a, d, fmt.Sprintf("leaker-%d", evicted))
			evicted++
		}
		if time.Since(begun) < time.Duration(len(series[0])+1)*soakSample {
			continue
		}
		if len(series[0])%6 == 0 {
			fmt.Fprintf(w, "\n%.0f\t", time.Since(begun).Minutes())
		}
		for i, r := range soaked {
			value, err := r.read(d)
			if err != nil {
				t.Fatalf("read %s: %v", r.name, err)
			}
			if len(series[i])%6 == 0 {
				fmt.Fprintf(w, "%d\t", value)
			}
			series[i] = append(series[i], value)
		}
	}
	fmt.Fprintln(w)
	w.Flush()
	t.Logf("%d pods came and %d were evicted in %v\n%s", came, evicted, span, &table)
	for i, r := range soaked {
		if span < soakSays {
			break
		}
		quarter := len(series[i]) / 4
		before, after := middle(series[i][quarter:2*quarter]), middle(series[i][3*quarter:])
		if after > before+r.few+int(r.share*float64(before)) {
			t.Errorf("%s went from %d to %d", r.name, before, after)
		}
	}
	for _, s := range there {
		s.wake()
	}
}

// middle is the median.
func middle(values []int) int {
	sorted := slices.Sorted(slices.Values(values))
	if len(sorted) == 0 {
		return 0
	}
	return sorted[len(sorted)/2]
}

// evictOne has a pod evicted and takes it away.
func evictOne(n *harness.Node, a *kube.API, d *harness.Evictd, name string) {
	n.T.Helper()
	p := a.CreatePod(n, name, sandbox.Spec{}, nil)
	d.AwaitPods(memorySignal, p)
	p.Send("leak 1000Mi 768Mi")
	p.AwaitEnd()
	a.AwaitEvicted(n.T, name)
	d.Await("everything to be reported", func(s *nodestatus.Status) bool { return s.API.Untold == 0 })
	drop(n, a, name, p.Group)
}

// drop deletes a pod that has ended, and its cgroup.
func drop(n *harness.Node, a *kube.API, name, group string) {
	n.T.Helper()
	zero := int64(0)
	require.NoError(n.T, a.CoreV1().Pods(a.Namespace).Delete(n.T.Context(), name, metav1.DeleteOptions{GracePeriodSeconds: &zero}))
	n.Delete(group)
}

func anonymous(pid int) (kib int, err error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	_, after, _ := strings.Cut(string(text), "RssAnon:")
	_, err = fmt.Sscan(after, &kib)
	return kib, err
}

func descriptors(pid int) (int, error) {
	all, err := os.ReadDir(filepath.Join("/proc", strconv.Itoa(pid), "fd"))
	return len(all), err
}

func goroutines(d *harness.Evictd) (count int, err error) {
	metrics, err := d.Get("/metrics")
	if err != nil {
		return 0, err
	}
	_, after, _ := strings.Cut(string(metrics), "\ngo_goroutines ")
	_, err = fmt.Sscan(after, &count)
	return count, err
}

func TestNothingStaysOpenForPodsThatHaveLeft(t *testing.T) {
	t.Parallel()
	n := harness.NewNode(t, nodeMemory, nodePIDs)
	d := n.Evictd(sandbox.EvictionHard("memory.available<32Mi"))
	knows := func(pods int) {
		t.Helper()
		d.Await(fmt.Sprintf("evictd to know %d pods", pods), func(s *nodestatus.Status) bool { return len(s.Ranking[memorySignal]) == pods })
	}
	held := func() int {
		count, err := descriptors(d.PID())
		require.NoError(t, err)
		return count
	}
	before := held()
	const pods = 20
	for i := range pods {
		startSleeper(n, fmt.Sprintf("pod-%d", i))
	}
	knows(pods)
	harness.Await(t, "the pods to be measured", func() bool { return held() > before+4*pods })
	most := held()
	for i := range pods {
		require.NoError(t, os.Remove(filepath.Join(n.Manifests(), fmt.Sprintf("pod-%d.json", i))))
	}
	knows(0)
	harness.Await(t, "most of what was open for them to be closed", func() bool { return held() < before+(most-before)/4 })
}
