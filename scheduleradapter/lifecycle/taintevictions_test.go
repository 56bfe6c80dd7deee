package lifecycle_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/evictd/evictd/scheduleradapter/lifecycle"
)

var start = time.Date(2026, 1, 2, 15, 4, 5, 0, time.UTC)

func after(seconds int) time.Time { return start.Add(time.Duration(seconds) * time.Second) }

func noExecute(key string) v1.Taint { return v1.Taint{Key: key, Effect: v1.TaintEffectNoExecute} }

func added(t v1.Taint, seconds int) v1.Taint {
	t.TimeAdded = &metav1.Time{Time: after(seconds)}
	return t
}

// tolerates is a toleration of a NoExecute taint; negative seconds: for ever.
func tolerates(key string, seconds int64) v1.Toleration {
	t := v1.Toleration{Key: key, Operator: v1.TolerationOpExists, Effect: v1.TaintEffectNoExecute}
	if seconds >= 0 {
		t.TolerationSeconds = &seconds
	}
	return t
}

func pod(name, node string, tolerations ...v1.Toleration) *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name)},
		Spec:       v1.PodSpec{NodeName: node, Tolerations: tolerations},
	}
}

func names(due []lifecycle.Eviction) (names []string) {
	for _, d := range due {
		names = append(names, d.Pod.Name+" for "+d.Taint.Key)
	}
	return names
}

func TestAPodStaysAsLongAsItTolerates(t *testing.T) {
	for _, test := range []struct {
		name        string
		taints      []v1.Taint
		tolerations []v1.Toleration
		leaves      int // seconds from the start; negative: never
		taint       string
	}{
		{"not all tolerated", []v1.Taint{noExecute("a"), noExecute("b")}, []v1.Toleration{tolerates("a", 60)}, 0, "b"},
		{"the shortest counts", []v1.Taint{noExecute("a"), noExecute("b"), noExecute("c")}, []v1.Toleration{tolerates("a", 60), tolerates("b", 30), tolerates("c", -1)}, 30, "b"},
		{"negative seconds are none", []v1.Taint{noExecute("a")}, []v1.Toleration{{Key: "a", Operator: v1.TolerationOpExists, TolerationSeconds: ptr.To[int64](-5)}}, 0, "a"},
		{"values differ", []v1.Taint{{Key: "a", Value: "x", Effect: v1.TaintEffectNoExecute}}, []v1.Toleration{{Key: "a", Operator: v1.TolerationOpEqual, Value: "y"}}, 0, "a"},
		{"an older taint ends first", []v1.Taint{added(noExecute("a"), -50), noExecute("b")}, []v1.Toleration{tolerates("a", 60), tolerates("b", 30)}, 10, "a"},
		{"a clock that is ahead prolongs nothing", []v1.Taint{added(noExecute("a"), 500)}, []v1.Toleration{tolerates("a", 60)}, 60, "a"},
	} {
		t.Run(test.name, func(t *testing.T) {
			d := lifecycle.NewTaintEvictions()
			p := pod("p", "n", test.tolerations...)
			p.Status.StartTime = &metav1.Time{Time: after(-1000)}
			d.SetPod(start, p)
			d.SetNode(start, "n", test.taints)
			at, any := d.Next()
			if any != (test.leaves >= 0) || any && !at.Equal(after(test.leaves)) {
				t.Fatalf("leaves at %v, %t; expected %d s", at.Sub(start), any, test.leaves)
			}
			if !any {
				return
			}
			if due := d.Due(at.Add(-1)); len(due) > 0 {
				t.Errorf("due too early: %v", names(due))
			}
			if due := d.Due(at); len(due) != 1 || due[0].Taint.Key != test.taint {
				t.Errorf("due: %v, expected for %s", names(due), test.taint)
			}
			if due := d.Due(at.Add(time.Hour)); len(due) > 0 {
				t.Errorf("due twice: %v", names(due))
			}
		})
	}
}

// rule: S6.7
func TestAnEvictionIsCanceledWhenTheTaintIsRemoved(t *testing.T) {
	d := lifecycle.NewTaintEvictions()
	d.SetNode(start, "n", []v1.Taint{noExecute("a")})
	d.SetPod(start, pod("p", "n", tolerates("a", 60)))
	d.SetPod(start, pod("q", "n", tolerates("a", -1)))
	if canceled := d.SetNode(after(10), "n", nil); len(canceled) != 1 || canceled[0].Name != "p" {
		t.Errorf("canceled %v, expected p alone", canceled)
	}
	if at, any := d.Next(); any {
		t.Errorf("still due at %v", at)
	}
	if canceled := d.SetNode(after(20), "n", nil); canceled != nil {
		t.Errorf("canceled twice: %v", canceled)
	}
	d.SetNode(after(30), "n", []v1.Taint{noExecute("a")})
	if at, _ := d.Next(); !at.Equal(after(90)) {
		t.Errorf("after the taint came back due at %v, expected 90s", at.Sub(start))
	}
	if d.SetPod(after(40), pod("p", "n", tolerates("a", -1))); len(d.Due(after(1000))) != 0 {
		t.Error("due although it tolerates the taint for ever by now")
	}
}

func TestAnUnchangedTaintKeepsItsTime(t *testing.T) {
	d := lifecycle.NewTaintEvictions()
	d.SetPod(start, pod("p", "n", tolerates("a", 60), tolerates("b", 60)))
	d.SetNode(start, "n", []v1.Taint{noExecute("a")})
	d.SetNode(after(30), "n", []v1.Taint{noExecute("b"), noExecute("a")})
	if at, _ := d.Next(); !at.Equal(after(60)) {
		t.Errorf("due at %v, expected 60s", at.Sub(start))
	}
}

func TestAPodThatComesLaterCountsFromThen(t *testing.T) {
	d := lifecycle.NewTaintEvictions()
	d.SetNode(start, "n", []v1.Taint{added(noExecute("a"), -100)})
	d.SetPod(after(50), pod("p", "n", tolerates("a", 60)))
	if at, _ := d.Next(); !at.Equal(after(110)) {
		t.Errorf("due at %v, expected 110s", at.Sub(start))
	}
}

func TestPodsWithNowhereToLeaveAreLeftAlone(t *testing.T) {
	terminating, ended := pod("terminating", "n"), pod("ended", "n")
	terminating.DeletionTimestamp = &metav1.Time{Time: start}
	ended.Status.Phase = v1.PodFailed
	d := lifecycle.NewTaintEvictions()
	d.SetNode(start, "n", []v1.Taint{noExecute("a")})
	for _, p := range []*v1.Pod{pod("pending", ""), terminating, ended} {
		d.SetPod(start, p)
	}
	d.SetPod(start, pod("gone", "n"))
	d.RemovePod("gone")
	if due := d.Due(after(1)); len(due) > 0 {
		t.Errorf("due: %v", names(due))
	}
}

func TestADepartureThatFailedIsTriedAgain(t *testing.T) {
	d := lifecycle.NewTaintEvictions()
	d.SetNode(start, "n", []v1.Taint{noExecute("a")})
	d.SetPod(start, pod("p", "n"))
	d.SetPod(start, pod("q", "n"))
	d.Due(start)
	d.Retry("p", after(5))
	d.SetPod(after(1), pod("p", "n"))
	if at, _ := d.Next(); !at.Equal(after(5)) {
		t.Errorf("due again at %v, expected 5s", at.Sub(start))
	}
	if due := names(d.Due(after(5))); !slices.Equal(due, []string{"p for a"}) {
		t.Errorf("due again: %v", due)
	}
	d.SetNode(after(6), "n", nil)
	d.Retry("p", after(7))
	d.Retry("unknown", after(7))
	if _, any := d.Next(); any {
		t.Error("due although the taint has gone")
	}
}

// After any order of events, the deadlines are those of EvictionTime for the latest
// taints and tolerations.
func TestDeadlinesFollowFromTheLatestState(t *testing.T) {
	dice := rand.New(rand.NewPCG(1, 2))
	d := lifecycle.NewTaintEvictions()
	pods, taints := map[string]*v1.Pod{}, map[string][]v1.Taint{}
	anyTaints := func() (some []v1.Taint) {
		for _, key := range []string{"a", "b", "c"} {
			if dice.IntN(3) == 0 {
				some = append(some, added(noExecute(key), -1-dice.IntN(100)))
			}
		}
		return some
	}
	for range 5000 {
		name, node := fmt.Sprint("p", dice.IntN(20)), fmt.Sprint("n", dice.IntN(4))
		switch dice.IntN(4) {
		case 0:
			taints[node] = anyTaints()
			d.SetNode(start, node, taints[node])
		case 1:
			d.RemovePod(types.UID(name))
			delete(pods, name)
		default:
			p := pods[name]
			if p == nil {
				p = pod(name, node)
			}
			p = p.DeepCopy()
			p.Status.StartTime = &metav1.Time{Time: after(-1000)}
			p.Spec.Tolerations = nil
			for _, key := range []string{"a", "b", "c"} {
				if dice.IntN(2) == 0 {
					p.Spec.Tolerations = append(p.Spec.Tolerations, tolerates(key, int64(dice.IntN(200)-50)))
				}
			}
			pods[name] = p
			d.SetPod(start, p)
		}
		var first time.Time
		for _, p := range pods {
			at, taint := lifecycle.EvictionTime(p.Spec.Tolerations, taints[p.Spec.NodeName], func(t *v1.Taint) time.Time { return t.TimeAdded.Time })
			if taint != nil && (first.IsZero() || at.Before(first)) {
				first = at
			}
		}
		if at, any := d.Next(); any == first.IsZero() || any && !at.Equal(first) {
			t.Fatalf("next at %v, %t; expected %v", at, any, first)
		}
	}
}
