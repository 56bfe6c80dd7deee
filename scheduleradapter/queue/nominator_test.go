package queue

import (
	"fmt"
	"math/rand/v2"
	"slices"
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

// TestNominationsAreThoseOfAList: the order of nominations is that of a list from which
// cleared ones are removed at once, and the memory is bounded by the nominations.
func TestNominationsAreThoseOfAList(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 1))
	n := NewNominator()
	var list []nomination
	for range 20_000 {
		pod := nominee(t, fmt.Sprint("p", random.IntN(300)), "")
		list = slices.DeleteFunc(list, func(p nomination) bool { return p.pod.UID == pod.UID })
		if node := fmt.Sprint("n", random.IntN(20)); random.IntN(3) > 0 {
			n.Nominate(pod, node)
			list = append(list, nomination{pod, nodetable.Intern(node)})
		} else {
			n.Clear(pod.UID)
		}
		if random.IntN(100) > 0 {
			continue
		}
		var all []nomination
		for pod, node := range n.All() {
			all = append(all, nomination{pod, node})
			if n.Node(pod.UID) != node.Value() || !slices.Contains(slices.Collect(n.On(node)), pod) {
				t.Fatalf("pod %s is nominated to %s and %q", pod, node.Value(), n.Node(pod.UID))
			}
		}
		if !slices.Equal(all, list) || n.Len() != len(list) {
			t.Fatalf("nominations are %v, expected %v", all, list)
		}
		if len(n.nominations) > 2*len(list)+65 {
			t.Fatalf("%d nominations are kept for %d", len(n.nominations), len(list))
		}
	}
}

// BenchmarkNominate replaces nominations of 10,000 pods.
func BenchmarkNominate(b *testing.B) {
	n := NewNominator()
	pods := make([]*nodetable.Pod, 10_000)
	for i := range pods {
		pods[i] = nodetable.NewPod(&v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: types.UID(fmt.Sprint(i))}})
		n.Nominate(pods[i], fmt.Sprint("n", i%1000))
	}
	i := 0
	for b.Loop() {
		n.Nominate(pods[i%len(pods)], "other")
		i += 7
	}
}
