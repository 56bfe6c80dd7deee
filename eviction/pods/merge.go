package pods

import (
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
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
		if _, mirror := pod.Annotations[v1.MirrorPodAnnotationKey]; m == nil && mirror {
			m = byName[pod.Namespace+"/"+strings.TrimSuffix(pod.Name, "-"+node)]
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

func saysWhere(pod *v1.Pod) bool {
	return pod.Annotations[CgroupAnnotation] != "" || pod.Annotations[SessionAnnotation] != ""
}
