package queue

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evictd/evictd/scheduleradapter/nodetable"
)

// nominee is a pod with status.nominatedNodeName; empty: none.
func nominee(t *testing.T, name, node string) *nodetable.Pod {
	t.Helper()
	pod := nodetable.NewPod(&v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)},
		Status:     v1.PodStatus{NominatedNodeName: node},
	})
	return pod
}

func TestANominationOutlivesAnUpdateWithoutIt(t *testing.T) {
	for _, c := range []struct {
		name, before, after, want string
	}{
		{"neither version names a node", "", "", "nominated"},
		{"named now", "", "other", "other"},
		{"named otherwise", "nominated", "other", "other"},
		{"cleared", "nominated", "", ""},
		{"named as before", "nominated", "nominated", "nominated"},
	} {
		n := NewNominator()
		before, after := nominee(t, "p", c.before), nominee(t, "p", c.after)
		n.Nominate(before, "nominated")
		n.Update(before, after)
		if got := n.Node("p"); got != c.want {
			t.Errorf("%s: nominated %q", c.name, got)
		}
		for pod := range n.All() {
			if pod != after {
				t.Errorf("%s: the old version is kept", c.name)
			}
		}
	}
	n := NewNominator()
	n.Update(nominee(t, "p", ""), nominee(t, "p", ""))
	if n.Len() != 0 {
		t.Error("an update added a nomination")
	}
}
