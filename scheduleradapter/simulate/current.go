package simulate

import (
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evictd/evictd/scheduleradapter/nodetable"
)

// Current are the objects of the cluster at this instant, complete as an API server
// returns them: assigned pods have their node, pending ones their nominated node, and
// disruption budgets a status. Pods that ended, that use unknown nodes, or that are
// given up are left out. attempted is the pod that is attempted now; nil: none is.
func (s *Simulation) Current(attempted *nodetable.Pod) *Objects {
	o := *s.objects
	o.Nodes, o.Pods = nil, nil
	for _, node := range s.objects.Nodes {
		if row := s.Table.Row(nodetable.Intern(node.Name)); row != nodetable.NoRow {
			o.Nodes = append(o.Nodes, s.Table.Node(row).Object)
		}
	}
	for row, pod := range s.Table.AllPods() {
		o.Pods = append(o.Pods, changed(pod.Object, s.Table.Node(row).Name.Value(), pod.Object.Status.NominatedNodeName))
	}
	listed := map[string]bool{}
	pending := func(pod *nodetable.Pod) {
		if !listed[pod.String()] {
			listed[pod.String()] = true
			o.Pods = append(o.Pods, changed(pod.Object, "", s.Nominator.Node(pod.UID)))
		}
	}
	if attempted != nil {
		pending(attempted)
	}
	for pod := range s.Nominator.All() {
		pending(pod)
	}
	for _, e := range s.Queue.Entries() {
		pending(e.Pod)
	}
	o.DisruptionBudgets = nil
	for _, budget := range s.objects.DisruptionBudgets {
		counted := *budget
		counted.Status.DisruptionsAllowed = s.disruptionsAllowed(budget)
		o.DisruptionBudgets = append(o.DisruptionBudgets, &counted)
	}
	o.Volumes, o.Claims = s.stores.Volumes.Reported()
	o.ResourceClaims = s.stores.Devices.Reported()
	sortByKey(o.Volumes)
	sortByKey(o.Claims)
	sortByKey(o.ResourceClaims)
	return &o
}

// changed is a copy of a pod with its node and nominated node.
func changed(pod *v1.Pod, node, nominated string) *v1.Pod {
	copied := *pod
	copied.Spec.NodeName, copied.Status.NominatedNodeName = node, nominated
	return &copied
}

func sortByKey[P metav1.Object](objects []P) {
	slices.SortFunc(objects, func(a, b P) int {
		return strings.Compare(a.GetNamespace()+"/"+a.GetName(), b.GetNamespace()+"/"+b.GetName())
	})
}
