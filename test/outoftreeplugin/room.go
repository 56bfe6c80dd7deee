package main

import (
	"context"
	"slices"
	"sync"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
)

const roomName = "Room"

// room is preemption in an out-of-tree plugin: it tries each node without its pods
// of lower priority, concurrently, and nominates the first by name.
type room struct {
	*notebook
	handle fwk.Handle
}

func newRoom(notes *notebook) func(context.Context, runtime.Object, fwk.Handle) (fwk.Plugin, error) {
	return func(_ context.Context, _ runtime.Object, handle fwk.Handle) (fwk.Plugin, error) {
		return &room{notes, handle}, nil
	}
}

func (r *room) Name() string { return roomName }

func (r *room) PostFilter(ctx context.Context, state fwk.CycleState, pod *v1.Pod, why fwk.NodeToStatusReader) (*fwk.PostFilterResult, *fwk.Status) {
	nodes, err := why.NodesForStatusCode(r.handle.SnapshotSharedLister().NodeInfos(), fwk.Unschedulable)
	if err != nil {
		return nil, fwk.AsStatus(err)
	}
	var mu sync.Mutex
	var fitting []string
	r.handle.Parallelizer().Until(ctx, len(nodes), func(i int) {
		if r.fits(ctx, state.Clone(), pod, nodes[i].Snapshot()) {
			mu.Lock()
			defer mu.Unlock()
			fitting = append(fitting, nodes[i].Node().Name)
		}
	}, roomName)
	if len(fitting) == 0 {
		return nil, fwk.NewStatus(fwk.Unschedulable, "no room to be made")
	}
	slices.Sort(fitting)
	err = r.handle.ClientSet().CoreV1().Pods(pod.Namespace).Delete(ctx, "victim", metav1.DeleteOptions{})
	r.note("room on %v; delete: %v", fitting, err)
	return &fwk.PostFilterResult{NominatingInfo: &fwk.NominatingInfo{NominatedNodeName: fitting[0], NominatingMode: fwk.ModeOverride}}, nil
}

// fits tries a node without the pods of lower priority.
func (r *room) fits(ctx context.Context, state fwk.CycleState, pod *v1.Pod, node fwk.NodeInfo) bool {
	if s := r.handle.RunFilterPluginsWithNominatedPods(ctx, state, pod, node); s.IsSuccess() {
		r.note("%s fits %s as it is", pod.Name, node.Node().Name)
		return false
	}
	for _, info := range slices.Clone(node.GetPods()) {
		if *info.GetPod().Spec.Priority >= *pod.Spec.Priority {
			continue
		}
		if err := node.RemovePod(klog.FromContext(ctx), info.GetPod()); err != nil {
			r.note("remove: %v", err)
		}
		if s := r.handle.RunPreFilterExtensionRemovePod(ctx, state, pod, info, node); !s.IsSuccess() {
			r.note("remove: %s", s.Message())
		}
	}
	s := r.handle.RunFilterPluginsWithNominatedPods(ctx, state, pod, node)
	r.note("without the others %s on %s: %s %s", pod.Name, node.Node().Name, s.Code(), s.Message())
	return s.IsSuccess()
}
