package pods

import (
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/evictd/evictd/internal/podspec"
)

// Merge makes one set of the pods of a node, in the order of namespace and name,
// of its manifests and of what an API server says. A pod that both have, as
// itself or as the mirror of a static pod, is taken from its manifest where that
// says where the pod lives, and else from the API server.
func Merge(manifests, cluster []*v1.Pod, node string) []*v1.Pod {
	byName := make(map[string]*v1.Pod, 2*len(manifests))
	for _, m := range manifests {
		byName[fullName(m)], byName["uid "+string(m.UID)] = m, m
	}
	merged := make([]*v1.Pod, 0, len(manifests)+len(cluster))
	replaced := map[*v1.Pod]bool{}
	for _, pod := range cluster {
		m := byName["uid "+string(pod.UID)]
		if m == nil {
			m = byName[fullName(pod)]
		}
		if m == nil && podspec.IsMirror(pod) {
			m = byName[nameOfStatic(pod, node)]
		}
		if m != nil && saysWhere(m) {
			continue
		}
		replaced[m] = true
		merged = append(merged, pod)
	}
	for _, m := range manifests {
		if !replaced[m] {
			merged = append(merged, m)
		}
	}
	slices.SortFunc(merged, compareNames)
	return merged
}

// nameOfStatic is the namespace/name of the static pod that a pod is the mirror of.
func nameOfStatic(mirror *v1.Pod, node string) string {
	return mirror.Namespace + "/" + strings.TrimSuffix(mirror.Name, "-"+node)
}

// Plain treats a mirror of a static pod that no kubelet has made as a pod like others. A pod only has to say that it is a mirror,
// and would be exempt from eviction.
type Plain struct{ made map[*v1.Pod]*v1.Pod }

// Pods replaces each mirror that has no manifest by a copy without the annotations. The copy of a pod stays the same from call to call.
func (p *Plain) Pods(manifests, cluster []*v1.Pod, node string) []*v1.Pod {
	made, all := map[*v1.Pod]*v1.Pod{}, slices.Clone(cluster)
	for i, pod := range all {
		static := func(m *v1.Pod) bool { return fullName(m) == nameOfStatic(pod, node) }
		if !podspec.IsMirror(pod) || slices.ContainsFunc(manifests, static) {
			continue
		}
		plain := p.made[pod]
		if plain == nil {
			plain = pod.DeepCopy()
			podspec.Unclaim(plain)
		}
		all[i], made[pod] = plain, plain
	}
	p.made = made
	return all
}

func saysWhere(pod *v1.Pod) bool {
	return pod.Annotations[CgroupAnnotation] != "" || pod.Annotations[SessionAnnotation] != ""
}
