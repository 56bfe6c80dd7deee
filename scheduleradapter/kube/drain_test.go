package kube

import (
	"strings"
	"testing"
)

func TestADrainThatEndsEarlySaysWhyEachPodIsLeft(t *testing.T) {
	d := &Drain{Node: "n"}
	leavers := []*leaver{{pod: aPod("asked"), asked: true}, {pod: aPod("guarded"), waiting: "a budget forbids it"}, {pod: aPod("next")}}
	lines := strings.Split(d.left(t.Context(), leavers).Error(), "\n")
	for i, want := range []string{
		": 3 pods are left", "pod default/asked: it takes its time to end", "pod default/guarded: a budget forbids it", "pod default/next: its eviction was not requested",
	} {
		if !strings.HasSuffix(lines[i], want) {
			t.Errorf("line %d is %q, want %q", i, lines[i], want)
		}
	}
}
