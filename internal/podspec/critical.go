package podspec

import v1 "k8s.io/api/core/v1"

// Priority classes that every cluster has, and their values.
const (
	SystemClusterCritical = "system-cluster-critical"
	SystemNodeCritical    = "system-node-critical"

	// SystemCriticalPriority is the lowest value of a system-critical pod.
	SystemCriticalPriority     = 2_000_000_000
	SystemNodeCriticalPriority = 2_000_001_000
)

// configSource names the source from which the kubelet has a pod, and configHash the directories
// and the cgroup of a static pod.
const (
	configSource = "kubernetes.io/config.source"
	configHash   = "kubernetes.io/config.hash"
)

// Unclaim removes the annotations by which a pod counts as static or as a mirror, which only a kubelet may set.
func Unclaim(pod *v1.Pod) {
	for _, name := range []string{v1.MirrorPodAnnotationKey, configSource, configHash} {
		delete(pod.Annotations, name)
	}
}

// IsMirror says whether the pod is the API server's copy of a static pod.
func IsMirror(pod *v1.Pod) bool {
	_, mirror := pod.Annotations[v1.MirrorPodAnnotationKey]
	return mirror
}

// IsStatic says whether the kubelet has the pod from another source than the API server: a file,
// a URL, or one that it does not know (kubetypes.IsStaticPod).
func IsStatic(pod *v1.Pod) bool {
	source, has := pod.Annotations[configSource]
	return has && source != "api"
}

// HasCriticalPriority says whether the pod's priority is system-critical.
func HasCriticalPriority(pod *v1.Pod) bool {
	return pod.Spec.Priority != nil && *pod.Spec.Priority >= SystemCriticalPriority
}

// IsCritical says whether the kubelet never evicts the pod (kubetypes.IsCriticalPod).
func IsCritical(pod *v1.Pod) bool {
	return IsMirror(pod) || IsStatic(pod) || HasCriticalPriority(pod)
}
