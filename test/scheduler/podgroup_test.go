package scheduler_test

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evictd/evictd/scheduleradapter/framework"
	"github.com/evictd/evictd/scheduleradapter/queue"
	"github.com/evictd/evictd/scheduleradapter/simulate"
)

// podGroupObjects are gangs and groups of the basic policy, in a part of the worlds.
func (m *maker) podGroupObjects() {
	if !m.chance(25) {
		return
	}
	for i := range pick(m, 1, 1, 2) {
		name := fmt.Sprintf("g%d", i)
		g := &schedulingv1beta1.PodGroup{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: pick(m, m.namespaces...), UID: types.UID(name)}}
		if m.chance(80) {
			g.Spec.SchedulingPolicy.Gang = &schedulingv1beta1.GangSchedulingPolicy{MinCount: int32(1 + m.IntN(4))}
		} else {
			g.Spec.SchedulingPolicy.Basic = &schedulingv1beta1.BasicSchedulingPolicy{}
		}
		g.Spec.Priority = new(pick(m, int32(1), 10, 100))
		m.podGroups = append(m.podGroups, g)
		m.add(g)
	}
}

// join makes a pod that of a PodGroup. Its priority is that of all its pods, in most cases if
// it has no node.
func (m *maker) join(pod *v1.Pod, running bool) {
	if len(m.podGroups) == 0 || !m.chance(60) {
		return
	}
	g := pick(m, m.podGroups...)
	pod.Namespace, pod.Spec.SchedulingGroup = g.Namespace, &v1.PodSchedulingGroup{PodGroupName: &g.Name}
	pod.Spec.PreemptionPolicy = nil
	if running || !m.chance(2) {
		pod.Spec.Priority = g.Spec.Priority
	}
}

// checkPodGroups says what an API server refuses, and what a world must not have: pods of
// PodGroups that are not there, and pods that run with another priority than their PodGroup.
func checkPodGroups(objects *simulate.Objects) error {
	groups := map[string]*schedulingv1beta1.PodGroup{}
	for _, g := range objects.PodGroups {
		if (g.Spec.SchedulingPolicy.Gang == nil) == (g.Spec.SchedulingPolicy.Basic == nil) || g.Spec.Priority == nil {
			return fmt.Errorf("podgroup %s has no policy or no priority", g.Name)
		}
		groups[g.Namespace+"/"+g.Name] = g
	}
	for _, pod := range objects.Pods {
		if pod.Spec.SchedulingGroup == nil {
			continue
		}
		name := pod.Spec.SchedulingGroup.PodGroupName
		switch {
		case name == nil || groups[pod.Namespace+"/"+*name] == nil:
			return fmt.Errorf("pod %s has no PodGroup", pod.Name)
		case pod.Spec.NodeName != "" && *pod.Spec.Priority != *groups[pod.Namespace+"/"+*name].Spec.Priority:
			return fmt.Errorf("pod %s runs with another priority than its PodGroup", pod.Name)
		}
	}
	return nil
}

// random is the choice among equal nodes. Where PodGroups are, it is the first: the nodes of
// a pod depend on those of the pods before it.
func (w *world) random() framework.Random {
	if w.PodGroups {
		return first{}
	}
	return rand.New(rand.NewPCG(1, 1))
}

type first struct{}

func (first) IntN(int) int { return 0 }

// withoutConditions has no conditions but True ones: kube-scheduler does not write what a PodGroup
// has.
func withoutConditions(groups []*schedulingv1beta1.PodGroup) (copies []*schedulingv1beta1.PodGroup) {
	for _, g := range groups {
		if !meta.IsStatusConditionTrue(g.Status.Conditions, schedulingv1beta1.PodGroupInitiallyScheduled) {
			g = g.DeepCopy()
			g.Status.Conditions = nil
		}
		copies = append(copies, g)
	}
	return copies
}

// inOrderOf moves the members of a PodGroup to the end, in the order in which they are tried:
// kube-scheduler takes those first that it has received first.
func inOrderOf(members []*queue.Entry, pods []*v1.Pod) {
	at := func(pod *v1.Pod) int {
		return slices.IndexFunc(members, func(e *queue.Entry) bool { return e.Pod.UID == pod.UID })
	}
	slices.SortStableFunc(pods, func(a, b *v1.Pod) int { return cmp.Compare(at(a), at(b)) })
}

// podGroupAttempt is what is known of an attempt of a PodGroup, which ends with the next attempt.
type podGroupAttempt struct {
	name      string
	pods      map[string]podEnd
	scheduled bool // before: its condition is True, and is not reported
	// incomplete: a pod of the gang has left since the group was queued.
	incomplete bool
	condition  condition
	victims    []string
	seen       bool
}

func newPodGroupAttempt(e *queue.Entry, pods []*v1.Pod) *podGroupAttempt {
	g, n := e.PodGroup(), int32(0)
	for _, pod := range pods {
		if of := pod.Spec.SchedulingGroup; of != nil && pod.Namespace == g.Namespace && *of.PodGroupName == g.Name {
			n++
		}
	}
	gang := g.Spec.SchedulingPolicy.Gang
	return &podGroupAttempt{
		name: g.Namespace + "/" + g.Name, pods: map[string]podEnd{},
		incomplete: gang != nil && n < gang.MinCount,
		scheduled:  meta.IsStatusConditionTrue(g.Status.Conditions, schedulingv1beta1.PodGroupInitiallyScheduled),
	}
}

func (p *podGroupAttempt) ended(a *simulate.Attempt) {
	p.pods[a.Pod.String()] = podEnd{a.Node, a.Nominated, a.Message}
}

// PodGroup has the condition after an attempt.
func (s *simulation) PodGroup(g *simulate.PodGroup) {
	p := s.attempts[len(s.attempts)-1].podGroup
	p.condition = condition{string(g.Condition.Status), g.Condition.Reason, g.Condition.Message}
	for _, victim := range g.Victims {
		p.victims = append(p.victims, victim.String())
	}
}

// podGroupEnded compares the attempt of a PodGroup, if that is the last one.
func (s *simulation) podGroupEnded() {
	if len(s.attempts) == 0 {
		return
	}
	a := &s.attempts[len(s.attempts)-1]
	if a.podGroup == nil || a.podGroup.seen {
		return
	}
	a.podGroup.seen = true
	a.Pod, a.Pods, a.Condition, a.Victims = a.podGroup.name, a.podGroup.pods, a.podGroup.condition, slices.Clone(a.podGroup.victims)
	s.compared(a)
}

// notActive is the message for a PodGroup that kube-scheduler does not attempt.
const notActive = "the PodGroup is not active"

// podGroupNotFound ends an attempt of kube-scheduler.
const podGroupNotFound = `error in "DynamicResources" PodGroupPostFilter plugins: not found`

// placementFound is in the message of a PodGroup that preempts, before the number of victims.
const placementFound = "found a placement for podgroup, preempting "

// differs says what of an attempt of a PodGroup is different, or nothing, and for which row it
// is the same.
func (p *podGroupAttempt) differs(a *attempt, b *answer) (what string, because *row) {
	if p.incomplete && b.Message == notActive {
		return "", nil
	}
	for _, end := range a.Pods {
		if strings.Contains(end.Message, "is in the process of being allocated") {
			return "", shared
		}
	}
	for _, end := range b.Pods {
		if end.Message == podGroupNotFound {
			return "", notFound
		}
	}
	switch {
	case !p.scheduled && a.Condition != b.Condition && strings.Contains(a.Condition.Message, placementFound) && strings.HasSuffix(b.Condition.Message, placementFound+"0 victims"):
		return "", putBack
	case a.images && strings.Contains(a.Condition.Message+b.Condition.Message, placementFound) && (a.Condition != b.Condition || !equal(a.Pods, b.Pods) || !equal(a.Victims, b.Victims)):
		return "", unscored
	case !p.scheduled && a.Condition != b.Condition:
		return "the condition of the PodGroup", nil
	case !equal(a.Pods, b.Pods):
		return "the pods of the PodGroup", nil
	case !p.scheduled && !equal(a.Victims, b.Victims):
		return "the victims of the PodGroup", nil
	}
	return "", nil
}
