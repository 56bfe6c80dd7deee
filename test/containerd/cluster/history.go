package cluster

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"
)

// Sighting is a state of a pod as a watch has shown it.
type Sighting struct {
	*v1.Pod
	At time.Time
	// Deleted: the pod does not exist any more.
	Deleted bool
	// Runs: a process of the pod ran, and Others: of another pod of the same name.
	Runs, Others bool
}

// History is what a watch has shown of the pods of a namespace, and of the taint of the
// first node, from before the first pod.
type History struct {
	// Restarted: the API server was killed meanwhile, and started again.
	Restarted bool
	// Late: evictd stopped before its report, so that the kubelet may be starting the container again.
	Late bool

	c         *Cluster
	namespace string

	mu    sync.Mutex
	pods  []Sighting
	taint []change
	fault error
}

// change is a time at which the node had another taint than before.
type change struct {
	at      time.Time
	version uint64 // of the Node, see version
	tainted bool
}

// pressure ends the keys of the taints that keep pods away from a node under pressure,
// evictd's and those of Kubernetes.
const pressure = "-pressure"

// Record begins a history, which ends with the test.
func (c *Cluster) Record(namespace string) *History {
	c.T.Helper()
	h := &History{c: c, namespace: namespace}
	ctx, cancel := context.WithCancel(context.Background())
	list, err := c.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
	c.must(err)
	node, err := c.CoreV1().Nodes().Get(ctx, c.Nodes[0].Name, metav1.GetOptions{})
	c.must(err)
	h.seeNode(watch.Event{Object: node})
	pods := func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
		return c.CoreV1().Pods(namespace).Watch(ctx, o)
	}
	nodes := func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
		o.FieldSelector = "metadata.name=" + node.Name
		return c.CoreV1().Nodes().Watch(ctx, o)
	}
	var following sync.WaitGroup
	follow := func(since string, watcher cache.WatchFuncWithContext, see func(watch.Event)) {
		w, err := watchtools.NewRetryWatcherWithContext(ctx, since, &cache.ListWatch{WatchFuncWithContext: watcher})
		c.must(err)
		following.Go(func() { h.follow(ctx, w, see) })
	}
	follow(list.ResourceVersion, pods, h.seePod)
	follow(node.ResourceVersion, nodes, h.seeNode)
	c.T.Cleanup(func() {
		cancel()
		following.Wait()
		if c.T.Failed() {
			c.T.Logf("history of the pods:\n%s", h)
		}
	})
	return h
}

// follow hands on what a watch shows until ctx ends. The watch continues where it was when the
// API server was away. One that ends is a fault: what it would have shown is not known.
func (h *History) follow(ctx context.Context, w watch.Interface, see func(watch.Event)) {
	defer w.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case event, open := <-w.ResultChan():
			if !open || event.Type == watch.Error {
				h.mu.Lock()
				h.fault = fmt.Errorf("the watch has ended: %v", event.Object)
				h.mu.Unlock()
				return
			}
			see(event)
		}
	}
}

func (h *History) seePod(event watch.Event) {
	pod, is := event.Object.(*v1.Pod)
	if !is {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	s := Sighting{Pod: pod, At: time.Now(), Deleted: event.Type == watch.Deleted, Runs: h.c.Runs(pod)}
	for _, before := range h.pods {
		s.Others = s.Others || before.Name == pod.Name && before.UID != pod.UID && h.c.Runs(before.Pod)
	}
	h.pods = append(h.pods, s)
}

func (h *History) seeNode(event watch.Event) {
	node, is := event.Object.(*v1.Node)
	if !is {
		return
	}
	tainted := slices.ContainsFunc(node.Spec.Taints, func(t v1.Taint) bool { return strings.HasSuffix(t.Key, pressure) })
	h.mu.Lock()
	defer h.mu.Unlock()
	if last := len(h.taint) - 1; last < 0 || h.taint[last].tainted != tainted {
		h.taint = append(h.taint, change{time.Now(), version(node), tainted})
	}
}

// version orders the states of all objects: kube-apiserver numbers its changes. Two watches do
// not show them in that order.
func version(object metav1.Object) uint64 {
	n, _ := strconv.ParseUint(object.GetResourceVersion(), 10, 64)
	return n
}

// Sightings are all so far, oldest first.
func (h *History) Sightings() []Sighting {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.pods)
}

// Of are the sightings of a pod.
func (h *History) Of(uid types.UID) []Sighting {
	return slices.DeleteFunc(h.Sightings(), func(s Sighting) bool { return s.UID != uid })
}

// UIDs are those of all pods, in the order of their creation.
func (h *History) UIDs() (uids []types.UID) {
	for _, s := range h.Sightings() {
		if !slices.Contains(uids, s.UID) {
			uids = append(uids, s.UID)
		}
	}
	return uids
}

// Await waits until the last sighting of a pod is as described, and returns it.
func (h *History) Await(what string, holds func(Sighting) bool) (found Sighting) {
	h.c.T.Helper()
	h.c.Await(what, func() bool {
		for _, uid := range h.UIDs() {
			of := h.Of(uid)
			if found = of[len(of)-1]; holds(found) {
				return true
			}
		}
		return false
	})
	return found
}

// IsReady says whether a pod is Running and Ready, and not being deleted.
func IsReady(s Sighting) bool {
	return !s.Deleted && s.DeletionTimestamp == nil && s.Status.Phase == v1.PodRunning &&
		slices.ContainsFunc(s.Status.Conditions, func(c v1.PodCondition) bool { return c.Type == v1.PodReady && c.Status == v1.ConditionTrue })
}

// IsTerminal says whether the phase of a pod is.
func IsTerminal(s Sighting) bool {
	return s.Status.Phase == v1.PodFailed || s.Status.Phase == v1.PodSucceeded
}

// AwaitTaint waits until the node has had a taint of pressure, or has none any more.
func (h *History) AwaitTaint(tainted bool) {
	h.c.T.Helper()
	h.c.Await(fmt.Sprintf("a taint of pressure of node %s: %t", h.c.Nodes[0].Name, tainted), func() bool {
		h.mu.Lock()
		defer h.mu.Unlock()
		since := h.taint[1:]
		if tainted { // it may be gone again
			return slices.ContainsFunc(since, func(c change) bool { return c.tainted })
		}
		return len(since) > 0 && !since[len(since)-1].tainted
	})
}

// Tainted is when the node had a taint of pressure first after an instant; zero where it had
// none.
func (h *History) Tainted(since time.Time) time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, c := range h.taint {
		if c.tainted && c.at.After(since) {
			return c.at
		}
	}
	return time.Time{}
}

// Events counts the events of a reason about a pod.
func (h *History) Events(uid types.UID, reason string) (events int) {
	h.c.T.Helper()
	list, err := h.c.EventsV1().Events(h.namespace).List(h.c.T.Context(), metav1.ListOptions{})
	h.c.must(err)
	for _, e := range list.Items {
		if e.Regarding.UID == uid && e.Reason == reason {
			events++
		}
	}
	return events
}

// String is a line for each sighting that differs from the one before in what matters.
func (h *History) String() string {
	var out strings.Builder
	last := map[types.UID]string{}
	sightings := h.Sightings()
	for _, s := range sightings {
		line := s.line()
		if line == last[s.UID] {
			continue
		}
		last[s.UID] = line
		fmt.Fprintf(&out, "%8.3f %s\n", s.At.Sub(sightings[0].At).Seconds(), line)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, c := range h.taint {
		if len(sightings) > 0 {
			fmt.Fprintf(&out, "%8.3f tainted: %t\n", c.at.Sub(sightings[0].At).Seconds(), c.tainted)
		}
	}
	return out.String()
}

func (s *Sighting) line() string {
	var containers []string
	for _, c := range s.Status.ContainerStatuses {
		text := "waiting"
		if c.State.Waiting != nil {
			text = fmt.Sprintf("waiting (%s)", c.State.Waiting.Reason)
		} else if c.State.Running != nil {
			text = "running"
		} else if c.State.Terminated != nil {
			text = fmt.Sprint("exit ", c.State.Terminated.ExitCode)
		}
		containers = append(containers, fmt.Sprintf("%s restarts %d", text, c.RestartCount))
	}
	target := ""
	for _, c := range s.Status.Conditions {
		if c.Type == v1.DisruptionTarget {
			target = fmt.Sprintf("%s %s %q", c.Status, c.Reason, c.Message)
		}
	}
	return fmt.Sprintf("%s on %q: phase %s, reason %q, message %q, target {%s}, containers %q, runs %t, deletion %t, deleted %t",
		name(s.Pod), s.Spec.NodeName, s.Status.Phase, s.Status.Reason, s.Status.Message, target, containers, s.Runs, s.DeletionTimestamp != nil, s.Deleted)
}
