package node_test

import (
	"fmt"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evictd/evictd/cgroup"
	"github.com/evictd/evictd/internal/require"
	"github.com/evictd/evictd/internal/sandbox"
	"github.com/evictd/evictd/nodestatus"
	"github.com/evictd/evictd/stats"
	"github.com/evictd/evictd/test/harness"
	"github.com/evictd/evictd/test/harness/kube"
)

// resized is a node whose evictd raises limits of the API server's pods, with pods of which each container is bounded by
// the kernel.
type resized struct {
	*harness.Node
	t   *testing.T
	api *kube.API
}

func newResized(t *testing.T) *resized {
	n := harness.NewNode(t, nodeMemory, nodePIDs)
	return &resized{n, t, kube.New(n)}
}

func (n *resized) evictd() *harness.Evictd {
	settings := fmt.Sprintf("resizeNamespaces: [%s]\nresizeInterval: 10m\n", n.api.Namespace)
	return runWith(n.Node, n.api, sandbox.Mode("native"), sandbox.EvictionHard("memory.available<16Mi"), sandbox.Config(configFile(n.t, settings)), sandbox.Housekeeping("1s"))
}

// start runs a pod that requests 16 MiB and has a limit.
func (n *resized) start(name, limit string, annotations map[string]string) *harness.Pod {
	p := n.api.CreatePod(n.Node, name, sandbox.Spec{Request: "16Mi", Limit: limit, Annotations: annotations}, nil)
	n.apply(p, n.limit(p))
	return p
}

// limit is that of the pod's container in the API.
func (n *resized) limit(p *harness.Pod) int64 {
	return n.api.Pod(n.t, p.Name).Spec.Containers[0].Resources.Limits.Memory().Value()
}

// apply bounds the container, and shows that in the status of the pod, as the kubelet does.
func (n *resized) apply(p *harness.Pod, limit int64) {
	n.Make(p.Container(), cgroup.Limits{Memory: stats.Known(limit)})
	n.status(p, func(s *v1.PodStatus) {
		memory := v1.ResourceList{v1.ResourceMemory: *resource.NewQuantity(limit, resource.BinarySI)}
		s.ContainerStatuses = []v1.ContainerStatus{{Name: "c", Resources: &v1.ResourceRequirements{Limits: memory}}}
	})
}

// status changes the status of a pod.
func (n *resized) status(p *harness.Pod, change func(*v1.PodStatus)) {
	pod := n.api.Pod(n.t, p.Name)
	change(&pod.Status)
	_, err := n.api.CoreV1().Pods(pod.Namespace).UpdateStatus(n.t.Context(), pod, metav1.UpdateOptions{})
	require.NoError(n.t, err)
}

// event waits until an event of a pod has a reason, and returns its note.
func (n *resized) event(p *harness.Pod, reason string) (note string) {
	harness.Await(n.t, "event "+reason+" of "+p.Name, func() bool {
		events, err := n.api.EventsV1().Events(n.api.Namespace).List(n.t.Context(), metav1.ListOptions{})
		require.NoError(n.t, err)
		for _, e := range events.Items {
			if e.Reason == reason && e.Regarding.Name == p.Name {
				note = e.Note
				return true
			}
		}
		return false
	})
	return note
}

func upTo(bound string) map[string]string {
	return map[string]string{"evictd.io/resize": "memory<=" + bound}
}

// TestAContainerThatReachesItsLimitIsResizedOnce has a container grow past its limit, which is raised before. It is not
// raised again within the interval, also not by the next evictd.
//
// rule: M.156
func TestAContainerThatReachesItsLimitIsResizedOnce(t *testing.T) {
	t.Parallel()
	n := newResized(t)
	app, other := n.start("app", "64Mi", upTo("128Mi")), n.start("other", "24Mi", nil)
	d := n.evictd()
	d.AwaitPods(memorySignal, app, other)
	app.Send("leak 8Mi 48Mi")
	const raised = 96 * harness.MiB
	harness.Await(t, "the limit to be raised", func() bool { return n.limit(app) == raised })
	n.apply(app, raised)
	if note := n.event(app, "ContainerResized"); !strings.Contains(note, "Container c: its memory limit of 64Mi is raised to 96Mi: the container uses ") {
		t.Errorf("event: %s", note)
	}
	d.Await("the resize in the status", func(s *nodestatus.Status) bool {
		return len(s.Steps) == 1 && s.Steps[0].Step.Step == "resize" && s.Steps[0].Pod == app.Namespace+"/app"
	})
	d.AwaitJournal()
	d.Kill()
	d = n.evictd()
	d.AwaitPods(memorySignal, app, other)
	app.Do("hold 72Mi")
	app.Send("leak 2Mi 80Mi") // it nears the new limit
	harness.Await(t, "the container to use more than its first limit", func() bool { return n.Memory(app.Container()).Usage.Or(0) > 78*harness.MiB })
	other.Do("hold 8Mi")
	other.Send("leak 1Mi 14Mi")
	if note := n.event(other, "MemoryLimitNear"); !strings.Contains(note, "the pod has no annotation evictd.io/resize") {
		t.Errorf("event: %s", note)
	}
	if limit := n.limit(app); limit != raised {
		t.Errorf("the limit is %d MiB", limit/harness.MiB)
	}
	harness.MustRun(t, app, other)
	if kills := n.OOMKills(app.Container()); kills > 0 {
		t.Errorf("the kernel has killed %d processes", kills)
	}
	d.MustHaveEvicted()
}

// TestAContainerWhoseResizeIsForbiddenKeepsItsLimit has a LimitRange allow no higher one.
//
// rule: M.156
func TestAContainerWhoseResizeIsForbiddenKeepsItsLimit(t *testing.T) {
	t.Parallel()
	n := newResized(t)
	most := &v1.LimitRange{ObjectMeta: metav1.ObjectMeta{Name: "most"}, Spec: v1.LimitRangeSpec{Limits: []v1.LimitRangeItem{
		{Type: v1.LimitTypeContainer, Max: v1.ResourceList{v1.ResourceMemory: resource.MustParse("64Mi")}},
	}}}
	_, err := n.api.CoreV1().LimitRanges(n.api.Namespace).Create(t.Context(), most, metav1.CreateOptions{})
	require.NoError(t, err)
	app := n.start("app", "64Mi", upTo("128Mi"))
	d := n.evictd()
	d.AwaitPods(memorySignal, app)
	app.Send("leak 8Mi 48Mi")
	if note := n.event(app, "ContainerResizeFailed"); !strings.Contains(note, "is raised to 96Mi") || !strings.Contains(note, "maximum memory usage per Container is 64Mi") {
		t.Errorf("event: %s", note)
	}
	d.AwaitLog("a container was not resized")
	if limit := n.limit(app); limit != 64*harness.MiB {
		t.Errorf("the limit is %d MiB", limit/harness.MiB)
	}
}

// TestAContainerIsNotResizedWhileAnotherResizeOfItIsPending has the kubelet apply none: what counts is the limit that it
// has applied, and the event has its reason.
//
// rule: M.133
func TestAContainerIsNotResizedWhileAnotherResizeOfItIsPending(t *testing.T) {
	t.Parallel()
	n := newResized(t)
	app := n.start("app", "96Mi", upTo("192Mi"))
	n.apply(app, 64*harness.MiB)
	n.status(app, func(s *v1.PodStatus) {
		s.Conditions = append(s.Conditions, v1.PodCondition{Type: v1.PodResizePending, Status: v1.ConditionTrue, Reason: v1.PodReasonInfeasible, Message: "static memory policy"})
	})
	d := n.evictd()
	d.AwaitPods(memorySignal, app)
	app.Send("leak 8Mi 48Mi")
	if note := n.event(app, "MemoryLimitNear"); !strings.Contains(note, "of its limit of 64Mi") ||
		!strings.Contains(note, "the kubelet has not completed a resize of the pod: Infeasible: static memory policy") {
		t.Errorf("event: %s", note)
	}
	if limit := n.limit(app); limit != 96*harness.MiB {
		t.Errorf("the limit is %d MiB", limit/harness.MiB)
	}
}
