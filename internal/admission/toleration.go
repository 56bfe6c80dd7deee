package admission

import (
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// defaultTolerationSeconds is how long a pod that says nothing of it stays on a
// node that is not ready or unreachable.
const defaultTolerationSeconds = 300

// tolerate adds a toleration, or puts it in the place of one that differs in its
// seconds only.
func tolerate(pod *v1.Pod, t v1.Toleration) {
	if i := slices.IndexFunc(pod.Spec.Tolerations, func(has v1.Toleration) bool { return has.MatchToleration(&t) }); i >= 0 {
		pod.Spec.Tolerations[i] = t
		return
	}
	pod.Spec.Tolerations = append(pod.Spec.Tolerations, t)
}

func exists(key string, effect v1.TaintEffect) v1.Toleration {
	return v1.Toleration{Key: key, Operator: v1.TolerationOpExists, Effect: effect}
}

// SetTolerations gives a pod what the DaemonSet controller and the admission
// plugins DefaultTolerationSeconds and PodTolerationRestriction would.
func SetTolerations(pod *v1.Pod) {
	if owner := metav1.GetControllerOf(pod); owner != nil && owner.Kind == "DaemonSet" && strings.HasPrefix(owner.APIVersion, "apps/") {
		for _, t := range []v1.Toleration{
			exists(v1.TaintNodeNotReady, v1.TaintEffectNoExecute),
			exists(v1.TaintNodeUnreachable, v1.TaintEffectNoExecute),
			exists(v1.TaintNodeDiskPressure, v1.TaintEffectNoSchedule),
			exists(v1.TaintNodeMemoryPressure, v1.TaintEffectNoSchedule),
			exists(v1.TaintNodePIDPressure, v1.TaintEffectNoSchedule),
			exists(v1.TaintNodeUnschedulable, v1.TaintEffectNoSchedule),
		} {
			tolerate(pod, t)
		}
		if pod.Spec.HostNetwork {
			tolerate(pod, exists(v1.TaintNodeNetworkUnavailable, v1.TaintEffectNoSchedule))
		}
	}
	for _, key := range []string{v1.TaintNodeNotReady, v1.TaintNodeUnreachable} {
		decided := slices.ContainsFunc(pod.Spec.Tolerations, func(t v1.Toleration) bool {
			return (t.Key == key || t.Key == "") && (t.Effect == v1.TaintEffectNoExecute || t.Effect == "")
		})
		if !decided {
			t := exists(key, v1.TaintEffectNoExecute)
			t.TolerationSeconds = ptr.To[int64](defaultTolerationSeconds)
			tolerate(pod, t)
		}
	}
	if pod.Status.QOSClass != v1.PodQOSBestEffort {
		pod.Spec.Tolerations = merge(append(slices.Clone(pod.Spec.Tolerations), exists(v1.TaintNodeMemoryPressure, v1.TaintEffectNoSchedule)))
	}
}

// merge leaves out tolerations that another one includes, as PodTolerationRestriction does.
func merge(all []v1.Toleration) (kept []v1.Toleration) {
	for i, t := range all {
		included := slices.ContainsFunc(kept, func(other v1.Toleration) bool { return includes(other, t) }) ||
			slices.ContainsFunc(all[i+1:], func(other v1.Toleration) bool {
				return includes(other, t) && !apiequality.Semantic.DeepEqual(other, t)
			})
		if !included {
			kept = append(kept, t)
		}
	}
	return kept
}

// includes says whether a toleration tolerates all that another one does.
func includes(wide, t v1.Toleration) bool {
	switch {
	case wide.Key != t.Key && (wide.Key != "" || wide.Operator != v1.TolerationOpExists), wide.Effect != t.Effect && wide.Effect != "":
		return false
	case apiequality.Semantic.DeepEqual(wide, t):
		return true
	case wide.Effect == v1.TaintEffectNoExecute && wide.TolerationSeconds != nil && (t.TolerationSeconds == nil || *t.TolerationSeconds > *wide.TolerationSeconds):
		return false
	case wide.Operator == v1.TolerationOpExists:
		return true
	}
	return (wide.Operator == v1.TolerationOpEqual || wide.Operator == "") && t.Operator == v1.TolerationOpEqual && wide.Value == t.Value
}
