package drain

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func aPod(name string) *v1.Pod {
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
}

func TestADrainThatEndsEarlySaysWhyEachPodIsLeft(t *testing.T) {
	d := &Drainer{Node: "n"}
	evictions := []*eviction{{pod: aPod("accepted"), accepted: true}, {pod: aPod("guarded"), reason: "a budget forbids it"}, {pod: aPod("next")}}
	lines := strings.Split(d.left(t.Context(), evictions).Error(), "\n")
	for i, want := range []string{
		": 3 pods are left", "pod default/accepted: still terminating", "pod default/guarded: a budget forbids it", "pod default/next: not evicted yet",
	} {
		if !strings.HasSuffix(lines[i], want) {
			t.Errorf("line %d is %q, want %q", i, lines[i], want)
		}
	}
}
