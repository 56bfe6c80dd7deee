package cluster_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	rbac "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evictd/evictd/internal/sandbox"
	"github.com/evictd/evictd/nodestatus"
	"github.com/evictd/evictd/test/containerd/cluster"
	"github.com/evictd/evictd/test/containerd/node"
	"github.com/evictd/evictd/test/harness"
)

// settings are those of a configuration file.
func settings(c *cluster.Cluster, text string) string {
	c.T.Helper()
	file := filepath.Join(c.T.TempDir(), "evictd.yaml")
	if err := os.WriteFile(file, []byte("apiVersion: evictd.io/v1alpha1\nkind: EvictdConfiguration\n"+text+"\n"), 0o644); err != nil {
		c.T.Fatal(err)
	}
	return sandbox.Config(file)
}

// makeContainers makes a pod of several containers alike, and waits until it is ready on the first node and evictd has
// measured it.
func makeContainers(c *cluster.Cluster, h *cluster.History, e *node.Evictd, namespace, pod string, change func(*v1.Pod), names ...string) cluster.Sighting {
	c.T.Helper()
	t := c.Template()
	first := t.Spec.Containers[0]
	t.Spec.Containers, t.Spec.NodeName = nil, c.Nodes[0].Name
	for _, name := range names {
		container := first.DeepCopy()
		container.Name, container.Env[1].Value = name, strings.TrimSuffix(container.Env[1].Value, "c")+name
		t.Spec.Containers = append(t.Spec.Containers, *container)
	}
	made := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: pod, Namespace: namespace}, Spec: t.Spec}
	change(made)
	if _, err := c.CoreV1().Pods(namespace).Create(c.T.Context(), made, metav1.CreateOptions{}); err != nil {
		c.T.Fatal(err)
	}
	ready := h.Await("pod "+pod+" to be ready", func(s cluster.Sighting) bool { return s.Name == pod && cluster.IsReady(s) })
	e.Await("evictd to measure the pod", func(s *nodestatus.Status) bool { return harness.Measured(s, memory.signal, ready.UID) })
	return ready
}

// container is a container of a pod by name.
func container(c *cluster.Cluster, pod *v1.Pod, name string) *node.Container {
	c.T.Helper()
	all := c.Pod(pod).Containers
	return all[slices.IndexFunc(all, func(c *node.Container) bool { return c.Name == name })]
}

// containerStatus is that of a container of a pod.
func containerStatus(pod *v1.Pod, name string) *v1.ContainerStatus {
	for i := range pod.Status.ContainerStatuses {
		if pod.Status.ContainerStatuses[i].Name == name {
			return &pod.Status.ContainerStatuses[i]
		}
	}
	return &v1.ContainerStatus{}
}

// testRestart has one of three containers use up the node: the kubelet starts it again, and the pod and its other containers
// run on. It does the same again: its pod is evicted.
func testRestart(c *cluster.Cluster) {
	namespace := c.Namespace("restart")
	h := c.Record(namespace)
	e := c.Evictd(with(hard, settings(c, "containerPressure: restart"))...)
	c.AwaitNoTaint()
	defer e.Stop()
	defer c.Remove(namespace)
	pod := makeContainers(c, h, e, namespace, "web", func(*v1.Pod) {}, "app", "proxy", "logs")
	container(c, pod.Pod, "app").Do("ignore-term")
	container(c, pod.Pod, "app").Send("leak", rate, holds)
	again := h.Await("the kubelet to start the container again", func(s cluster.Sighting) bool {
		return s.UID == pod.UID && cluster.IsReady(s) && containerStatus(s.Pod, "app").RestartCount == 1
	})
	for _, name := range []string{"proxy", "logs"} {
		if before, now := containerStatus(pod.Pod, name), containerStatus(again.Pod, name); now.RestartCount > 0 || now.ContainerID != before.ContainerID {
			c.T.Errorf("container %s was restarted: %+v", name, now)
		}
	}
	if end := containerStatus(again.Pod, "app").LastTerminationState.Terminated; end == nil || end.ExitCode != 137 {
		c.T.Errorf("the end of app: %+v", end)
	}
	h.AwaitTaint(false)
	c.Await("the event of the restart", func() bool { return h.Events(pod.UID, "ContainerRestarted") == 1 })
	e.MustHaveEvicted()
	c.Await("the restart in the recording", func() bool {
		why, err := exec.Command(harness.Program(c.T, "evictd"), "why", namespace+"/web", sandbox.StateDir(filepath.Join(c.Nodes[0].Dir(), "evictd"))).Output()
		return err == nil && strings.Contains(string(why), namespace+"/web was not evicted") &&
			strings.Contains(string(why), "restart container app of "+namespace+"/web: it alone uses more than the pod requested")
	})
	e.Await("evictd to measure the container that runs now", func(s *nodestatus.Status) bool {
		return s.Runtime != nil && slices.ContainsFunc(s.Runtime.Pods, func(p nodestatus.RuntimePod) bool {
			return p.Pod == namespace+"/web" && slices.ContainsFunc(p.Containers, func(c nodestatus.RuntimeContainer) bool {
				return strings.HasSuffix(containerStatus(again.Pod, "app").ContainerID, c.ID) && c.Memory != ""
			})
		})
	})
	container(c, again.Pod, "app").Send("leak", rate, holds)
	eviction := e.Evictd.AwaitEviction(pod.Pod, harness.Gone)
	if !strings.Contains(eviction.Because, "its container app was restarted") {
		c.T.Errorf("evicted because %s", eviction.Because)
	}
	(&scenario{shortage: memory}).mustBeEvicted(c, h, pod.UID)
}

// testRestartWhileEvictdIsKilled kills evictd while a container has its grace: it ends under the next evictd, the
// kubelet starts it again once, and nothing else ends or stays changed.
func testRestartWhileEvictdIsKilled(c *cluster.Cluster) {
	namespace, shared := c.Namespace("restart-and-kill"), c.T.TempDir()
	h := c.Record(namespace)
	flags := with(soft, settings(c, "containerPressure: restart\ncontainerRestartGracePeriod: 10m"))
	e := c.Evictd(flags...)
	c.AwaitNoTaint()
	defer c.Remove(namespace)
	pod := makeContainers(c, h, e, namespace, "web", func(pod *v1.Pod) {
		pod.Spec.TerminationGracePeriodSeconds = new(int64(600))
		template := v1.PodTemplateSpec{Spec: pod.Spec}
		cluster.Share(&template, shared, "/shared")
		pod.Spec = template.Spec
	}, "app", "proxy", "logs")
	container(c, pod.Pod, "app").Do("on TERM note", "/shared/term")
	container(c, pod.Pod, "app").Send("leak", rate, holds)
	c.Await("SIGTERM", func() bool {
		_, err := os.Stat(filepath.Join(shared, "term"))
		return err == nil
	})
	e.Await("the restart in the status", func(s *nodestatus.Status) bool { return len(s.Steps) == 1 })
	e.AwaitJournal()
	e.Kill()
	e = c.Evictd(flags...)
	defer e.Stop()
	container(c, pod.Pod, "app").Send("exit 0")
	h.Await("the kubelet to start the container again", func(s cluster.Sighting) bool {
		return s.UID == pod.UID && cluster.IsReady(s) && containerStatus(s.Pod, "app").RestartCount == 1
	})
	h.AwaitTaint(false)
	e.MustHaveEvicted()
	e.Stop()
	of := h.Of(pod.UID)
	last := of[len(of)-1]
	app := containerStatus(last.Pod, "app")
	if end := app.LastTerminationState.Terminated; app.RestartCount != 1 || end == nil || end.ExitCode != 0 {
		c.T.Errorf("container app: %+v", app)
	}
	for _, name := range []string{"proxy", "logs"} {
		if before, now := containerStatus(pod.Pod, name), containerStatus(last.Pod, name); now.RestartCount > 0 || now.ContainerID != before.ContainerID {
			c.T.Errorf("container %s was restarted: %+v", name, now)
		}
	}
	for _, reason := range []string{"Evicted", "ContainerRestarted"} {
		if events := h.Events(pod.UID, reason); reason == "Evicted" && events > 0 || events > 1 {
			c.T.Errorf("there are %d events %s", events, reason)
		}
	}
	if undone, errs, code := harness.Finish(c.T, exec.Command(harness.Program(c.T, "evictd"), "undo", sandbox.RuntimeDir(c.RuntimeDir()))); code != 0 || undone != "" {
		c.T.Errorf("evictd has left changed, exit code %d: %s%s", code, undone, errs)
	}
}

// limited gives the containers of a pod a limit of 64 MiB, which may be raised to 96 MiB.
func limited(pod *v1.Pod) {
	pod.Annotations = map[string]string{"evictd.io/resize": "memory<=96Mi"}
	for i := range pod.Spec.Containers {
		pod.Spec.Containers[i].Resources.Limits = v1.ResourceList{v1.ResourceMemory: resource.MustParse("64Mi")}
	}
}

// testResize has a container grow beyond its limit, which is raised before, and another one for which the API server
// forbids that.
func testResize(c *cluster.Cluster, forbid func(bool)) {
	namespace := c.Namespace("resize")
	h := c.Record(namespace)
	e := c.Evictd(with(hard, settings(c, "resizeNamespaces: ["+namespace+"]"))...)
	defer e.Stop()
	defer c.Remove(namespace)
	if forbid != nil {
		forbid(true)
		refused := makeContainers(c, h, e, namespace, "forbidden", limited, "app")
		container(c, refused.Pod, "app").Send("leak", 8*node.MiB, 48*node.MiB)
		c.Await("the event of the refusal", func() bool { return h.Events(refused.UID, "ContainerResizeFailed") == 1 })
		e.AwaitLog(namespace + "/forbidden container=app error=")
		forbid(false)
	}
	pod := makeContainers(c, h, e, namespace, "web", limited, "app", "proxy")
	app := container(c, pod.Pod, "app")
	app.Send("leak", 8*node.MiB, 48*node.MiB)
	resized := h.Await("the kubelet to raise the limit", func(s cluster.Sighting) bool {
		shown := containerStatus(s.Pod, "app").Resources
		return s.UID == pod.UID && shown != nil && shown.Limits.Memory().String() == "96Mi"
	})
	if limit := resized.Spec.Containers[1].Resources.Limits.Memory().String(); limit != "64Mi" {
		c.T.Errorf("the limit of proxy is %s", limit)
	}
	c.Await("the event of the resize", func() bool { return h.Events(pod.UID, "ContainerResized") == 1 })
	app.Do("hold", 80*node.MiB)
	of := h.Of(pod.UID)
	if now := containerStatus(of[len(of)-1].Pod, "app"); now.RestartCount > 0 || now.State.Running == nil || !app.Lives() {
		c.T.Errorf("container app: %+v", now)
	}
}

// testResizeThatIsDeferred has the kubelet have no room for a resize, by another program: evictd's figures are those of
// the limit that is in effect, and it asks for no other.
func testResizeThatIsDeferred(c *cluster.Cluster) {
	namespace := c.Namespace("resize-deferred")
	h := c.Record(namespace)
	e := c.Evictd(with(hard, settings(c, "resizeNamespaces: ["+namespace+"]"))...)
	defer e.Stop()
	defer c.Remove(namespace)
	large := func(pod *v1.Pod) {
		pod.Spec.Containers[0].Resources.Requests = v1.ResourceList{v1.ResourceMemory: resource.MustParse("300Mi")}
	}
	makeContainers(c, h, e, namespace, "large", large, "app")
	pod := makeContainers(c, h, e, namespace, "web", limited, "app")
	const more = `{"spec": {"containers": [{"name": "app", "resources": {"requests": {"memory": "400Mi"}, "limits": {"memory": "400Mi"}}}]}}`
	if _, err := c.CoreV1().Pods(namespace).Patch(c.T.Context(), pod.Name, types.StrategicMergePatchType, []byte(more), metav1.PatchOptions{}, "resize"); err != nil {
		c.T.Fatal(err)
	}
	h.Await("the kubelet to defer the resize", func(s cluster.Sighting) bool {
		return s.UID == pod.UID && slices.ContainsFunc(s.Status.Conditions, func(c v1.PodCondition) bool {
			return c.Type == v1.PodResizePending && c.Reason == v1.PodReasonDeferred
		})
	})
	container(c, pod.Pod, "app").Send("leak", 8*node.MiB, 48*node.MiB)
	c.Await("the event of evictd", func() bool { return h.Events(pod.UID, "MemoryLimitNear") == 1 })
	e.AwaitLog("of its limit of 64Mi, which it reaches in ")
	e.AwaitLog("the kubelet has not completed a resize of the pod: Deferred: ")
	if resizes := h.Events(pod.UID, "ContainerResized") + h.Events(pod.UID, "ContainerResizeFailed"); resizes > 0 {
		c.T.Errorf("evictd has asked for %d resizes", resizes)
	}
}

// forbidResizes returns the function that takes the right to resize pods from evictd's agent, and gives it back.
func forbidResizes(c *cluster.Cluster) func(bool) {
	const name = "evictd-agent-resize"
	roles := c.RbacV1().ClusterRoles()
	role, err := roles.Get(c.T.Context(), name, metav1.GetOptions{})
	if err != nil {
		c.T.Fatal(err)
	}
	rules := role.Rules
	return func(forbidden bool) {
		if role.Rules = rules; forbidden {
			role.Rules = []rbac.PolicyRule{}
		}
		if role, err = roles.Update(c.T.Context(), role, metav1.UpdateOptions{}); err != nil {
			c.T.Fatal(err)
		}
	}
}
