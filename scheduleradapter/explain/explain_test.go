package explain

import (
	"strings"
	"testing"

	"github.com/evictd/evictd/scheduleradapter/cycle"
)

// rule: S8.46
func TestThePodGroupIsWritten(t *testing.T) {
	for _, test := range []struct {
		group cycle.GroupExplanation
		lines string
	}{
		{cycle.GroupExplanation{Name: "default/workers", MinCount: 3, Placed: 1, Waiting: 2, Message: "pod group is unschedulable"},
			"  it is scheduled with PodGroup default/workers, 3 pods together or none: 1 with a node, 2 without; the nodes are those of this pod alone\n" +
				"  the last attempt of the PodGroup: pod group is unschedulable\n"},
		{cycle.GroupExplanation{Name: "default/each", Waiting: 2},
			"  it is scheduled with PodGroup default/each: 0 with a node, 2 without; the nodes are those of this pod alone\n"},
	} {
		var out strings.Builder
		if err := writeExplanation(&out, &cycle.Explanation{Pod: "default/p", Nodes: 3, Feasible: 2, Group: &test.group}, false); err != nil {
			t.Fatal(err)
		}
		if want := "default/p fits 2 of 3 nodes\n" + test.lines; out.String() != want {
			t.Errorf("the output is\n%s\nexpected\n%s", out.String(), want)
		}
	}
}
