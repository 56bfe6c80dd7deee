package nodetable

import (
	"cmp"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// PodGroupKey names a PodGroup; the zero value names none.
type PodGroupKey struct{ Namespace, Name string }

// String is namespace/name.
func (k PodGroupKey) String() string { return k.Namespace + "/" + k.Name }

// PodGroupOf is the PodGroup that spec.schedulingGroup of a pod names.
func PodGroupOf(pod *v1.Pod) PodGroupKey {
	if g := pod.Spec.SchedulingGroup; g != nil && g.PodGroupName != nil {
		return PodGroupKey{pod.Namespace, *g.PodGroupName}
	}
	return PodGroupKey{}
}

// podGroups are the placed pods by PodGroup.
type podGroups map[PodGroupKey]map[types.UID]bool

func (g podGroups) count(p *Pod, n int64) {
	if p.Object.Spec.SchedulingGroup == nil {
		return
	}
	key := PodGroupOf(p.Object)
	switch members := g[key]; {
	case n < 0:
		if delete(members, p.UID); len(members) == 0 {
			delete(g, key)
		}
	case members == nil:
		g[key] = map[types.UID]bool{p.UID: true}
	default:
		members[p.UID] = true
	}
}

// PodGroupSize is the number of placed pods of a PodGroup.
func (t *Table) PodGroupSize(key PodGroupKey) int { return len(t.podGroups[key]) }

// PodsOfGroup lists the placed pods of a PodGroup by uid.
func (t *Table) PodsOfGroup(key PodGroupKey) []*Pod {
	pods := make([]*Pod, 0, len(t.podGroups[key]))
	for uid := range t.podGroups[key] {
		pod, _ := t.Find(uid)
		pods = append(pods, pod)
	}
	slices.SortFunc(pods, func(a, b *Pod) int { return cmp.Compare(a.UID, b.UID) })
	return pods
}
