package suite_test

import (
	"fmt"
	"maps"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/evictd/evictd/internal/require"
	"github.com/evictd/evictd/test/containerd/node"
)

// memory is an amount of it, requested or as a limit.
func memory(amount string) map[v1.ResourceName]string {
	return map[v1.ResourceName]string{v1.ResourceMemory: amount}
}

var scratch = map[string]string{"scratch": ""}

func TestPodsAreListedAsTheKubeletNamesThem(t *testing.T) {
	t.Parallel()
	node.Each(t, func(t *testing.T, v node.Version) {
		n := node.Start(t, v, node.Options{})
		p := n.Pod("web", node.Spec{Requests: memory("16Mi"), Grace: 7, Metadata: metav1.ObjectMeta{
			Labels: map[string]string{"app": "shop"}, Annotations: map[string]string{"kubernetes.io/config.source": "api"},
		}})
		pod := map[string]string{
			"io.kubernetes.pod.name": "web", "io.kubernetes.pod.namespace": "default", "io.kubernetes.pod.uid": string(p.UID),
		}

		sandboxes := node.Call(n, n.Runtime.ListPodSandbox, &runtime.ListPodSandboxRequest{}).Items
		if len(sandboxes) != 1 || sandboxes[0].Id != p.Sandbox || sandboxes[0].State != runtime.PodSandboxState_SANDBOX_READY {
			t.Fatalf("sandboxes %v, want one that is ready: %s", sandboxes, p.Sandbox)
		}
		labels := maps.Clone(pod)
		labels["app"] = "shop"
		mustHave(t, "labels of the sandbox", sandboxes[0].Labels, labels)
		mustHave(t, "annotations of the sandbox", sandboxes[0].Annotations, p.Annotations)

		containers := node.Call(n, n.Runtime.ListContainers, &runtime.ListContainersRequest{}).Containers
		if len(containers) != 1 || containers[0].Id != p.Containers[0].ID || containers[0].State != runtime.ContainerState_CONTAINER_RUNNING {
			t.Fatalf("containers %v, want one that runs: %s", containers, p.Containers[0].ID)
		}
		labels = maps.Clone(pod)
		labels["io.kubernetes.container.name"] = "c"
		mustHave(t, "labels of the container", containers[0].Labels, labels)
		mustHave(t, "annotations of the container", containers[0].Annotations, map[string]string{
			"io.kubernetes.pod.terminationGracePeriod": "7", "io.kubernetes.container.restartCount": "0",
		})
		if !strings.HasPrefix(p.Group, n.Group+"/kubepods/burstable/pod") || !p.Containers[0].Lives() {
			t.Errorf("no process in cgroup %s", p.Containers[0].Group)
		}
		p.Remove()
		if left := node.Call(n, n.Runtime.ListPodSandbox, &runtime.ListPodSandboxRequest{}).Items; len(left) > 0 {
			t.Errorf("sandboxes %v of a removed pod", left)
		}
	})
}

func mustHave(t *testing.T, what string, got, want map[string]string) {
	t.Helper()
	for key, value := range want {
		if got[key] != value {
			t.Errorf("%s: %s is %q, want %q", what, key, got[key], value)
		}
	}
}

func TestContainerThatCatchesTermHasItsGrace(t *testing.T) {
	t.Parallel()
	node.Each(t, func(t *testing.T, v node.Version) {
		n := node.Start(t, v, node.Options{})
		p := n.Pod("tidy", node.Spec{EmptyDirs: scratch, Orders: []string{"on TERM /scratch/ended 200ms"}})
		p.Do("hold", node.MiB)
		p.Stop(30)
		p.AwaitEnd()
		if status := p.Containers[0].AwaitExit(); status.ExitCode != 0 {
			t.Errorf("exit code %d: it was killed", status.ExitCode)
		}
		text := require.ReadFile(t, filepath.Join(p.Volume("scratch"), "ended"))
		if _, err := strconv.ParseInt(string(text), 10, 64); err != nil {
			t.Errorf("no time in the mark: %v", err)
		}
	})
}

func TestContainerThatIgnoresTermIsKilled(t *testing.T) {
	t.Parallel()
	node.Each(t, func(t *testing.T, v node.Version) {
		n := node.Start(t, v, node.Options{})
		p := n.Pod("deaf", node.Spec{})
		p.Do("ignore-term")
		p.Stop(1)
		p.AwaitEnd()
		if status := p.Containers[0].AwaitExit(); status.ExitCode != 137 {
			t.Errorf("exit code %d, want that of SIGKILL", status.ExitCode)
		}
		if p.Lives() {
			t.Error("a process of the pod lives")
		}
	})
}

func TestContainerAboveItsLimitIsKilledByTheKernel(t *testing.T) {
	t.Parallel()
	node.Each(t, func(t *testing.T, v node.Version) {
		n := node.Start(t, v, node.Options{})
		p := n.Pod("greedy", node.Spec{Limits: memory("32Mi"), Orders: []string{fmt.Sprint("leak 0 ", 64*node.MiB)}})
		// containerd says OOMKilled only where it has read the kernel's event before the exit.
		if status := p.Containers[0].AwaitExit(); status.ExitCode != 137 {
			t.Errorf("exit code %d, reason %s", status.ExitCode, status.Reason)
		}
	})
}

func TestPodsOfANodeTakeNoMoreThanItHas(t *testing.T) {
	t.Parallel()
	node.Each(t, func(t *testing.T, v node.Version) {
		n := node.Start(t, v, node.Options{Memory: 48 * node.MiB, Snapshotter: "native"})
		p := n.Pod("bounded", node.Spec{Orders: []string{fmt.Sprint("leak 0 ", 64*node.MiB)}})
		if status := p.Containers[0].AwaitExit(); status.ExitCode != 137 {
			t.Errorf("exit code %d, want that of SIGKILL", status.ExitCode)
		}
	})
}

func TestSidecarsAndRestartedContainersRunInTheirPod(t *testing.T) {
	t.Parallel()
	node.Each(t, func(t *testing.T, v node.Version) {
		n := node.Start(t, v, node.Options{})
		m := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "pair"}, Spec: v1.PodSpec{
			InitContainers: []v1.Container{{Name: "proxy", RestartPolicy: new(v1.ContainerRestartPolicyAlways)}, {Name: "setup"}},
			Containers:     []v1.Container{{Name: "app"}},
		}}
		p := n.Run(m)
		if len(p.Containers) != 2 || p.Containers[0].Name != "proxy" || p.Containers[1].Name != "app" {
			t.Fatalf("unexpected containers %v", p.Containers)
		}
		p.Containers[1].Do("print", 4096)
		p.Containers[1].Do("hold", node.MiB)
		node.Call(n, n.Runtime.StopContainer, &runtime.StopContainerRequest{ContainerId: p.Containers[1].ID, Timeout: 5})
		again := p.Start(&m.Spec.Containers[0], 1)
		again.Do("hold", node.MiB)
		if !again.Lives() || p.Containers[1].Lives() {
			t.Error("want a process in the second attempt, and none in the first")
		}
		logs, err := filepath.Glob(filepath.Join(n.Logs, "default_pair_"+string(m.UID), "app", "[01].log"))
		if err != nil || len(logs) != 2 {
			t.Errorf("logs %q, want those of two attempts", logs)
		}
	})
}
