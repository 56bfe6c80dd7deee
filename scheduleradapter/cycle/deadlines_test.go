package cycle

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evictd/evictd/scheduleradapter/nodetable"
)

func namedPod(name string) *nodetable.Pod {
	return nodetable.NewPod(&v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)}})
}

// TestDeadlinesOfNominationsAreThoseOfAList: the first is that of a list from which
// replaced ones are removed at once, and the memory is bounded by the nominations.
func TestDeadlinesOfNominationsAreThoseOfAList(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 1))
	n := nominationDeadlines{latest: map[types.UID]uint64{}}
	var list []nominationDeadline
	always := func(nominationDeadline) bool { return true }
	for range 20_000 {
		d := nominationDeadline{pod: types.UID(fmt.Sprint(random.IntN(100))), node: fmt.Sprint(random.IntN(5)), until: time.Unix(int64(random.IntN(1000)), 0)}
		list = slices.DeleteFunc(list, func(o nominationDeadline) bool { return o.pod == d.pod })
		delete(n.latest, d.pod)
		n.sweep(always)
		if random.IntN(3) > 0 {
			n.add(d)
			at, _ := slices.BinarySearchFunc(list, d.until, func(o nominationDeadline, until time.Time) int { return o.until.Compare(until) })
			list = slices.Insert(list, at, d)
		}
		if random.IntN(50) == 0 && len(list) > 0 {
			got, found := n.first(always)
			if got.serial = 0; !found || got != list[0] {
				t.Fatalf("the first is %v, expected %v", got, list[0])
			}
			n.removeFirst()
			list = list[1:]
		}
		if len(n.latest) != len(list) || len(n.sorted) > 2*100+65 {
			t.Fatalf("%d and %d deadlines are kept, expected %d", len(n.latest), len(n.sorted), len(list))
		}
	}
}

// TestDeadlinesOfPermitAreThoseOfAllWaits: the first is the earliest of all pods and
// plugins, and the memory is bounded by the waits.
func TestDeadlinesOfPermitAreThoseOfAllWaits(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 1))
	s := &Scheduler{waiting: map[types.UID]*waitingPod{}}
	for range 20_000 {
		uid := types.UID(fmt.Sprint(random.IntN(60)))
		switch w := s.waiting[uid]; {
		case w == nil:
			var b Binding
			b.Pod = namedPod(string(uid))
			s.addWaitingPod(b, map[string]time.Duration{"a": time.Duration(random.IntN(100)), "b": time.Duration(random.IntN(100))}, time.Unix(int64(random.IntN(10)), 0))
		case random.IntN(2) == 0:
			delete(s.waiting, uid)
		default:
			delete(w.deadlines, "a")
		}
		at, pod, plugin, found := s.permitDeadline()
		var first time.Time
		var firstPod types.UID
		var firstPlugin string
		any := false
		for id, w := range s.waiting {
			for name, deadline := range w.deadlines {
				if !any || cmp.Or(deadline.Compare(first), cmp.Compare(id, firstPod), cmp.Compare(name, firstPlugin)) < 0 {
					first, firstPod, firstPlugin, any = deadline, id, name, true
				}
			}
		}
		if at != first || pod != firstPod || plugin != firstPlugin || found != any {
			t.Fatalf("the first is %v of pod %s and plugin %s, expected %v of pod %s and plugin %s", at, pod, plugin, first, firstPod, firstPlugin)
		}
		if len(s.permitDeadlines) > 2*2*60+66 {
			t.Fatalf("%d deadlines are kept", len(s.permitDeadlines))
		}
	}
}

// BenchmarkDeadline asks for the first deadline of 10,000 pods that wait for Permit.
func BenchmarkDeadline(b *testing.B) {
	b.Run("permit", func(b *testing.B) {
		s := &Scheduler{waiting: map[types.UID]*waitingPod{}}
		for i := range 10_000 {
			var w Binding
			w.Pod = namedPod(fmt.Sprint(i))
			s.addWaitingPod(w, map[string]time.Duration{"a": time.Duration(i)}, time.Time{})
		}
		for b.Loop() {
			s.permitDeadline()
		}
	})
}
