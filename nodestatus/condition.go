package nodestatus

import (
	"cmp"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evictd/evictd/eviction"
)

// names are the names of a condition. The messages are empty where they name the signal
// instead.
type names struct {
	condition v1.NodeConditionType
	taint     string
	raised    wording
	notRaised wording
}

// wording is the reason, message and event of a condition. The event is empty where it
// equals the reason.
type wording struct{ reason, message, event string }

// builtIn are the kubelet's names and words (pkg/kubelet/nodestatus/setters.go),
// and the keys by which the node lifecycle controller taints.
var builtIn = [eviction.NumConditions]names{
	eviction.MemoryPressure: {
		v1.NodeMemoryPressure, v1.TaintNodeMemoryPressure,
		wording{"KubeletHasInsufficientMemory", "kubelet has insufficient memory available", "NodeHasInsufficientMemory"},
		wording{"KubeletHasSufficientMemory", "kubelet has sufficient memory available", "NodeHasSufficientMemory"},
	},
	eviction.DiskPressure: {
		v1.NodeDiskPressure, v1.TaintNodeDiskPressure,
		wording{"KubeletHasDiskPressure", "kubelet has disk pressure", "NodeHasDiskPressure"},
		wording{"KubeletHasNoDiskPressure", "kubelet has no disk pressure", "NodeHasNoDiskPressure"},
	},
	eviction.PIDPressure: {
		v1.NodePIDPressure, v1.TaintNodePIDPressure,
		wording{"KubeletHasInsufficientPID", "kubelet has insufficient PID available", "NodeHasInsufficientPID"},
		wording{"KubeletHasSufficientPID", "kubelet has sufficient PID available", "NodeHasSufficientPID"},
	},
	eviction.MemoryContention: contention,
}

// contention are the names of the condition that no kubelet has, in every mode.
var contention = names{
	eviction.MemoryContention.Type(), "evictd.io/memory-contention",
	wording{reason: "EvictdHasMemoryContention"}, wording{reason: "EvictdHasNoMemoryContention"},
}

// own are evictd's names, which no other eviction manager writes.
var own = [eviction.NumConditions]names{
	eviction.MemoryPressure: {
		"evictd.io/MemoryPressure", "evictd.io/memory-pressure",
		wording{reason: "EvictdHasInsufficientMemory"}, wording{reason: "EvictdHasSufficientMemory"},
	},
	eviction.DiskPressure: {
		"evictd.io/DiskPressure", "evictd.io/disk-pressure",
		wording{reason: "EvictdHasDiskPressure"}, wording{reason: "EvictdHasNoDiskPressure"},
	},
	eviction.PIDPressure: {
		"evictd.io/PIDPressure", "evictd.io/pid-pressure",
		wording{reason: "EvictdHasInsufficientPID"}, wording{reason: "EvictdHasSufficientPID"},
	},
	eviction.MemoryContention: contention,
}

// Raised says for each condition whether it is true.
type Raised [eviction.NumConditions]bool

// Conditions are the conditions as of now, in the order of
// eviction.Condition. The previous conditions, of any type and order, give the
// transition times; a condition that is not among them was Unknown before. The
// messages name the signal, its threshold and what was available; Native uses
// the kubelet's instead. MemoryContention is left out where it has no message, that is
// no threshold, unless it is among the previous ones.
func (m Mode) Conditions(raised Raised, messages [eviction.NumConditions]string, previous []v1.NodeCondition, now time.Time) []v1.NodeCondition {
	conditions := make([]v1.NodeCondition, 0, eviction.NumConditions)
	for i := range raised {
		names := m.names(i)
		ofType := func(c v1.NodeCondition) bool { return c.Type == names.condition }
		if i == int(eviction.MemoryContention) && !raised[i] && messages[i] == "" && !slices.ContainsFunc(previous, ofType) {
			continue
		}
		status, words := v1.ConditionFalse, names.notRaised
		if raised[i] {
			status, words = v1.ConditionTrue, names.raised
		}
		if words.message == "" {
			words.message = cmp.Or(messages[i], "no threshold of its signals is set")
		}
		c := v1.NodeCondition{
			Type:               names.condition,
			Status:             status,
			LastHeartbeatTime:  metav1.NewTime(now),
			LastTransitionTime: metav1.NewTime(now),
			Reason:             words.reason,
			Message:            words.message,
		}
		if at := slices.IndexFunc(previous, ofType); at >= 0 && previous[at].Status == status {
			c.LastTransitionTime = previous[at].LastTransitionTime
		}
		conditions = append(conditions, c)
	}
	return conditions
}

// EventReason is the reason of the event for a condition, by its index, that was raised
// or cleared.
func (m Mode) EventReason(condition int, raised bool) string {
	words := m.names(condition).notRaised
	if raised {
		words = m.names(condition).raised
	}
	if words.event == "" {
		return words.reason
	}
	return words.event
}

// Taints are the NoSchedule taints of the raised conditions, in the order of
// eviction.Condition.
func (m Mode) Taints(raised Raised) []v1.Taint {
	var taints []v1.Taint
	for i, holds := range raised {
		if holds {
			taints = append(taints, v1.Taint{Key: m.names(i).taint, Effect: v1.TaintEffectNoSchedule})
		}
	}
	return taints
}

// MergeTaints returns the node's taints with those of the mode added and removed, and
// whether that changes them. All other taints keep their place.
func (m Mode) MergeTaints(existing []v1.Taint, raised Raised) (merged []v1.Taint, changed bool) {
	missing := m.Taints(raised)
	for _, taint := range existing {
		at := slices.IndexFunc(missing, func(t v1.Taint) bool { return t.MatchTaint(&taint) })
		if at < 0 && m.owns(taint) {
			changed = true
			continue
		}
		if at >= 0 {
			missing = slices.Delete(missing, at, at+1)
		}
		merged = append(merged, taint)
	}
	return append(merged, missing...), changed || len(missing) > 0
}

// owns says whether the mode sets and clears the taint.
func (m Mode) owns(taint v1.Taint) bool {
	for i := range eviction.NumConditions {
		if m.names(i).sets(taint) {
			return true
		}
	}
	return false
}
