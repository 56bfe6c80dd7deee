package collect

import (
	"fmt"
	"reflect"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/evictd/evictd/internal/require"
	"github.com/evictd/evictd/stats"
)

// rule: 1.37
// rule: 1.39
func TestAPodAndItsContainersAreReadFromTheirGroups(t *testing.T) {
	s, _ := fixture(t)
	ids := map[string]string{"app": "cri-containerd-aaaa.scope", "side": "cri-containerd-bbbb.scope", "gone": "cri-containerd-cccc.scope"}
	p := NewPod(PodConfig{
		Cgroups: s, Cgroup: podGroup,
		Containers: []string{"init", "gone", "app", "side"},
		Child:      func(name string) string { return ids[name] },
		Disk:       NewPodDisk(PodFiles{Volumes: []PodPath{{}}, Containers: []string{"init", "gone", "app", "side"}}),
	})
	t.Cleanup(p.Close)
	var got stats.Pod
	require.NoError(t, p.Read(&got))
	if got.Memory != stats.Known(290455552-52428800) || got.Processes != stats.Known(4) || got.Threads != stats.Known(23) {
		t.Errorf("got %v", got)
	}
	for i, want := range []stats.Amount{{}, {}, stats.Known(215000000 - 41943040), stats.Known(75000000 - 10485760)} {
		if got.Containers[i] != (stats.Container{Memory: want}) {
			t.Errorf("container %d: got %v, want %v", i, got.Containers[i], want)
		}
	}
	if len(got.Volumes) != 1 || got.Volumes[0] != (stats.Volume{}) {
		t.Errorf("volumes: got %v", got.Volumes)
	}
}

func TestAPodThatIsNotThereIsUnknownUntilItIs(t *testing.T) {
	s, group := realGroup(t)
	p := NewPod(PodConfig{Cgroups: s, Cgroup: group + "/pod", Containers: []string{"c"}})
	t.Cleanup(p.Close)
	var got stats.Pod
	for range 2 { // it comes, goes, and comes again
		if err := p.Read(&got); err != nil || got.Memory.IsKnown() || got.Containers[0].Memory.IsKnown() {
			t.Errorf("before: got %v, %v", got, err)
		}
		create(t, s, group+"/pod/c")
		if err := p.Read(&got); err != nil || !got.Memory.IsKnown() || !got.Containers[0].Memory.IsKnown() || got.Processes != stats.Known(0) {
			t.Errorf("after: got %v, %v", got, err)
		}
		require.NoError(t, s.Delete(group+"/pod"))
	}
}

// realPods creates pods of two containers each, which are empty groups.
func realPods(t testing.TB, n int) []*Pod {
	s, group := realGroup(t)
	pods := make([]*Pod, n)
	for i := range pods {
		pod := fmt.Sprintf("%s/pod%d", group, i)
		for _, c := range []string{"app", "side"} {
			create(t, s, pod+"/"+c)
		}
		pods[i] = NewPod(PodConfig{Cgroups: s, Cgroup: pod, Containers: []string{"app", "side"}})
		t.Cleanup(pods[i].Close)
	}
	return pods
}

func TestReadingAPodAllocatesNothing(t *testing.T) {
	if raceDetector {
		t.Skip("skipped: needs a build without the race detector, which allocates")
	}
	pod := realPods(t, 1)[0]
	var got stats.Pod
	if allocs := testing.AllocsPerRun(100, func() { pod.Read(&got) }); allocs != 0 || !got.Memory.IsKnown() {
		t.Errorf("%v allocations, read %v", allocs, got)
	}
}

func TestMemoryIsReadWithoutOpeningAnything(t *testing.T) {
	pod := realPods(t, 1)[0]
	var all, got stats.Pod
	require.NoError(t, pod.Read(&all))
	var limit unix.Rlimit
	require.NoError(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &limit))
	none := limit
	none.Cur = 0
	require.NoError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &none))
	err := pod.ReadMemory(&got, true)
	require.NoError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &limit))
	all.Processes, all.Time, got.Time = stats.Amount{}, time.Time{}, time.Time{}
	if err != nil || !reflect.DeepEqual(got, all) {
		t.Errorf("read %+v, %v, want %+v", got, err, all)
	}
}

func benchmarkPods(b *testing.B, n int, read func(*Pod, *stats.Pod) error) {
	pods := realPods(b, n)
	figures := make([]stats.Pod, n)
	for i, p := range pods { // opens what stays open
		p.Read(&figures[i])
	}
	b.ReportAllocs()
	for b.Loop() {
		for i, p := range pods {
			read(p, &figures[i])
		}
	}
}

func BenchmarkOnePod(b *testing.B) { benchmarkPods(b, 1, (*Pod).Read) }

func Benchmark110Pods(b *testing.B) { benchmarkPods(b, 110, (*Pod).Read) }

func BenchmarkMemoryOf110Pods(b *testing.B) {
	benchmarkPods(b, 110, func(p *Pod, s *stats.Pod) error { return p.ReadMemory(s, false) })
}
