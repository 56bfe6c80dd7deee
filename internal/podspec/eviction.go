package podspec

import (
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
)

// The messages of evicted pods, as the kubelet writes them (pkg/kubelet/eviction/helpers.go). Each
// sentence ends in a space.
const (
	NodeLowMessage        = "The node was low on resource: %v. "
	ContainerLimitMessage = "Container %s exceeded its local ephemeral storage limit %q. "
	PodLimitMessage       = "Pod ephemeral local storage usage exceeds the total limit of containers %s. "
	EmptyDirMessage       = "Usage of EmptyDir volume %q exceeds the limit %q. "
)

// Eviction is what the status of a pod shows of its eviction.
type Eviction struct {
	// Resource was short; it is empty for a pod that the kubelet has not admitted.
	Resource v1.ResourceName
	// At is when the pod was chosen or, without the condition DisruptionTarget, when its last container
	// ended; zero if the status shows neither.
	At time.Time
}

// EvictionOf reads the eviction of a pod by a kubelet or by evictd from its status, and reports whether
// there is one. The containers of a victim may exit with 0: then its phase is Succeeded, its status has
// no reason, and the condition alone shows the eviction.
func EvictionOf(s *v1.PodStatus) (e Eviction, is bool) {
	message := ""
	if is = s.Phase == v1.PodFailed && s.Reason == "Evicted"; is {
		message = s.Message
	}
	for i := range s.ContainerStatuses {
		if end := s.ContainerStatuses[i].State.Terminated; end != nil && end.FinishedAt.After(e.At) {
			e.At = end.FinishedAt.Time
		}
	}
	ended := s.Phase == v1.PodFailed || s.Phase == v1.PodSucceeded
	for i := range s.Conditions {
		c := &s.Conditions[i]
		if c.Type != v1.DisruptionTarget {
			continue
		}
		e.At = c.LastTransitionTime.Time
		if ended && s.Reason == "" && c.Status == v1.ConditionTrue && c.Reason == v1.PodReasonTerminationByKubelet && starvedResource(c.Message) != "" {
			is, message = true, c.Message
		}
	}
	e.Resource = starvedResource(message)
	return e, is
}

// starvedResource is the resource that was short, by the message of an eviction; empty for any other
// message.
func starvedResource(message string) v1.ResourceName {
	begin := func(format string) string { text, _, _ := strings.Cut(format, "%"); return text }
	if rest, low := strings.CutPrefix(message, begin(NodeLowMessage)); low {
		name, _, _ := strings.Cut(rest, ". ")
		return v1.ResourceName(name)
	}
	if strings.HasPrefix(message, begin(PodLimitMessage)) || strings.HasPrefix(message, begin(EmptyDirMessage)) ||
		strings.HasPrefix(message, begin(ContainerLimitMessage)) && strings.Contains(message, "local ephemeral storage limit") {
		return v1.ResourceEphemeralStorage
	}
	return ""
}
