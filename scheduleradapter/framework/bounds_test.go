package framework

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evictd/evictd/scheduleradapter/nodetable"
)

// TestTheEndOfAPodOfTheNamespaceRetriesAPodBeyondTheShare: a pod that is refused for itself is
// not retried.
// rule: S8.37
func TestTheEndOfAPodOfTheNamespaceRetriesAPodBeyondTheShare(t *testing.T) {
	pod := func(namespace string, operator v1.TolerationOperator) *nodetable.Pod {
		return nodetable.NewPod(&v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace}, Spec: v1.PodSpec{Tolerations: []v1.Toleration{{Operator: operator}}}})
	}
	for _, c := range []struct {
		what     string
		left     string
		operator v1.TolerationOperator
		want     Hint
	}{
		{"of the namespace", "shop", v1.TolerationOpExists, Queue},
		{"of another namespace", "other", v1.TolerationOpExists, QueueSkip},
		{"of the namespace, for an unknown value", "shop", "Like", QueueSkip},
	} {
		for _, h := range boundsHints {
			got, err := h.Hint(&Occurrence{Event: h.Event, OldPod: pod(c.left, "")}, pod("shop", c.operator))
			if got != c.want || err != nil {
				t.Errorf("%s: %v, %v; want %v", c.what, got, err, c.want)
			}
		}
	}
}
