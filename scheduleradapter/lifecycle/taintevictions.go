package lifecycle

import (
	"cmp"
	"container/heap"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// TaintEvictions computes when pods are evicted for NoExecute taints. The time of a
// taint starts at its timeAdded, or when it was first seen; for a pod that was
// assigned later, when the pod was assigned. The deadline always follows from the
// current taints and tolerations; Kubernetes' controller does not change a running
// timer.
type TaintEvictions struct {
	nodes map[string]*taintedNode
	pods  map[types.UID]*taintedPod
	heap  deadlines
}

// taintedNode is a node with its NoExecute taints, their timeAdded set, and its
// pods.
type taintedNode struct {
	taints []v1.Taint
	pods   map[types.UID]*taintedPod
}

// taintedPod is a pod on a node.
type taintedPod struct {
	pod      *v1.Pod
	since    time.Time
	at       time.Time // of the eviction, if scheduled; after a failure, of the retry
	due      time.Time // of the eviction, without retries
	taint    v1.Taint
	index    int       // index in the heap, or unscheduled
	returned bool      // Due has returned the pod
	retryAt  time.Time // no eviction before
}

const unscheduled = -1

// Eviction of a pod for a taint, due since an instant.
type Eviction struct {
	Pod   *v1.Pod
	Taint v1.Taint
	Since time.Time
}

// NewTaintEvictions makes an empty one.
func NewTaintEvictions() *TaintEvictions {
	return &TaintEvictions{nodes: map[string]*taintedNode{}, pods: map[types.UID]*taintedPod{}}
}

// SetNode sets the taints of a node; none if it was deleted. It returns the pods
// whose evictions are canceled.
func (d *TaintEvictions) SetNode(now time.Time, name string, taints []v1.Taint) (canceled []*v1.Pod) {
	node := d.node(name)
	was := node.taints
	node.taints = nil
	for _, taint := range taints {
		if taint.Effect == v1.TaintEffectNoExecute {
			node.taints = append(node.taints, dated(now, taint, was))
		}
	}
	if len(was)+len(node.taints) > 0 {
		for _, s := range node.pods {
			if d.schedule(s, node) {
				canceled = append(canceled, s.pod)
			}
		}
		slices.SortFunc(canceled, byName)
	}
	d.tidy(name)
	return canceled
}

// dated is a taint with timeAdded set.
func dated(now time.Time, taint v1.Taint, was []v1.Taint) v1.Taint {
	if taint.TimeAdded != nil && taint.TimeAdded.Time.Before(now) {
		return taint
	}
	taint.TimeAdded = &metav1.Time{Time: now}
	if i := slices.IndexFunc(was, func(t v1.Taint) bool { return t.MatchTaint(&taint) && t.Value == taint.Value }); i >= 0 {
		taint.TimeAdded = was[i].TimeAdded
	}
	return taint
}

// SetPod adds or updates a pod. Pods without a node, completed and terminating pods
// are removed. It returns true if the eviction of the pod is canceled.
func (d *TaintEvictions) SetPod(now time.Time, pod *v1.Pod) (canceled bool) {
	if pod.Spec.NodeName == "" || pod.DeletionTimestamp != nil || pod.Status.Phase == v1.PodSucceeded || pod.Status.Phase == v1.PodFailed {
		d.RemovePod(pod.UID)
		return false
	}
	s := d.pods[pod.UID]
	if s == nil {
		s = &taintedPod{since: now, index: unscheduled}
		d.pods[pod.UID] = s
	}
	s.pod = pod
	if started := pod.Status.StartTime; started != nil && started.Time.Before(s.since) {
		s.since = started.Time
	}
	node := d.node(pod.Spec.NodeName)
	node.pods[pod.UID] = s
	return d.schedule(s, node)
}

// RemovePod removes a pod.
func (d *TaintEvictions) RemovePod(uid types.UID) {
	s := d.pods[uid]
	if s == nil {
		return
	}
	d.cancel(s)
	delete(d.pods, uid)
	delete(d.node(s.pod.Spec.NodeName).pods, uid)
	d.tidy(s.pod.Spec.NodeName)
}

// Next is the time of the next eviction; false: there is none.
func (d *TaintEvictions) Next() (at time.Time, any bool) {
	if len(d.heap) == 0 {
		return at, false
	}
	return d.heap[0].at, true
}

// Due returns the evictions that are due, in the order of their deadlines. They are
// not returned again unless Retry is called.
func (d *TaintEvictions) Due(now time.Time) (due []Eviction) {
	for len(d.heap) > 0 && !d.heap[0].at.After(now) {
		s := heap.Pop(&d.heap).(*taintedPod)
		s.returned = true
		due = append(due, Eviction{s.pod, s.taint, s.due})
	}
	return due
}

// Retry schedules a failed eviction again, unless the pod tolerates the taints now.
func (d *TaintEvictions) Retry(uid types.UID, at time.Time) {
	s := d.pods[uid]
	if s == nil || !s.returned {
		return
	}
	s.returned, s.retryAt = false, at
	d.schedule(s, d.node(s.pod.Spec.NodeName))
}

// schedule sets a pod's deadline by the taints of its node. It returns true if the
// eviction is canceled.
func (d *TaintEvictions) schedule(s *taintedPod, node *taintedNode) (canceled bool) {
	if s.returned {
		return false
	}
	at, taint := EvictionTime(s.pod.Spec.Tolerations, node.taints, func(t *v1.Taint) time.Time {
		if s.since.After(t.TimeAdded.Time) {
			return s.since
		}
		return t.TimeAdded.Time
	})
	if taint == nil {
		return d.cancel(s)
	}
	s.due, s.taint = at, *taint
	if at.Before(s.retryAt) {
		at = s.retryAt
	}
	s.at = at
	if s.index == unscheduled {
		heap.Push(&d.heap, s)
	} else {
		heap.Fix(&d.heap, s.index)
	}
	return false
}

func (d *TaintEvictions) cancel(s *taintedPod) (was bool) {
	if s.index == unscheduled {
		return false
	}
	heap.Remove(&d.heap, s.index)
	return true
}

func (d *TaintEvictions) node(name string) *taintedNode {
	node := d.nodes[name]
	if node == nil {
		node = &taintedNode{pods: map[types.UID]*taintedPod{}}
		d.nodes[name] = node
	}
	return node
}

// tidy removes a node without taints and pods.
func (d *TaintEvictions) tidy(name string) {
	if node := d.nodes[name]; len(node.taints)+len(node.pods) == 0 {
		delete(d.nodes, name)
	}
}

func byName(a, b *v1.Pod) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}

// deadlines is a heap of pods by deadline.
type deadlines []*taintedPod

func (l deadlines) Len() int { return len(l) }

func (l deadlines) Less(i, j int) bool {
	return cmp.Or(l[i].at.Compare(l[j].at), byName(l[i].pod, l[j].pod)) < 0
}

func (l deadlines) Swap(i, j int) {
	l[i], l[j] = l[j], l[i]
	l[i].index, l[j].index = i, j
}

func (l *deadlines) Push(x any) {
	s := x.(*taintedPod)
	s.index = len(*l)
	*l = append(*l, s)
}

func (l *deadlines) Pop() any {
	last := len(*l) - 1
	s := (*l)[last]
	(*l)[last] = nil
	*l, s.index = (*l)[:last], unscheduled
	return s
}
