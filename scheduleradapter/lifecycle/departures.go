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

// Departures knows which pods have to leave their node for a taint, and when. A
// taint counts from its timeAdded, or from when it was first seen here, and for a
// pod that came later from when that came. The deadline is always what follows
// from the taints and tolerations of now; Kubernetes' controller does not move a
// timer that runs.
type Departures struct {
	nodes map[string]*tainted
	pods  map[types.UID]*stay
	armed deadlines
}

// tainted is a node with its NoExecute taints, each with the time from when it
// counts, and its pods.
type tainted struct {
	taints []v1.Taint
	pods   map[types.UID]*stay
}

// stay is a pod on a node.
type stay struct {
	pod   *v1.Pod
	since time.Time
	at    time.Time // to leave for the taint, where armed; or to be told so again
	due   time.Time // as at, however often it could not be told
	taint v1.Taint
	place int       // among the armed, or nowhere
	told  bool      // that it has to leave
	pause time.Time // not to be told before
}

const nowhere = -1

// Departure is a pod that has had to leave its node for a taint since an instant.
type Departure struct {
	Pod   *v1.Pod
	Taint v1.Taint
	Since time.Time
}

// NewDepartures knows no node and no pod.
func NewDepartures() *Departures {
	return &Departures{nodes: map[string]*tainted{}, pods: map[types.UID]*stay{}}
}

// SetNode takes in the taints of a node, none where the node is gone. It returns
// the pods that would have had to leave and now need not.
func (d *Departures) SetNode(now time.Time, name string, taints []v1.Taint) (cancelled []*v1.Pod) {
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
			if d.judge(s, node) {
				cancelled = append(cancelled, s.pod)
			}
		}
		slices.SortFunc(cancelled, byName)
	}
	d.tidy(name)
	return cancelled
}

// dated is a taint with the time from when it counts.
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

// SetPod takes in a pod. One that has no node, has ended or is being deleted has
// nowhere to leave. True where the pod would have had to leave and now need not.
func (d *Departures) SetPod(now time.Time, pod *v1.Pod) (cancelled bool) {
	if pod.Spec.NodeName == "" || pod.DeletionTimestamp != nil || pod.Status.Phase == v1.PodSucceeded || pod.Status.Phase == v1.PodFailed {
		d.RemovePod(pod.UID)
		return false
	}
	s := d.pods[pod.UID]
	if s == nil {
		s = &stay{since: now, place: nowhere}
		d.pods[pod.UID] = s
	}
	s.pod = pod
	if started := pod.Status.StartTime; started != nil && started.Time.Before(s.since) {
		s.since = started.Time
	}
	node := d.node(pod.Spec.NodeName)
	node.pods[pod.UID] = s
	return d.judge(s, node)
}

// RemovePod forgets a pod.
func (d *Departures) RemovePod(uid types.UID) {
	s := d.pods[uid]
	if s == nil {
		return
	}
	d.disarm(s)
	delete(d.pods, uid)
	delete(d.node(s.pod.Spec.NodeName).pods, uid)
	d.tidy(s.pod.Spec.NodeName)
}

// Next is when the next pod has to leave; false for none.
func (d *Departures) Next() (at time.Time, any bool) {
	if len(d.armed) == 0 {
		return at, false
	}
	return d.armed[0].at, true
}

// Due returns the pods that have to leave by now, in the order of their
// deadlines. None is returned again unless it is put back.
func (d *Departures) Due(now time.Time) (due []Departure) {
	for len(d.armed) > 0 && !d.armed[0].at.After(now) {
		s := heap.Pop(&d.armed).(*stay)
		s.told = true
		due = append(due, Departure{s.pod, s.taint, s.due})
	}
	return due
}

// PutBack makes a pod that was due, and could not be told to go, due again at the
// given time, unless it may stay by now.
func (d *Departures) PutBack(uid types.UID, at time.Time) {
	s := d.pods[uid]
	if s == nil || !s.told {
		return
	}
	s.told, s.pause = false, at
	d.judge(s, d.node(s.pod.Spec.NodeName))
}

// judge sets a pod's deadline by its node's taints. True where it had one and has
// none now.
func (d *Departures) judge(s *stay, node *tainted) (cancelled bool) {
	if s.told {
		return false
	}
	at, taint := Depart(s.pod.Spec.Tolerations, node.taints, func(t *v1.Taint) time.Time {
		if s.since.After(t.TimeAdded.Time) {
			return s.since
		}
		return t.TimeAdded.Time
	})
	if taint == nil {
		return d.disarm(s)
	}
	s.due, s.taint = at, *taint
	if at.Before(s.pause) {
		at = s.pause
	}
	s.at = at
	if s.place == nowhere {
		heap.Push(&d.armed, s)
	} else {
		heap.Fix(&d.armed, s.place)
	}
	return false
}

func (d *Departures) disarm(s *stay) (was bool) {
	if s.place == nowhere {
		return false
	}
	heap.Remove(&d.armed, s.place)
	return true
}

func (d *Departures) node(name string) *tainted {
	node := d.nodes[name]
	if node == nil {
		node = &tainted{pods: map[types.UID]*stay{}}
		d.nodes[name] = node
	}
	return node
}

// tidy forgets a node of which nothing is known.
func (d *Departures) tidy(name string) {
	if node := d.nodes[name]; len(node.taints)+len(node.pods) == 0 {
		delete(d.nodes, name)
	}
}

func byName(a, b *v1.Pod) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}

// deadlines is a heap of pods by when they have to leave.
type deadlines []*stay

func (l deadlines) Len() int { return len(l) }

func (l deadlines) Less(i, j int) bool {
	return cmp.Or(l[i].at.Compare(l[j].at), byName(l[i].pod, l[j].pod)) < 0
}

func (l deadlines) Swap(i, j int) {
	l[i], l[j] = l[j], l[i]
	l[i].place, l[j].place = i, j
}

func (l *deadlines) Push(x any) {
	s := x.(*stay)
	s.place = len(*l)
	*l = append(*l, s)
}

func (l *deadlines) Pop() any {
	last := len(*l) - 1
	s := (*l)[last]
	(*l)[last] = nil
	*l, s.place = (*l)[:last], nowhere
	return s
}
