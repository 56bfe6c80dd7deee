package cycle

import (
	"fmt"
	"net/http/httptest"
	"reflect"
	"slices"
	"testing"
	"testing/synctest"

	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/evictd/evictd/scheduleradapter/nodetable"
)

// question is for so many pods of one cpu.
func (w *fixture) question(count int, changes ...func(*v1.Pod)) Question {
	pod := w.pod("web", changes...).Object
	pod.UID = ""
	return About(pod, count)
}

func (w *fixture) ask(q Question) WhatIf {
	w.Helper()
	x, err := w.WhatIf(w.Context(), q)
	if err != nil {
		w.Fatal(err)
	}
	return x
}

// page has all metrics.
func (w *fixture) page() string {
	r := httptest.NewRecorder()
	w.metrics.Handler().ServeHTTP(r, httptest.NewRequest("GET", "/metrics", nil))
	return r.Body.String()
}

// rule: S8.60
// rule: S8.62
func TestAWhatIfHasNodesVictimsAndReasonsAndChangesNothing(t *testing.T) {
	withLoop(t, func(w *fixture) {
		w.full()
		w.node("b")
		synctest.Wait()
		before := w.page()
		x := w.ask(w.question(6, prioritized(10)))
		want := WhatIf{
			Pod: "default/web", Profile: "default-scheduler", Count: 6, Scheduled: 2, Nominated: 2, Unschedulable: 2, Preempted: 2,
			Nodes: []WhatIfNode{{"a", 0, 2}, {"b", 2, 0}},
			Pods: []WhatIfPod{
				{1, Scheduled, "b", "", []string{}, 0}, {2, Scheduled, "b", "", []string{}, 0},
				{3, Nominated, "", "a", []string{"default/two"}, 0}, {4, Nominated, "", "a", []string{"default/one"}, 0},
			},
			Message:  "0/2 nodes are available: 2 Insufficient cpu. preemption: 0/2 nodes are available: 2 No preemption victims found for incoming pod.",
			Filtered: []Filtered{{"NodeResourcesFit", []string{"Insufficient cpu"}, true, 2}},
			LeftOut:  []string{},
		}
		if !reflect.DeepEqual(x, want) {
			t.Errorf("the answer is\n%+v, want\n%+v", x, want)
		}
		if after := w.page(); after != before {
			t.Errorf("metrics were\n%s\nand are\n%s", before, after)
		}
		w.after() // no event, patch, binding or eviction
		w.holds("a", "one", "two")
		w.holds("b")
		w.do(func() {
			if w.Nominator.Len() > 0 || w.Queue.Len() > 0 || w.Table.Tries() > 0 || w.nextStart != 0 {
				t.Errorf("%d nominations, %d queued pods, %d tries, the next sample starts at %d", w.Nominator.Len(), w.Queue.Len(), w.Table.Tries(), w.nextStart)
			}
		})
		if x := w.ask(w.question(1, cpu("3"))); x.Message != "0/2 nodes are available: 2 Insufficient cpu. preemption: 0/2 nodes are available: 2 Preemption is not helpful for scheduling." {
			t.Errorf("the answer is %+v", x)
		}
	})
}

// rule: S8.63
func TestAWhatIfCountsDisruptionsOfThePodsBefore(t *testing.T) {
	withLoop(t, func(w *fixture) {
		labelled := func(p *v1.Pod) { p.Labels = map[string]string{"app": "low"} }
		for _, node := range []string{"a", "b"} {
			w.node(node)
			w.set("low-"+node, on(node), labelled, cpu("2"))
		}
		budget := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "low", UID: "budget"}}
		budget.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "low"}}
		budget.Spec.MinAvailable = new(intstr.FromInt32(1))
		budget.Status.DisruptionsAllowed = 1
		w.Do(func() { w.Table.SetBudget(nodetable.NewBudget(budget)) })
		for range 2 { // the budget is as before
			x := w.ask(w.question(2, prioritized(10), cpu("2")))
			if x.Nominated != 2 || x.Violations != 1 || x.Pods[0].Violations != 0 || x.Pods[1].Violations != 1 {
				t.Errorf("the answer is %+v", x)
			}
		}
	})
}

// rule: S8.64
func TestAWhatIfInRunsIsThatOfOneRun(t *testing.T) {
	withLoop(t, func(w *fixture) {
		w.full()
		for i := range 5 {
			w.node(fmt.Sprint("node-", i))
		}
		q := w.question(14, prioritized(10))
		want := w.ask(q)
		for _, claims := range []bool{false, true} { // each pod is filtered in each run
			w.do(func() {
				trial, runs := newTrial(w.Scheduler, w.Context(), q), 0
				for trial.parts[0].claims = claims; !trial.done() && runs < 100; runs++ {
					trial.run(w.now(), func() bool { return false })
				}
				if got := trial.answer(); runs < 12 || !reflect.DeepEqual(got, want) {
					t.Errorf("the answer after %d runs is\n%+v, want\n%+v", runs, got, want)
				}
			})
		}
		w.do(func() {
			trial := newTrial(w.Scheduler, w.Context(), q)
			trial.run(w.now(), func() bool { return len(trial.placed) < 10 })
			if x := trial.answer(); x.Scheduled != 10 || x.Untried != 4 || x.Unschedulable != 0 || x.Message != "the time of 4s is over" {
				t.Errorf("the answer to a part is %+v", x)
			}
			w.RemoveNode("node-0")
			for !trial.done() {
				trial.run(w.now(), func() bool { return true })
			}
			x := trial.answer()
			if x.Scheduled != 8 || x.Nominated != 2 || x.Unschedulable != 4 || !x.Changed {
				t.Errorf("the answer without a node is %+v", x)
			}
			if slices.ContainsFunc(x.Nodes, func(n WhatIfNode) bool { return n.Node == "node-0" }) {
				t.Errorf("the answer has a node that is removed: %+v", x.Nodes)
			}
		})
		w.after()
	})
}

// The extender is asked once about each pod, and the loop is free meanwhile.
// rule: S8.65
func TestPodsAreScheduledWhileAnExtenderAnswersAWhatIf(t *testing.T) {
	withSlowFilter(t, func(w *slowFilter) {
		w.node("a")
		var x WhatIf
		answered := make(chan struct{})
		go func() {
			defer close(answered)
			x = w.ask(w.question(3))
		}()
		synctest.Wait()
		w.set("p")
		w.do(func() {}) // the loop attempts the pod
		w.answer("p")
		w.after("bind p to a", "event Scheduled of p: *")
		w.do(func() { close(w.asked[0].response) })
		<-answered
		if x.Scheduled != 1 || x.Unschedulable != 2 || !x.Changed {
			t.Errorf("the answer is %+v", x)
		}
		w.holds("a", "p")
		if got := w.pods(); !slices.Equal(got, []string{"web-1", "p"}) {
			t.Errorf("asked about %v", got)
		}
	})
}

func TestAWhatIfEndsWhileAnExtenderDoesNotAnswer(t *testing.T) {
	withSlowFilter(t, func(w *slowFilter) {
		w.node("a")
		if x := w.ask(w.question(3)); x.Untried != 3 || x.Message == "" {
			t.Errorf("the answer is %+v", x)
		}
		w.set("p")
		w.do(func() {})
		w.answer("p")
		w.after("bind p to a", "event Scheduled of p: *")
	})
}

// rule: S8.66
func TestAPriorityClassIsThatOfPodsThatNameIt(t *testing.T) {
	withLoop(t, func(w *fixture) {
		w.node("a")
		w.set("p", on("a"), prioritized(7), func(p *v1.Pod) {
			p.Spec.PriorityClassName, p.Spec.PreemptionPolicy = "batch", new(v1.PreemptNever)
		})
		class, err := w.PriorityClass(w.Context(), "batch")
		if err != nil || class == nil || class.Value != 7 || *class.PreemptionPolicy != v1.PreemptNever {
			t.Errorf("the class is %+v, %v", class, err)
		}
		if class, err := w.PriorityClass(w.Context(), "other"); err != nil || class != nil {
			t.Errorf("the class is %+v, %v", class, err)
		}
	})
}
