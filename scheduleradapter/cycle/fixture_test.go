package cycle

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	config "k8s.io/kube-scheduler/config/v1"

	"github.com/evictd/evictd/internal/metric"
	"github.com/evictd/evictd/scheduleradapter/framework"
	"github.com/evictd/evictd/scheduleradapter/nodetable"
	"github.com/evictd/evictd/scheduleradapter/plugins/binder"
	"github.com/evictd/evictd/scheduleradapter/plugins/gang"
	"github.com/evictd/evictd/scheduleradapter/plugins/gates"
	"github.com/evictd/evictd/scheduleradapter/plugins/priority"
	"github.com/evictd/evictd/scheduleradapter/plugins/resources"
	"github.com/evictd/evictd/scheduleradapter/preempt"
)

// fixture is a loop with a fake API.
type fixture struct {
	*testing.T
	*Loop
	metrics *metric.Set
	plugin  *permitPlugin
	late    framework.LateFilterer // nil: there is none
	stop    context.CancelCauseFunc
	over    chan error

	mu    sync.Mutex
	binds map[string]chan error // results of bindings by pod; nil: success at once
	evict func(ctx context.Context, victim string) error
	calls []string
	// written is Status.Written of the last nomination.
	written func(resourceVersion string)
}

// permitPlugin is a plugin at Permit and PreBind with test functions.
type permitPlugin struct {
	permit  func(pod string) (framework.Status, time.Duration)
	preBind func(ctx context.Context, pod string) framework.Status
}

func (*permitPlugin) Name() string { return "Holding" }

func (h *permitPlugin) Permit(a framework.Assignment) (framework.Status, time.Duration) {
	return h.permit(a.Pod.Object.Name)
}

func (*permitPlugin) PreBindPreFlight(a framework.Assignment) bool { return len(a.Pod.Claims) > 0 }

func (h *permitPlugin) PreBind(ctx context.Context, a framework.Assignment) framework.Status {
	return h.preBind(ctx, a.Pod.Object.Name)
}

// withLoop runs a test with a leading loop in simulated time.
func withLoop(t *testing.T, test func(*fixture)) {
	withLoopConfig(t, func(*LoopConfig) {}, test)
}

func withLoopConfig(t *testing.T, change func(*LoopConfig), test func(*fixture)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &fixture{T: t, metrics: metric.NewSet(), over: make(chan error, 1), binds: map[string]chan error{}}
		w.evict = func(context.Context, string) error { return nil }
		w.plugin = &permitPlugin{
			permit:  func(string) (framework.Status, time.Duration) { return framework.Status{}, 0 },
			preBind: func(context.Context, string) framework.Status { return framework.Status{} },
		}
		cfg := LoopConfig{
			Config: Config{
				Table: nodetable.New(), Profiles: w.profiles, InitialBackoff: time.Second, MaxBackoff: 10 * time.Second,
				Env: framework.Env{Binder: w, Random: rand.New(rand.NewPCG(1, 1))},
			},
			API: w, Log: slog.New(slog.DiscardHandler), Metrics: w.metrics,
		}
		change(&cfg)
		var err error
		if w.Loop, err = NewLoop(cfg); err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancelCause(t.Context())
		w.stop = stop
		go func() { w.over <- w.Loop.Run(ctx) }()
		w.Lead()
		test(w)
		stop(nil)
		<-w.over
	})
}

func (w *fixture) profiles(env framework.Env) ([]Profile, error) {
	var plan framework.Plan
	few := int32(1)
	enable := func(make framework.Factory, args any, points ...framework.Point) {
		p, err := make(args, env)
		if err != nil {
			w.Fatal(err)
		}
		for _, point := range points {
			plan[point] = append(plan[point], framework.Enabled{Plugin: p})
		}
	}
	enable(gates.New, nil, framework.PreEnqueue)
	enable(gang.New, nil, framework.PreEnqueue, framework.Permit)
	enable(priority.New, nil, framework.QueueSort)
	enable(resources.NewFit, &config.NodeResourcesFitArgs{ScoringStrategy: &config.ScoringStrategy{Type: config.LeastAllocated}}, framework.Filter)
	if w.late != nil {
		enable(func(any, framework.Env) (framework.Plugin, error) { return w.late.(framework.Plugin), nil }, nil, framework.Filter)
	}
	enable(preempt.New, &config.DefaultPreemptionArgs{MinCandidateNodesPercentage: &few, MinCandidateNodesAbsolute: &few}, framework.PreEnqueue, framework.PostFilter)
	enable(func(any, framework.Env) (framework.Plugin, error) { return w.plugin, nil }, nil, framework.Permit, framework.PreBind)
	enable(binder.New, nil, framework.Bind)
	runner, err := framework.New(v1.DefaultSchedulerName, &plan)
	return []Profile{{Runner: runner, NumFeasibleNodesToFind: func(n int) int { return n }}}, err
}

// note records a call of the API.
func (w *fixture) note(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.calls = append(w.calls, fmt.Sprintf(format, args...))
}

func (w *fixture) Bind(ctx context.Context, pod *nodetable.Pod, node *nodetable.Node) error {
	name := pod.Object.Name
	w.note("bind %s to %s", name, node.Name.Value())
	w.mu.Lock()
	answer := w.binds[name]
	w.mu.Unlock()
	if answer == nil {
		return nil
	}
	select {
	case err := <-answer:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// slow makes bindings of a pod wait for a result.
func (w *fixture) slow(pod string) chan error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.binds[pod] = make(chan error)
	return w.binds[pod]
}

func (w *fixture) PatchPodGroup(group *schedulingv1beta1.PodGroup, condition metav1.Condition) {
	w.note("podgroup %s %s: %s", group.Name, condition.Reason, condition.Message)
}

func (w *fixture) PatchStatus(pod *v1.Pod, s Status) {
	text := ""
	if s.Reason != "" {
		text += " " + s.Reason
	}
	if s.Nominated != nil {
		text += fmt.Sprintf(" nominated to %q", *s.Nominated)
		w.mu.Lock()
		w.written = s.Written
		w.mu.Unlock()
	}
	w.note("status of %s:%s", pod.Name, text)
}

func (w *fixture) RecordEvent(e Event) {
	w.note("event %s of %s: %s", e.Reason, e.Regarding.Name, e.Note)
}

func (w *fixture) DeleteVictim(ctx context.Context, victim, preemptor *v1.Pod) error {
	w.note("evict %s for %s", victim.Name, preemptor.Name)
	return w.evict(ctx, victim.Name)
}

// after waits until the loop is idle and compares the recorded calls since the last
// after, in any order; a line that ends with * is a prefix.
func (w *fixture) after(want ...string) {
	w.Helper()
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	got := w.calls
	w.calls = nil
	matches := slices.Clone(want)
	for _, line := range got {
		i := slices.IndexFunc(matches, func(m string) bool {
			start, open := strings.CutSuffix(m, "*")
			return line == m || open && strings.HasPrefix(line, start)
		})
		if i < 0 {
			w.Fatalf("plugins received\n\t%s\nwant\n\t%s", strings.Join(got, "\n\t"), strings.Join(want, "\n\t"))
		}
		matches = slices.Delete(matches, i, i+1)
	}
	if len(matches) > 0 {
		w.Fatalf("plugins received\n\t%s\nwant\n\t%s", strings.Join(got, "\n\t"), strings.Join(want, "\n\t"))
	}
}

// do calls a function on the loop's goroutine and waits.
func (w *fixture) do(f func()) {
	done := make(chan struct{})
	w.Do(func() { f(); close(done) })
	<-done
}

// holds compares the pods of a node in the table, sorted.
func (w *fixture) holds(node string, want ...string) {
	w.Helper()
	var got []string
	w.do(func() {
		if row := w.Table.Row(nodetable.Intern(node)); row != nodetable.NoRow {
			for _, p := range w.Table.PodsOn(row) {
				got = append(got, p.Object.Name)
			}
		}
	})
	if slices.Sort(got); !slices.Equal(got, want) {
		w.Errorf("node %s holds %q, want %q", node, got, want)
	}
}

// queued compares the place of a pod in the queue.
func (w *fixture) queued(pod, want string) {
	w.Helper()
	got := "nowhere"
	w.do(func() {
		if e := w.Queue.Get(types.UID(pod)); e != nil {
			got = e.Place().String()
		}
	})
	if got != want {
		w.Errorf("pod %s is %s, want %s", pod, got, want)
	}
}

// node adds or updates a node of two cpus.
func (w *fixture) node(name string, changes ...func(*v1.Node)) {
	n := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	n.Status.Allocatable = v1.ResourceList{v1.ResourceCPU: resource.MustParse("2"), v1.ResourcePods: resource.MustParse("10")}
	for _, change := range changes {
		change(n)
	}
	w.Do(func() { w.SetNode(nodetable.NewNode(n)) })
}

// pod is a pod of one cpu as an informer reports it.
func (w *fixture) pod(name string, changes ...func(*v1.Pod)) *nodetable.Pod {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", UID: types.UID(name)}}
	p.Spec.SchedulerName = v1.DefaultSchedulerName
	p.Spec.Containers = []v1.Container{{Resources: v1.ResourceRequirements{Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse("1")}}}}
	for _, change := range changes {
		change(p)
	}
	return nodetable.NewPod(p)
}

func (w *fixture) set(name string, changes ...func(*v1.Pod)) {
	pod := w.pod(name, changes...)
	w.Do(func() { w.SetPod(pod) })
}

func (w *fixture) remove(name string, changes ...func(*v1.Pod)) {
	pod := w.pod(name, changes...)
	w.Do(func() { w.RemovePod(pod) })
}

func on(node string) func(*v1.Pod) { return func(p *v1.Pod) { p.Spec.NodeName = node } }

func nominatedTo(node string) func(*v1.Pod) {
	return func(p *v1.Pod) { p.Status.NominatedNodeName = node }
}

func cpu(amount string) func(*v1.Pod) {
	return func(p *v1.Pod) {
		p.Spec.Containers[0].Resources.Requests[v1.ResourceCPU] = resource.MustParse(amount)
	}
}

func prioritized(priority int32) func(*v1.Pod) {
	return func(p *v1.Pod) { p.Spec.Priority = &priority }
}
