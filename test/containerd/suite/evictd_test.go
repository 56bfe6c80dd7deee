package suite_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/evictd/evictd/internal/require"
	"github.com/evictd/evictd/nodestatus"
	"github.com/evictd/evictd/test/containerd/node"
	"github.com/evictd/evictd/test/harness"
)

func TestPodsThatOnlyTheRuntimeKnowsAreProtected(t *testing.T) {
	node.Each(t, func(t *testing.T, v node.Version) {
		n := node.Start(t, v, node.Options{})
		steady := n.Pod("steady", node.Spec{Requests: memory("64Mi"), Orders: []string{"hold 33554432"}})
		hog := n.Pod("hog", node.Spec{Requests: memory("64Mi"), Limits: memory("300Mi")})
		static := n.Pod("static", node.Spec{Orders: []string{"hold 67108864"}, Metadata: metav1.ObjectMeta{Annotations: map[string]string{"kubernetes.io/config.source": "file"}}})
		e := n.Evictd("--eviction-hard=memory.available<200Mi")
		e.AwaitPods(3)
		for _, r := range e.Status().Ranking["memory.available"] {
			want := map[types.UID]v1.PodQOSClass{steady.UID: v1.PodQOSBurstable, hog.UID: v1.PodQOSBurstable, static.UID: v1.PodQOSBestEffort}[r.UID]
			if !r.Estimated || r.QOSClass != want {
				t.Errorf("pod %s: estimated %v, class %s; want estimated, class %s", r.Pod, r.Estimated, r.QOSClass, want)
			}
		}
		hog.Do("leak", 100*node.MiB, 256*node.MiB)
		evicted := e.AwaitEviction(hog)
		hog.AwaitEnd()
		// Both thresholds have the quantity, and which of them the hog meets first is a matter of time
		// between two readings.
		if !evicted.Estimated || evicted.Signal != "memory.available" && evicted.Signal != "allocatableMemory.available" {
			t.Errorf("evicted %+v", evicted)
		}
		if !steady.Lives() || !static.Lives() {
			t.Error("a bystander or a static pod has gone")
		}
		node.Await(t, "the sandbox to be stopped", func() bool {
			status := node.Call(n, n.Runtime.PodSandboxStatus, &runtime.PodSandboxStatusRequest{PodSandboxId: hog.Sandbox}).Status
			return status.State == runtime.PodSandboxState_SANDBOX_NOTREADY
		})
	})
}

// TestPodOfKubeSystemIsProtectedUntilTheAPIServerHasListed has an API server that evictd cannot
// reach at first.
//
// rule: M.83
func TestPodOfKubeSystemIsProtectedUntilTheAPIServerHasListed(t *testing.T) {
	t.Parallel()
	node.Each(t, func(t *testing.T, v node.Version) {
		n := node.Start(t, v, node.Options{})
		dns := n.Pod("dns", node.Spec{Metadata: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem}, Orders: []string{"hold 100663296"}})
		hog := n.Pod("hog", node.Spec{})
		dir := harness.Dir(t)
		harness.APIServer(t, filepath.Join(dir, "api.sock"), filepath.Join(dir, "api"))
		gate := harness.NewGate(t, "unix", filepath.Join(dir, "gate.sock"), filepath.Join(dir, "api.sock"))
		gate.Set(false)
		e := n.Evictd("--eviction-hard=memory.available<200Mi", "--server=unix:"+gate.Address)
		protection := func(want string) {
			e.Await(fmt.Sprintf("the protection of dns to be %q", want), func(s *nodestatus.Status) bool {
				ranking := s.Ranking["memory.available"]
				at := slices.IndexFunc(ranking, func(r nodestatus.Ranked) bool { return r.UID == dns.UID && r.Usage != "" })
				return at >= 0 && ranking[at].Estimated && ranking[at].Protected == want
			})
		}
		protection("system-critical priority")
		hog.Do("leak", 100*node.MiB, 256*node.MiB)
		e.AwaitEviction(hog)
		if !dns.Lives() {
			t.Error("dns is not running")
		}
		gate.Set(true)
		protection("")
	})
}

// mark is when a container received SIGTERM, by its own log.
func mark(t *testing.T, p *node.Pod, name string) time.Time {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(p.Volume("scratch"), name))
	if err != nil {
		t.Fatalf("container %s has not received SIGTERM: %v", name, err)
	}
	at, err := strconv.ParseInt(string(text), 10, 64)
	require.NoError(t, err)
	return time.Unix(0, at)
}

// family is a pod of a container and two sidecars that take a while to end.
func family(n *node.Node) *v1.Pod {
	container := func(name string) v1.Container {
		return v1.Container{Name: name, Args: []string{"on TERM /scratch/" + name + " 300ms"}, VolumeMounts: []v1.VolumeMount{{Name: "scratch", MountPath: "/scratch"}}}
	}
	first, second, app := container("first"), container("second"), container("app")
	first.RestartPolicy, second.RestartPolicy = new(v1.ContainerRestartPolicyAlways), new(v1.ContainerRestartPolicyAlways)
	return &v1.Pod{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{Name: "family", UID: "00000000-0000-4000-8000-00000000fa11"},
		Spec: v1.PodSpec{
			TerminationGracePeriodSeconds: new(int64(20)),
			InitContainers:                []v1.Container{first, second}, Containers: []v1.Container{app},
			Volumes: []v1.Volume{{Name: "scratch", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}}},
		},
	}
}

// soft makes a threshold that all of the memory there is crosses.
var soft = []string{
	"--eviction-hard=memory.available<1Mi", "--eviction-soft=memory.available<300Mi", "--eviction-soft-grace-period=memory.available=100ms", "--eviction-max-pod-grace-period=20",
}

func TestSoftVictimIsStoppedByTheRuntimeItsSidecarsLast(t *testing.T) {
	node.Each(t, func(t *testing.T, v node.Version) {
		n := node.Start(t, v, node.Options{})
		m := family(n)
		manifests := t.TempDir()
		text, err := json.Marshal(m)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(manifests, "family.json"), text, 0o644))
		p := n.Run(m)
		e := n.Evictd(append(soft, "--pod-manifests="+manifests)...)
		e.AwaitPods(1)
		p.Containers[2].Do("leak", 0, 250*node.MiB)
		e.AwaitEviction(p)
		app, second, first := mark(t, p, "app"), mark(t, p, "second"), mark(t, p, "first")
		if second.Sub(app) < 300*time.Millisecond || first.Sub(second) < 300*time.Millisecond {
			t.Errorf("SIGTERM: app %v, second %v, first %v; want each after the end of the one before", app, second, first)
		}
		for _, c := range p.Containers {
			if status := c.AwaitExit(); status.ExitCode != 0 {
				t.Errorf("container %s: exit code %d: it was killed", c.Name, status.ExitCode)
			}
		}
	})
}

func TestStopSignalOfAnImageIsThatOfASoftEviction(t *testing.T) {
	t.Parallel()
	node.Each(t, func(t *testing.T, v node.Version) {
		n := node.Start(t, v, node.Options{})
		n.Import(node.Image{Name: "localhost/quits:1", StopSignal: "SIGQUIT"})
		p := n.Pod("quits", node.Spec{Image: "localhost/quits:1", Grace: 20, EmptyDirs: scratch, Orders: []string{"ignore-term", "on QUIT /scratch/quit 100ms"}})
		e := n.Evictd(soft...)
		e.AwaitPods(1)
		p.Do("leak", 0, 250*node.MiB)
		e.AwaitEviction(p)
		mark(t, p, "quit")
		if status := p.Containers[0].AwaitExit(); status.ExitCode != 0 {
			t.Errorf("exit code %d: it was killed", status.ExitCode)
		}
	})
}

func TestRuntimeThatIsFrozenOrGoneDoesNotPreventAnEviction(t *testing.T) {
	for name, fault := range faults {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			node.Each(t, func(t *testing.T, v node.Version) {
				n := node.Start(t, v, node.Options{})
				p := n.Pod("stubborn", node.Spec{Grace: 4, Orders: []string{"ignore-term"}})
				hard := n.Pod("hard", node.Spec{})
				e := n.Evictd(append(soft, "--eviction-max-pod-grace-period=4", "--eviction-hard=memory.available<100Mi")...)
				e.AwaitPods(2)
				p.Do("leak", 0, 250*node.MiB)
				node.Await(t, "the eviction to begin", func() bool { return len(e.Status().Evictions) > 0 })
				fault.begin(n)
				evicted := e.AwaitEviction(p)
				if took := evicted.Gone.Sub(evicted.Decided.Time); took < 3*time.Second {
					t.Errorf("gone after %v: it had no grace", took)
				}
				hard.Do("leak", 100*node.MiB, 450*node.MiB)
				e.AwaitEviction(hard)
				hard.AwaitEnd()
				node.Await(t, "evictd to know that the runtime does not answer", func() bool { return !e.Status().Runtime.Connected })
				fault.end(n)
				node.Await(t, "evictd to find the runtime again", func() bool { return e.Status().Runtime.Connected })
			})
		})
	}
}

func TestStatusAgreesWithCrictl(t *testing.T) {
	crictl, err := node.Program("crictl")
	if err != nil {
		t.Skip("skipped:", err)
	}
	node.Each(t, func(t *testing.T, v node.Version) {
		n := node.Start(t, v, node.Options{})
		for i := range 3 {
			n.Pod(fmt.Sprint("p", i), node.Spec{Requests: memory("8Mi"), Orders: []string{"write /file 4194304 0"}})
		}
		m := n.Pod("again", node.Spec{})
		m.Do("hold", node.MiB)
		node.Call(n, n.Runtime.StopContainer, &runtime.StopContainerRequest{ContainerId: m.Containers[0].ID, Timeout: 0})
		e := n.Evictd()
		e.AwaitPods(4)
		node.Await(t, "layers and the image filesystem to be measured", func() bool {
			status := e.Status().Runtime
			for _, p := range status.Pods {
				for _, c := range p.Containers {
					if c.Layer == "" || strings.HasPrefix(p.Pod, "default/p") && !strings.Contains(c.Layer, "Mi") && c.Layer < "4000" {
						return false
					}
				}
			}
			return len(status.ImageFs) > 0
		})
		var listed struct {
			Containers []struct {
				ID, State string
				Metadata  struct{ Name string }
				Labels    map[string]string
			}
		}
		out, err := exec.CommandContext(t.Context(), crictl, "--runtime-endpoint", n.Endpoint(), "ps", "-a", "-o", "json").Output()
		if err == nil {
			err = json.Unmarshal(out, &listed)
		}
		require.NoError(t, err)
		var want, got []string
		for _, c := range listed.Containers {
			want = append(want, fmt.Sprint("default/", c.Labels["io.kubernetes.pod.name"], " ", c.Metadata.Name, " ", c.ID, " ", strings.ToLower(strings.TrimPrefix(c.State, "CONTAINER_"))))
		}
		status := e.Status().Runtime
		for _, p := range status.Pods {
			for _, c := range p.Containers {
				got = append(got, fmt.Sprint(p.Pod, " ", c.Name, " ", c.ID, " ", c.State))
				if running := c.State == "running"; running != (c.Memory != "") {
					t.Errorf("container %s of %s is %s and uses %q", c.Name, p.Pod, c.State, c.Memory)
				}
				if _, err := os.Stat(c.Log); err != nil {
					t.Errorf("log of container %s of %s: %v", c.Name, p.Pod, err)
				}
			}
		}
		slices.Sort(want)
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("evictd shows\n%s\ncrictl shows\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
		if len(status.ImageFs) != 1 || !strings.HasPrefix(status.ImageFs[0].Mountpoint, n.Root) {
			t.Errorf("image filesystems %+v, want one below %s", status.ImageFs, n.Root)
		}
		for _, metric := range []string{"evictd_runtime_connected 1", `evictd_runtime_objects{kind="container"} 4`, `evictd_runtime_call_duration_seconds_count{method="ListContainers"}`} {
			if !strings.Contains(e.Metrics(), metric) {
				t.Errorf("no metric %s", metric)
			}
		}
	})
}
