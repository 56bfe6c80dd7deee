package admission

import (
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
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
		tolerate(pod, exists(v1.TaintNodeMemoryPressure, v1.TaintEffectNoSchedule))
	}
}
