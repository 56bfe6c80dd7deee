package podspec

import (
	"slices"

	v1 "k8s.io/api/core/v1"
)

// exitKilled is the exit code of a container that SIGKILL has ended.
const exitKilled = 128 + 9

// ContainerAt is a container by its place among the init containers and the containers of a pod; nil for
// other places.
func ContainerAt(pod *v1.Pod, i int) *v1.Container {
	inits := len(pod.Spec.InitContainers)
	switch {
	case i < inits:
		return &pod.Spec.InitContainers[i]
	case i < inits+len(pod.Spec.Containers):
		return &pod.Spec.Containers[i-inits]
	}
	return nil
}

// Restarts says whether a kubelet starts a container of a pod again, alone: always, or if SIGKILL has ended it
// (ContainerShouldRestart of k8s.io/kubernetes/pkg/kubelet/container). i is as of ContainerAt. Init containers that are no
// sidecars run while no other container does, and those of a pod that is being deleted are not started.
func Restarts(pod *v1.Pod, i int) (always, ifKilled bool) {
	c := ContainerAt(pod, i)
	if c == nil || pod.DeletionTimestamp != nil {
		return false, false
	}
	policy := pod.Spec.RestartPolicy
	if c.RestartPolicy != nil {
		policy = v1.RestartPolicy(*c.RestartPolicy)
	}
	if i < len(pod.Spec.InitContainers) && (c.RestartPolicy == nil || policy != v1.RestartPolicyAlways) {
		return false, false
	}
	for j := range c.RestartPolicyRules {
		switch rule := &c.RestartPolicyRules[j]; {
		case rule.Action != v1.ContainerRestartRuleActionRestart: // of all containers of the pod
			return false, false
		case appliesTo(rule.ExitCodes, exitKilled):
			ifKilled = true
		}
	}
	switch policy {
	case v1.RestartPolicyAlways, "":
		return true, true
	case v1.RestartPolicyOnFailure:
		return false, true
	}
	return false, ifKilled
}

func appliesTo(codes *v1.ContainerRestartRuleOnExitCodes, code int32) bool {
	if codes == nil {
		return false
	}
	return slices.Contains(codes.Values, code) == (codes.Operator == v1.ContainerRestartRuleOnExitCodesOpIn)
}

// reduceRestartRules keeps a rule that gives the container what Restarts says of all its rules.
func reduceRestartRules(rules []v1.ContainerRestartRule) []v1.ContainerRestartRule {
	killed := &v1.ContainerRestartRuleOnExitCodes{Operator: v1.ContainerRestartRuleOnExitCodesOpIn, Values: []int32{exitKilled}}
	var kept []v1.ContainerRestartRule
	for i := range rules {
		if rule := &rules[i]; rule.Action != v1.ContainerRestartRuleActionRestart {
			return []v1.ContainerRestartRule{{Action: rule.Action, ExitCodes: killed}}
		} else if kept == nil && appliesTo(rule.ExitCodes, exitKilled) {
			kept = []v1.ContainerRestartRule{{Action: rule.Action, ExitCodes: killed}}
		}
	}
	return kept
}

// reduceMounts keeps the mounts of volumes in memory, by name.
func reduceMounts(mounts []v1.VolumeMount, volumes []v1.Volume) (kept []v1.VolumeMount) {
	for i := range volumes[:min(len(volumes), maxVolumes)] {
		v := &volumes[i]
		if v.EmptyDir == nil || v.EmptyDir.Medium != v1.StorageMediumMemory {
			continue
		}
		if slices.ContainsFunc(mounts, func(m v1.VolumeMount) bool { return m.Name == v.Name }) {
			return []v1.VolumeMount{{Name: v.Name}} // each of them means the same
		}
	}
	return nil
}
