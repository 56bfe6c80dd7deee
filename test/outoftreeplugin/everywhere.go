package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
)

const everywhereName = "Everywhere"

// everywhere implements every extension point, records its calls, and returns the
// statuses in the pod's annotations, by point.
type everywhere struct {
	*notebook
	handle fwk.Handle
	Prefer string `json:"prefer"` // node with the highest score
}

func newEverywhere(notes *notebook) func(context.Context, runtime.Object, fwk.Handle) (fwk.Plugin, error) {
	return func(_ context.Context, args runtime.Object, handle fwk.Handle) (fwk.Plugin, error) {
		e := &everywhere{notebook: notes, handle: handle}
		if args == nil {
			return e, nil
		}
		raw, ok := args.(*runtime.Unknown)
		if !ok {
			return nil, fmt.Errorf("arguments are %T, want *runtime.Unknown", args)
		}
		return e, json.Unmarshal(raw.Raw, e)
	}
}

func (e *everywhere) Name() string { return everywhereName }

// asked is the status of a pod's annotation for a point: CODE or CODE:reason.
func asked(pod *v1.Pod, point string) *fwk.Status {
	code, reason, _ := strings.Cut(pod.Annotations[point], ":")
	for c := fwk.Success; c <= fwk.Pending; c++ {
		if c != fwk.Success && c.String() == code {
			return fwk.NewStatus(c, reason)
		}
	}
	return nil
}

func (e *everywhere) PreEnqueue(_ context.Context, pod *v1.Pod) *fwk.Status {
	e.note("PreEnqueue %s", pod.Name)
	return asked(pod, "PreEnqueue")
}

// Less orders by name, descending.
func (e *everywhere) Less(a, b fwk.QueuedEntityInfo) bool {
	name := func(q fwk.QueuedEntityInfo) string { return q.(interface{ GetPod() *v1.Pod }).GetPod().Name }
	return name(a) > name(b)
}

func (e *everywhere) EventsToRegister(context.Context) ([]fwk.ClusterEventWithHint, error) {
	return []fwk.ClusterEventWithHint{
		{Event: fwk.ClusterEvent{Resource: fwk.AssignedPod, ActionType: fwk.Delete | fwk.Add}, QueueingHintFn: e.hint},
	}, nil
}

// hint returns Queue if the pod that the pod names was added or deleted.
func (e *everywhere) hint(_ klog.Logger, pod *v1.Pod, was, is any) (fwk.QueueingHint, error) {
	other, _ := was.(*v1.Pod)
	if is != nil {
		other = is.(*v1.Pod)
	}
	e.note("hint %s of %s", pod.Name, other.Name)
	if pod.Annotations["wakes"] == other.Name {
		return fwk.Queue, nil
	}
	return fwk.QueueSkip, nil
}

// visited is the state of Everywhere in a cycle.
type visited struct{ points string }

func (v *visited) Clone() fwk.StateData { return &visited{v.points} }

// visit adds a point to the visited points and returns them.
func visit(state fwk.CycleState, point string) string {
	data, err := state.Read(everywhereName)
	if err != nil {
		data = &visited{}
		state.Write(everywhereName, data)
	}
	v := data.(*visited)
	v.points += point
	return v.points
}

func (e *everywhere) PreFilter(ctx context.Context, state fwk.CycleState, pod *v1.Pod, nodes []fwk.NodeInfo) (*fwk.PreFilterResult, *fwk.Status) {
	e.isBounded(ctx, "PreFilter")
	e.note("PreFilter %s of %d nodes", pod.Name, len(nodes))
	visit(state, "F")
	if only := pod.Annotations["only"]; only != "" {
		return &fwk.PreFilterResult{NodeNames: sets.New(strings.Split(only, ",")...)}, nil
	}
	return nil, asked(pod, "PreFilter")
}

func (e *everywhere) PreFilterExtensions() fwk.PreFilterExtensions { return nil }

func (e *everywhere) Filter(ctx context.Context, _ fwk.CycleState, pod *v1.Pod, node fwk.NodeInfo) *fwk.Status {
	e.isBounded(ctx, "Filter")
	e.note("Filter %s on %s with %d pods, cpu %d of %d", pod.Name, node.Node().Name, len(node.GetPods()), node.GetRequested().GetMilliCPU(), node.GetAllocatable().GetMilliCPU())
	if away := pod.Annotations["away"]; away == node.Node().Name || away == "*" {
		return asked(pod, "Filter")
	}
	return nil
}

func (e *everywhere) PostFilter(ctx context.Context, _ fwk.CycleState, pod *v1.Pod, why fwk.NodeToStatusReader) (*fwk.PostFilterResult, *fwk.Status) {
	e.isBounded(ctx, "PostFilter")
	rejected, err := why.NodesForStatusCode(e.handle.SnapshotSharedLister().NodeInfos(), fwk.Unschedulable)
	if err != nil {
		return nil, fwk.AsStatus(err)
	}
	e.note("PostFilter %s, %d nodes unschedulable, n1: %s %s", pod.Name, len(rejected), why.Get("n1").Code(), why.Get("n1").Message())
	if node := pod.Annotations["nominate"]; node != "" {
		return &fwk.PostFilterResult{NominatingInfo: &fwk.NominatingInfo{NominatedNodeName: node, NominatingMode: fwk.ModeOverride}}, nil
	}
	return nil, fwk.NewStatus(fwk.Unschedulable, "nothing to be done")
}

func (e *everywhere) PreScore(ctx context.Context, state fwk.CycleState, pod *v1.Pod, nodes []fwk.NodeInfo) *fwk.Status {
	e.isBounded(ctx, "PreScore")
	e.note("PreScore %s of %d nodes", pod.Name, len(nodes))
	visit(state, "S")
	return asked(pod, "PreScore")
}

func (e *everywhere) Score(ctx context.Context, _ fwk.CycleState, pod *v1.Pod, node fwk.NodeInfo) (int64, *fwk.Status) {
	e.isBounded(ctx, "Score")
	e.note("Score %s on %s", pod.Name, node.Node().Name)
	if node.Node().Name == e.Prefer {
		return 5000, asked(pod, "Score")
	}
	return 1000, asked(pod, "Score")
}

func (e *everywhere) ScoreExtensions() fwk.ScoreExtensions { return e }

func (e *everywhere) NormalizeScore(ctx context.Context, _ fwk.CycleState, pod *v1.Pod, scores fwk.NodeScoreList) *fwk.Status {
	e.isBounded(ctx, "NormalizeScore")
	e.note("NormalizeScore %s of %d nodes", pod.Name, len(scores))
	for i := range scores {
		scores[i].Score /= 50
	}
	return nil
}

func (e *everywhere) Reserve(ctx context.Context, state fwk.CycleState, pod *v1.Pod, node string) *fwk.Status {
	e.isBounded(ctx, "Reserve")
	e.note("Reserve %s on %s after %s", pod.Name, node, visit(state, "R"))
	return asked(pod, "Reserve")
}

func (e *everywhere) Unreserve(_ context.Context, state fwk.CycleState, pod *v1.Pod, node string) {
	e.note("Unreserve %s on %s after %s", pod.Name, node, visit(state, "U"))
}

// Permit lets the pods of a group wait until all of them wait.
func (e *everywhere) Permit(ctx context.Context, state fwk.CycleState, pod *v1.Pod, node string) (*fwk.Status, time.Duration) {
	e.isBounded(ctx, "Permit")
	e.note("Permit %s on %s after %s", pod.Name, node, visit(state, "P"))
	if pod.Annotations["last"] == "true" {
		e.handle.IterateOverWaitingPods(func(w fwk.WaitingPod) {
			e.note("%s lets %s go, which waits for %v", pod.Name, w.GetPod().Name, w.GetPendingPlugins())
			allowed := make(chan struct{})
			go func() {
				defer close(allowed)
				w.Allow(everywhereName)
			}()
			<-allowed
		})
	}
	if other := pod.Annotations["rejects"]; other != "" {
		e.handle.IterateOverWaitingPods(func(w fwk.WaitingPod) {
			if w.GetPod().Name == other {
				e.note("%s rejects %s: %t", pod.Name, other, w.Reject(everywhereName, "not wanted"))
			}
		})
	}
	return asked(pod, "Permit"), time.Minute
}

func (e *everywhere) PreBindPreFlight(_ context.Context, _ fwk.CycleState, pod *v1.Pod, node string) (*fwk.PreBindPreFlightResult, *fwk.Status) {
	e.note("PreBindPreFlight %s on %s", pod.Name, node)
	return nil, asked(pod, "PreBindPreFlight")
}

func (e *everywhere) PreBind(ctx context.Context, state fwk.CycleState, pod *v1.Pod, node string) *fwk.Status {
	e.note("PreBind %s on %s after %s", pod.Name, node, visit(state, "B"))
	if pod.Annotations["cancel"] == "true" {
		e.handle.GetPodInPreBind(pod.UID).CancelPod("changed its mind")
		<-ctx.Done()
	}
	return asked(pod, "PreBind")
}

func (e *everywhere) Bind(_ context.Context, state fwk.CycleState, pod *v1.Pod, node string) *fwk.Status {
	e.note("Bind %s on %s after %s", pod.Name, node, visit(state, "b"))
	if asked(pod, "Bind") == nil {
		return fwk.NewStatus(fwk.Skip)
	}
	return asked(pod, "Bind")
}

func (e *everywhere) PostBind(_ context.Context, state fwk.CycleState, pod *v1.Pod, node string) {
	e.note("PostBind %s on %s after %s", pod.Name, node, visit(state, "p"))
}
