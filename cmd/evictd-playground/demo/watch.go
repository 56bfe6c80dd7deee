package demo

import (
	"context"
	"fmt"
	"os"
	"slices"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"

	"github.com/evictd/evictd/cmd/evictd-playground/console"
	"github.com/evictd/evictd/cmd/evictd-playground/podprocess"
)

// pod is what the API showed of a pod, and when it first did; or a pod that a node
// started itself.
type pod struct {
	*v1.Pod
	created, bound, nominated, running, failed, doomed, gone time.Time
	refused                                                  string // why the scheduler placed it nowhere, as it said first

	process *podprocess.Process // nil unless the node started it itself
	statm   *os.File            // of process; nil where the node is a cgroup
}

func (p *pod) String() string { return p.Namespace + "/" + p.Name }

func (p *pod) ended() bool { return !p.failed.IsZero() || !p.gone.IsZero() }

// follows says whether something happened before the pod was created.
func (p *pod) follows(at time.Time) bool { return !at.IsZero() && p.created.After(at) }

// owner names the workload of the pod; "" for a pod of its own.
func (p *pod) owner() string {
	if owner := metav1.GetControllerOf(p.Pod); owner != nil {
		return owner.Name
	}
	return ""
}

// disrupted is the reason of the condition that says why the pod has to go.
func (p *pod) disrupted() (reason string) {
	for _, c := range p.Status.Conditions {
		if c.Type == v1.DisruptionTarget && c.Status == v1.ConditionTrue {
			reason = c.Reason
		}
	}
	return reason
}

// watch follows nodes and pods until ctx ends; the script runs in its goroutine.
func (s *script) watch(ctx context.Context) error {
	factory := informers.NewSharedInformerFactory(s.client, 0)
	follow := func(informer cache.SharedIndexInformer, happened func(at time.Time, object any, gone bool)) error {
		send := func(object any, gone bool) {
			at := time.Now()
			if stale, ok := object.(cache.DeletedFinalStateUnknown); ok {
				object = stale.Obj
			}
			s.send(ctx, func() { happened(at, object, gone) })
		}
		_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc: func(o any) { send(o, false) }, UpdateFunc: func(_, o any) { send(o, false) }, DeleteFunc: func(o any) { send(o, true) },
		})
		return err
	}
	err := follow(factory.Core().V1().Nodes().Informer(), func(at time.Time, o any, _ bool) { s.nodeTurned(at, o.(*v1.Node)) })
	if err == nil {
		err = follow(factory.Core().V1().Pods().Informer(), func(at time.Time, o any, gone bool) { s.podTurned(at, o.(*v1.Pod), gone) })
	}
	if err != nil {
		return err
	}
	factory.Start(ctx.Done())
	<-ctx.Done()
	factory.Shutdown()
	return nil
}

// send hands what a goroutine saw to the script.
func (s *script) send(ctx context.Context, happened func()) {
	select {
	case s.seen <- happened:
	case <-ctx.Done():
	}
}

// once notes when something is so for the first time, and says whether this is it.
func once(at time.Time, first *time.Time, so bool) bool {
	if !so || !first.IsZero() {
		return false
	}
	*first = at
	return true
}

func (s *script) nodeTurned(at time.Time, seen *v1.Node) {
	i := slices.IndexFunc(s.nodes, func(n *node) bool { return n.name == seen.Name })
	if i < 0 {
		return
	}
	n := s.nodes[i]
	n.seen = seen
	const taint = v1.TaintNodeMemoryPressure
	if once(at, &n.raised, pressed(seen)) {
		s.Print(at, console.Yellow, n.name, "MemoryPressure=True in %s%s", s.published, s.afterCrossing(at))
	}
	if once(at, &n.tainted, tainted(seen, taint)) {
		s.Print(at, console.Yellow, n.name, "taint %s:NoSchedule in %s%s", taint, s.published, s.afterCrossing(at))
	}
	if once(at, &n.cleared, !n.raised.IsZero() && !pressed(seen)) {
		s.Print(at, console.Green, n.name, "MemoryPressure=False in %s%s", s.published, after(at, s.back, "the threshold was kept again"))
	}
	if once(at, &n.untainted, !n.tainted.IsZero() && !tainted(seen, taint)) {
		s.Print(at, console.Green, n.name, "the taint is gone")
	}
	if s.kept && n.recovered() {
		n.forget()
	}
}

// after says how long after something else it was, once there is that.
func after(at, from time.Time, what string) string {
	if from.IsZero() {
		return ""
	}
	return fmt.Sprintf(", %s after %s", console.Span(at.Sub(from)), what)
}

func (s *script) afterCrossing(at time.Time) string { return after(at, s.crossed, "the crossing") }

func (s *script) podTurned(at time.Time, seen *v1.Pod, gone bool) {
	p := s.pods[seen.UID]
	if p == nil {
		p = &pod{}
		s.pods[seen.UID] = p
	}
	p.Pod = seen
	if once(at, &p.created, true) && s.replacing != "" && p.owner() == s.replacing {
		s.Print(at, console.Blue, "workloads", "%v is created in its place", p)
	}
	if message := refusal(seen); message != "" && p.refused == "" {
		p.refused = message
		s.Print(at, console.Yellow, "scheduler", "%v has to wait: %s", p, message)
	}
	if once(at, &p.nominated, seen.Status.NominatedNodeName != "" && seen.Spec.NodeName == "") {
		s.Print(at, console.Yellow, "scheduler", "%v is to have the room on %s", p, seen.Status.NominatedNodeName)
	}
	if once(at, &p.bound, seen.Spec.NodeName != "") && s.open {
		s.Print(at, console.Green, "scheduler", "%v goes to %s", p, seen.Spec.NodeName)
	}
	if once(at, &p.running, running(seen)) && s.open {
		s.Print(at, console.Green, seen.Spec.NodeName, "%v runs, %s after it was bound", p, console.Span(at.Sub(p.bound)))
	}
	if once(at, &p.failed, seen.Status.Phase == v1.PodFailed && seen.DeletionTimestamp == nil) && s.open {
		s.Print(at, console.Red, "pod", "%v is %s/%s in the API%s", p, seen.Status.Phase, seen.Status.Reason, s.afterCrossing(at))
	}
	if once(at, &p.doomed, seen.DeletionTimestamp != nil && p.disrupted() != "") && s.open {
		s.Print(at, console.Red, "pod", "%v has to go (%s) and is given %ds", p, p.disrupted(), *seen.DeletionGracePeriodSeconds)
	}
	if fault := s.fault(p); fault != nil && s.broken == nil {
		s.broken = fault
	}
	if once(at, &p.gone, gone) && !p.doomed.IsZero() && s.open {
		s.Print(at, console.Red, "pod", "%v is gone after %s; it %s", p, console.Span(at.Sub(p.doomed)), ending(seen))
	}
}

// fault is what must not happen: a container cannot start or ends by itself with an
// error, or another pod of the shop than the leaking one fails.
func (s *script) fault(p *pod) error {
	if s.kept {
		return nil
	}
	for _, c := range p.Status.ContainerStatuses {
		if c.State.Waiting != nil && c.State.Waiting.Message != "" {
			return fmt.Errorf("%v does not start: %s: %s", p, c.State.Waiting.Reason, c.State.Waiting.Message)
		}
		for _, state := range []v1.ContainerState{c.State, c.LastTerminationState} {
			if end := state.Terminated; end != nil && end.ExitCode != 0 && end.ExitCode < 128 {
				return fmt.Errorf("%v ended with exit code %d", p, end.ExitCode)
			}
		}
	}
	if s.open && !p.failed.IsZero() && p.UID != s.leaker {
		return fmt.Errorf("%v is %s: %s", p, p.Status.Reason, p.Status.Message)
	}
	return nil
}

func refusal(p *v1.Pod) string {
	for _, c := range p.Status.Conditions {
		if c.Type == v1.PodScheduled && c.Status == v1.ConditionFalse {
			return c.Message
		}
	}
	return ""
}

func running(p *v1.Pod) bool {
	return slices.ContainsFunc(p.Status.Conditions, func(c v1.PodCondition) bool { return c.Type == v1.PodReady && c.Status == v1.ConditionTrue })
}

// inOrder says whether all of a pod's containers have ended by themselves.
func inOrder(p *v1.Pod) bool {
	return len(p.Status.ContainerStatuses) > 0 && !slices.ContainsFunc(p.Status.ContainerStatuses, func(c v1.ContainerStatus) bool {
		return c.State.Terminated == nil || c.State.Terminated.ExitCode != 0
	})
}

func ending(p *v1.Pod) string {
	if inOrder(p) {
		return "finished what it was doing"
	}
	return "was killed"
}

// gauge is what the playground reads of the memory of a node, in bytes.
type gauge struct {
	left  atomic.Int64 // available now
	least atomic.Int64 // since the start
}

// watchMemory reads a node every millisecond, and sees the threshold crossed both
// ways.
func (s *script) watchMemory(ctx context.Context, n *node) error {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	s.gauge.least.Store(n.memory)
	for below := false; ; {
		available, err := n.available()
		at := time.Now()
		if err != nil {
			return fmt.Errorf("measure %s: %w", n.name, err)
		}
		s.gauge.left.Store(available)
		s.gauge.least.Store(min(available, s.gauge.least.Load()))
		if below != (available < n.threshold) {
			below = !below
			s.send(ctx, func() { s.memoryTurned(at, available) })
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// memoryTurned shows that the threshold was crossed, or is kept again.
func (s *script) memoryTurned(at time.Time, available int64) {
	if available < s.pressed.threshold {
		once(at, &s.crossed, true)
		s.Print(at, console.Red, "memory", "%s: below the threshold", s.left(available))
		return
	}
	s.back = at
	s.Print(at, console.Green, "memory", "%s: the threshold is kept again%s", s.left(available), s.afterCrossing(at))
}

// left shows the available memory of the node under pressure, bytes.
func (s *script) left(available int64) string {
	return s.Bar(available, s.pressed.memory, s.pressed.threshold) + " " + console.Size(available) + " left"
}

// podsOf are the pods of a workload that are or shall be running.
func (s *script) podsOf(workload string) (found []*pod) {
	for _, p := range s.pods {
		if p.owner() == workload && p.gone.IsZero() && p.failed.IsZero() && p.DeletionTimestamp == nil {
			found = append(found, p)
		}
	}
	slices.SortFunc(found, func(a, b *pod) int { return a.created.Compare(b.created) })
	return found
}

func (s *script) pod(uid types.UID) *pod {
	if p := s.pods[uid]; p != nil {
		return p
	}
	return &pod{Pod: &v1.Pod{}}
}
