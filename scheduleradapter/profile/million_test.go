package profile

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"regexp"
	"runtime"
	"runtime/debug"
	"strconv"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evictd/evictd/internal/campaign"
	"github.com/evictd/evictd/internal/require"
	"github.com/evictd/evictd/scheduleradapter/config"
	"github.com/evictd/evictd/scheduleradapter/cycle"
	"github.com/evictd/evictd/scheduleradapter/framework"
	"github.com/evictd/evictd/scheduleradapter/nodetable"
)

// hugeCluster has two schedulers with the default profile over one table: one with the
// cache of scores, and one that evaluates all nodes in each attempt.
type hugeCluster struct {
	table              *nodetable.Table
	caching, full      *cycle.Scheduler
	random, fullRandom rand.PCG
	templates          *nodetable.Templates
}

func newHugeCluster(b *testing.B, nodes int) *hugeCluster {
	file := &config.File{}
	file.PercentageOfNodesToScore = new(int32(100))
	cfg, err := config.Compile(file, BuiltIn())
	require.NoError(b, err)
	env, stores := environment()
	w := &hugeCluster{table: env.Table, random: *rand.NewPCG(1, 1), templates: nodetable.NewTemplates()}
	scheduler := func(source *rand.PCG, keepsCycles bool) *cycle.Scheduler {
		env.Random = rand.New(source)
		s, err := cycle.New(time.Time{}, cycle.Config{Table: env.Table, Env: env, KeepsCycles: keepsCycles, Profiles: func(env framework.Env) ([]cycle.Profile, error) {
			return New(&cfg, env, stores, nil, slog.New(slog.DiscardHandler))
		}}, nil)
		require.NoError(b, err)
		return s
	}
	w.caching, w.full = scheduler(&w.random, false), scheduler(&w.fullRandom, true)
	for i := range nodes {
		name := fmt.Sprint("node-", i)
		w.table.SetNode(w.templates.NewNode(&v1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{v1.LabelHostname: name, v1.LabelTopologyZone: fmt.Sprint("zone-", i%3)}},
			Status: v1.NodeStatus{Allocatable: v1.ResourceList{
				v1.ResourceCPU: resource.MustParse("4"), v1.ResourceMemory: resource.MustParse("32Gi"), v1.ResourcePods: resource.MustParse("110"),
			}},
		}))
	}
	return w
}

// sized are pods of a number of sizes.
func sized(sizes int) func(i int) *nodetable.Pod {
	containers := make([][]v1.Container, sizes)
	for i := range containers {
		containers[i] = []v1.Container{{Resources: v1.ResourceRequirements{Requests: v1.ResourceList{
			v1.ResourceCPU: *resource.NewMilliQuantity(int64(100+i), resource.DecimalSI), v1.ResourceMemory: resource.MustParse("500Mi"),
		}}}}
	}
	labels := map[string]string{"app": "web"}
	return func(i int) *nodetable.Pod {
		name := fmt.Sprint("pod-", i)
		return nodetable.NewPod(&v1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", UID: types.UID(name), Labels: labels},
			Spec:       v1.PodSpec{SchedulerName: v1.DefaultSchedulerName, Containers: containers[i%sizes]},
		})
	}
}

// report places the digest of a bound pod, as the loop does when an informer reports it.
func (w *hugeCluster) report(pod *nodetable.Pod) {
	_, row := w.table.Find(pod.UID)
	object := *pod.Object
	object.Spec.NodeName = w.table.Node(row).Name.Value()
	w.table.Place(w.templates.NewPod(&object), row)
}

// attempt schedules a pod.
func (w *hugeCluster) attempt(b *testing.B, s *cycle.Scheduler, pod *nodetable.Pod) string {
	r := s.SchedulingCycle(pod, time.Time{})
	if !r.Status.OK() {
		b.Fatal(r.Message)
	}
	return r.Binding.Node.Name.Value()
}

// check schedules a pod by both schedulers with the same random numbers, and returns the
// processor time without the cache.
func (w *hugeCluster) check(b *testing.B, pod *nodetable.Pod) time.Duration {
	w.fullRandom = w.random
	before := processorTime(b)
	want := w.attempt(b, w.full, pod)
	took := processorTime(b) - before
	w.table.Displace(pod.UID)
	if got := w.attempt(b, w.caching, pod); got != want || w.random != w.fullRandom {
		b.Fatalf("pod %s is scheduled to %s with the cache, to %s without", pod, got, want)
	}
	return took
}

// BenchmarkMillion schedules pods on 1,000,000 nodes, with all nodes scored, without an
// API server. The time has the digests of the bound pods, not those of the pending ones. Of the attempts a sample is made also without the cache of scores, and the
// selected nodes are compared. EVICTD_NODES and EVICTD_CHECKS change the number of nodes
// and of the compared attempts.
func BenchmarkMillion(b *testing.B) {
	if os.Getenv("EVICTD_MILLION") == "" {
		b.Skip("needs EVICTD_MILLION=1, which make bench-million sets: several minutes and 4 GiB of memory")
	}
	nodes, checks := campaign.Count(b, "EVICTD_NODES", 1_000_000, 1000), campaign.Count(b, "EVICTD_CHECKS", 10_000, 10)
	for _, workload := range []struct {
		name                string
		sizes, pods, checks int
	}{{"identical pods", 1, nodes, checks / 2}, {"pods of 200 sizes", 200, max(nodes/50, campaign.Size(5000, 100)), checks - checks/2}} {
		b.Run(fmt.Sprintf("%s/%d nodes", workload.name, nodes), func(b *testing.B) {
			empty := heap()
			w := newHugeCluster(b, nodes)
			table := heap()
			pod := sized(workload.sizes)
			for b.Loop() {
				w.fill(b, workload.pods, workload.checks, pod)
			}
			b.ReportMetric(float64(table-empty)/float64(nodes), "B/node")
			b.ReportMetric(float64(heap()-table)/float64(w.table.PodCount()), "B/pod")
			b.ReportMetric(peakMemory(b), "peak-MiB")
			runtime.KeepAlive(w)
		})
	}
}

// fill schedules pods and compares a sample of them.
func (w *hugeCluster) fill(b *testing.B, pods, checks int, pod func(int) *nodetable.Pod) {
	every := max(1, pods/max(checks, 1))
	var cached, full time.Duration
	compared := 0
	began := time.Now()
	var without time.Duration // time of digests and of the comparison
	const batch = 1000
	for first := 0; first < pods; first += batch {
		start := time.Now()
		digests := make([]*nodetable.Pod, min(batch, pods-first))
		for i := range digests {
			digests[i] = pod(first + i)
		}
		for i := range digests {
			if (first+i)%every == 0 && compared < checks {
				full += w.check(b, digests[i])
				compared++
				w.report(digests[i])
				digests[i] = nil
			}
		}
		without += time.Since(start)
		before := processorTime(b)
		for _, p := range digests {
			if p != nil {
				w.attempt(b, w.caching, p)
				w.report(p)
			}
		}
		cached += processorTime(b) - before
	}
	b.ReportMetric((time.Since(began) - without).Seconds(), "s-all-pods")
	b.ReportMetric(float64(cached.Nanoseconds())/float64(pods-compared), "cpu-ns/pod")
	b.ReportMetric(float64(full.Nanoseconds())/float64(max(compared, 1)), "cpu-ns/pod-uncached")
	b.ReportMetric(float64(compared), "compared")
}

// heap is the memory that is in use.
func heap() uint64 {
	debug.FreeOSMemory()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

var peak = regexp.MustCompile(`VmHWM:\s+(\d+) kB`)

// peakMemory of the process in MiB.
func peakMemory(b *testing.B) float64 {
	status, err := os.ReadFile("/proc/self/status")
	require.NoError(b, err)
	found := peak.FindSubmatch(status)
	if found == nil {
		return 0
	}
	kilobytes, err := strconv.ParseFloat(string(found[1]), 64)
	require.NoError(b, err)
	return kilobytes / 1024
}
