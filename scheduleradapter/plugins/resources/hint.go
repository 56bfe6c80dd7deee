package resources

import (
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/evictd/evictd/scheduleradapter/framework"
	"github.com/evictd/evictd/scheduleradapter/nodetable"
)

// podLeft returns Queue if a pod left a node and the pod may fit there now, or may
// preempt there now, or if a pod was scaled down in a resource that the pod requests.
// kube-scheduler returns Queue for each pod that left.
func (f *Fit) podLeft(o *framework.Occurrence, pod *nodetable.Pod) (framework.Hint, error) {
	if o.OldPod == nil {
		return framework.Queue, nil
	}
	if o.Pod != nil {
		return f.grew(&pod.Requests, func(name nodetable.Symbol) int64 {
			return amount(&o.OldPod.Requests, name) - amount(&o.Pod.Requests, name)
		}), nil
	}
	row := f.table.Row(o.Left)
	if row == nodetable.NoRow || f.hasRoom(pod, row) || f.mayPreempt(o, pod, row) {
		return framework.Queue, nil
	}
	return framework.QueueSkip, nil
}

// hasRoom reports whether the pod fits on a row beside the pods that are nominated to
// it and whose priority is not lower.
func (f *Fit) hasRoom(pod *nodetable.Pod, row nodetable.Row) bool {
	return f.fits(pod, nil, nil, row) && f.fits(pod, f.nominatedBefore(pod, row), nil, row)
}

// nominatedBefore are the pods nominated to a row whose priority is not lower than that of a pod.
func (f *Fit) nominatedBefore(pod *nodetable.Pod, row nodetable.Row) (nominated []*nodetable.Pod) {
	for other := range f.env.Nominations.On(f.table.Node(row).Name) {
		if other.UID != pod.UID && other.Priority >= pod.Priority {
			nominated = append(nominated, other)
		}
	}
	return nominated
}

// fits reports whether a row has room for a pod beside others, when some have left.
func (f *Fit) fits(pod *nodetable.Pod, others, left []*nodetable.Pod, row nodetable.Row) bool {
	if f.table.Pods.Free(row)+int64(len(left)) < int64(1+len(others)) {
		return false
	}
	for name, request := range f.requested(&pod.Requests) {
		for _, other := range others {
			request += amount(&other.Requests, name)
		}
		for _, other := range left {
			request -= amount(&other.Requests, name)
		}
		column := f.column(name)
		if column.AllocatableOn(row) == 0 && f.hasClass(name) {
			continue // devices provide it
		}
		if column.Free(row) < request {
			return false
		}
	}
	return true
}

func (f *Fit) column(name nodetable.Symbol) nodetable.Amounts {
	if i := slices.Index(nativeNames[:], name); i >= 0 {
		return [...]*nodetable.Column{&f.table.CPU, &f.table.Memory, &f.table.Ephemeral}[i]
	}
	return f.table.Extended(name)
}

// mayPreempt reports whether a pod that does not fit on a row may preempt there since
// another left. A nominated pod waits while a pod of lower priority terminates on its
// node; afterwards it may preempt on any node. What pods of lower priority use was free for
// preemption before, except for an overdue victim.
func (f *Fit) mayPreempt(o *framework.Occurrence, pod *nodetable.Pod, row nodetable.Row) bool {
	if policy := pod.Object.Spec.PreemptionPolicy; policy != nil && *policy == v1.PreemptNever {
		return false
	}
	nominated := f.table.Row(nodetable.Intern(f.env.Nominations.Node(pod.UID)))
	if nominated != nodetable.NoRow && slices.ContainsFunc(f.table.PodsOn(nominated), func(other *nodetable.Pod) bool {
		return other.Terminating && other.Priority < pod.Priority
	}) {
		return false
	}
	return nominated == row || (o.Overdue || o.OldPod.Priority >= pod.Priority) && f.fitsWithoutLower(pod, row)
}

// fitsWithoutLower reports whether a row has room for a pod without the pods of lower
// priority.
func (f *Fit) fitsWithoutLower(pod *nodetable.Pod, row nodetable.Row) bool {
	var lower []*nodetable.Pod
	for _, other := range f.table.PodsOn(row) {
		if other.Priority < pod.Priority {
			lower = append(lower, other)
		}
	}
	return f.fits(pod, f.nominatedBefore(pod, row), lower, row)
}
