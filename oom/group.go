package oom

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
)

// GroupAnnotation of a pod says whether the kernel's OOM killer kills all processes of a container
// together (true) or one of them (false): memory.oom.group of cgroup v2.
const GroupAnnotation = "evictd.io/oom-group"

// Group is the value of memory.oom.group that a pod asks for; empty where it asks for none.
func Group(pod *v1.Pod) (value string, err error) {
	switch text, asks := pod.Annotations[GroupAnnotation]; {
	case !asks:
		return "", nil
	case text == "true":
		return "1", nil
	case text == "false":
		return "0", nil
	default:
		return "", fmt.Errorf("annotation %s: %q: expected true or false", GroupAnnotation, text)
	}
}
