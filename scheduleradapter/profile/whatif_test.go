package profile

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evictd/evictd/scheduleradapter/cycle"
	"github.com/evictd/evictd/scheduleradapter/nodetable"
	"github.com/evictd/evictd/scheduleradapter/plugins/plugintest"
)

// ask asks the first scheduler whether some pods of a shape would get nodes, and then
// schedules these pods by both.
func (w *changingCluster) ask(t *testing.T) (found cycle.WhatIf) {
	t.Helper()
	shape := plugintest.Pick(w.Dice, w.shapes...).DeepCopy()
	shape.Name, shape.UID, shape.Status = "template", "", v1.PodStatus{}
	if w.Chance(40) {
		shape.Spec.Priority = new(int32(1000))
	}
	q := cycle.About(shape, 1+w.Random.IntN(12))
	answer := w.twins[0].WhatIf(w.now, q)
	if again := w.twins[0].WhatIf(w.now, q); !reflect.DeepEqual(again, answer) {
		t.Fatalf("the answers are\n%+v\nand then\n%+v", answer, again)
	}
	for i := range answer.Count {
		w.pods++
		object := shape.DeepCopy()
		object.Name = fmt.Sprint("pod-", w.pods)
		object.UID = types.UID(object.Name)
		for n, twin := range w.twins {
			twin.draws.all = nil
			got, message := w.schedule(t, twin, nodetable.NewPod(object))
			got.Pod = i + 1
			if n == 1 { // it was not asked
				continue
			}
			if i >= len(answer.Pods) {
				if message != answer.Message {
					t.Fatalf("pod %d: %q, the answer was %+v", i+1, message, answer)
				}
				continue
			}
			want := answer.Pods[i]
			want.Violations = 0
			if want.Result == cycle.Nominated && len(want.Victims) == 0 { // it uses the room that earlier victims left
				want.Result, want.Node, want.Nominated = cycle.Scheduled, want.Nominated, ""
			}
			if !reflect.DeepEqual(got, want) {
				t.Fatalf("pod %d is %+v (%s), the answer was %+v", i+1, got, message, answer)
			}
		}
		if !slices.Equal(w.twins[0].draws.all, w.twins[1].draws.all) {
			t.Fatalf("the numbers and bounds are %v after the question, %v without", w.twins[0].draws.all, w.twins[1].draws.all)
		}
		if i >= len(answer.Pods) {
			break
		}
		w.placed = append(w.placed, object.UID)
	}
	return answer
}

// schedule schedules a pod. Its victims end at once.
func (w *changingCluster) schedule(t *testing.T, s *cacheTwin, pod *nodetable.Pod) (p cycle.WhatIfPod, message string) {
	t.Helper()
	p = cycle.WhatIfPod{Result: cycle.Scheduled, Victims: []string{}}
	r := s.SchedulingCycle(pod, w.now)
	if r.Status.OK() {
		p.Node = r.Binding.Node.Name.Value()
		return p, ""
	}
	if r.Nomination.Node == nil {
		return cycle.WhatIfPod{}, r.Message
	}
	p.Result, p.Nominated = cycle.Nominated, r.Nomination.Node.Name.Value()
	for _, v := range r.Nomination.Victims {
		p.Victims = append(p.Victims, v.String())
		s.Table.Displace(v.UID)
	}
	s.Nominator.Nominate(pod, p.Nominated)
	if r = s.SchedulingCycle(pod, w.now); !r.Status.OK() || r.Binding.Node.Name.Value() != p.Nominated {
		t.Fatalf("pod %s is not scheduled to node %s after its victims: %+v", pod, p.Nominated, r)
	}
	s.Nominator.Clear(pod.UID)
	return p, ""
}

// rule: S8.60
// rule: S8.61
func TestPodsAreScheduledAsAWhatIfSaysAndWithoutIt(t *testing.T) {
	var scheduled, nominated, unschedulable int
	for seed := range uint64(48) {
		random := rand.New(rand.NewPCG(seed, 3))
		w := &changingCluster{
			Dice: plugintest.Dice{Random: random}, nodes: map[string]*v1.Node{}, now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC),
			twins: [2]*cacheTwin{newCacheTwin(t, seed, true), newCacheTwin(t, seed, true)}, calm: seed%2 == 0,
		}
		for i := range 2 + random.IntN(20) {
			w.setNode(w.node(fmt.Sprint("node-", i)))
		}
		w.fillShapes()
		for range 60 {
			if w.Chance(40) {
				x := w.ask(t)
				scheduled, nominated, unschedulable = scheduled+x.Scheduled, nominated+x.Nominated, unschedulable+x.Unschedulable
			} else {
				w.attempt(t)
			}
			if w.Chance(20) {
				w.change()
			}
		}
	}
	t.Logf("%d pods scheduled, %d nominated, %d unschedulable", scheduled, nominated, unschedulable)
	if min(scheduled, nominated, unschedulable) < 100 {
		t.Errorf("%d pods scheduled, %d nominated, %d unschedulable", scheduled, nominated, unschedulable)
	}
}

// rule: S8.62
func TestDevicesAreFreeAfterAWhatIf(t *testing.T) {
	c := newDeviceCluster(t, 1, 9) // of 10 devices
	var pods []*v1.Pod
	for range 2 {
		pod, claim := c.add(t)
		pod.Object.Spec.ResourceClaims = []v1.PodResourceClaim{{Name: "resource", ResourceClaimName: &claim.Name}}
		pods = append(pods, pod.Object)
	}
	for range 2 {
		for _, pod := range pods { // pods of a question share the claim
			if x := c.WhatIf(time.Time{}, cycle.About(pod, 3)); x.Scheduled != 3 {
				t.Errorf("the answer for %s is %+v", pod.Name, x)
			}
		}
	}
	if r := c.SchedulingCycle(nodetable.NewPod(pods[1]), time.Time{}); !r.Status.OK() {
		t.Error(r.Message)
	}
	if x := c.WhatIf(time.Time{}, cycle.About(pods[0], 3)); x.Unschedulable != 3 || x.Message == "" {
		t.Errorf("the answer is %+v", x)
	}
}
