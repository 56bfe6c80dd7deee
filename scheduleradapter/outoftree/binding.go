package outoftree

import (
	"context"
	"errors"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/evictd/evictd/scheduleradapter/framework"
)

// prebinds are the pods in PreBind. Any goroutine may use them.
type prebinds struct {
	mu   sync.Mutex
	pods map[types.UID]*prebind
}

// prebind is a pod in PreBind.
type prebind struct {
	mu                 sync.Mutex
	cancel             context.CancelCauseFunc
	canceled, finished bool
}

func (b *prebinds) add(uid types.UID, cancel context.CancelCauseFunc) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.pods[uid] = &prebind{cancel: cancel}
}

// get finds a pod; nil: it is not in PreBind.
func (b *prebinds) get(uid types.UID) *prebind {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.pods[uid]
}

func (b *prebinds) remove(uid types.UID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.pods, uid)
}

// CancelPod cancels PreBind unless it has ended.
func (p *prebind) CancelPod(reason string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.finished {
		return false
	}
	p.canceled = true
	p.cancel(errors.New(reason))
	return true
}

// MarkPrebound ends PreBind unless it was canceled.
func (p *prebind) MarkPrebound() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.finished = !p.canceled
	return p.finished
}

// BeforePreBind makes PreBind cancelable and runs PreBindPreFlight. PreBind plugins
// run sequentially.
func (p *profile) BeforePreBind(ctx context.Context, a framework.Assignment) (context.Context, framework.Status) {
	ctx, cancel := context.WithCancelCause(ctx)
	p.host.prebinds.add(a.Pod.UID, cancel)
	for _, g := range p.adapters {
		if s := g.preFlight(ctx, a); !s.OK() {
			return ctx, s
		}
	}
	return ctx, framework.Status{}
}

// AfterPreBind ends PreBind; it cannot be canceled afterwards.
func (p *profile) AfterPreBind(ctx context.Context, a framework.Assignment, s framework.Status) framework.Status {
	b := p.host.prebinds.get(a.Pod.UID)
	if b == nil { // a plugin has removed it
		return s
	}
	p.host.prebinds.remove(a.Pod.UID)
	if s.OK() && !b.MarkPrebound() {
		s = framework.AsStatus(context.Cause(ctx))
	}
	b.cancel(nil)
	return s
}

// binds calls the plugin in the binding cycle, on any goroutine.
func (g *adapter) binds(point framework.Point, a framework.Assignment, f func(state fwk.CycleState, pod *v1.Pod, node string) *fwk.Status) (s *fwk.Status) {
	defer g.profile.host.guard(g.name, point, &s)
	return f(a.State.(fwk.CycleState), a.Pod.Object, a.Node.Name.Value())
}

func (g *adapter) preFlight(ctx context.Context, a framework.Assignment) framework.Status {
	plugin, ok := g.plugin.(fwk.PreBindPlugin)
	if !ok {
		return framework.Status{}
	}
	state := a.State.(*cycleState)
	s := g.binds(framework.PreBind, a, func(_ fwk.CycleState, pod *v1.Pod, node string) (s *fwk.Status) {
		_, s = plugin.PreBindPreFlight(ctx, state, pod, node)
		return s
	})
	if s.IsSkip() {
		state.skip(&state.noPreBind, g.name)
		return framework.Status{}
	}
	answer := status(g.name, framework.PreBind, s)
	answer.Plugin = g.name
	return answer
}

// PreBind runs unless PreBindPreFlight returned Skip.
func (g *adapter) PreBind(ctx context.Context, a framework.Assignment) framework.Status {
	if a.State.(*cycleState).GetSkipPreBindPlugins().Has(g.name) {
		return framework.Status{}
	}
	s := g.binds(framework.PreBind, a, func(state fwk.CycleState, pod *v1.Pod, node string) *fwk.Status {
		return g.plugin.(fwk.PreBindPlugin).PreBind(ctx, state, pod, node)
	})
	return status(g.name, framework.PreBind, s, fwk.Unschedulable, fwk.UnschedulableAndUnresolvable, fwk.Pending)
}

func (g *adapter) Bind(ctx context.Context, a framework.Assignment) framework.Status {
	s := g.binds(framework.Bind, a, func(state fwk.CycleState, pod *v1.Pod, node string) *fwk.Status {
		return g.plugin.(fwk.BindPlugin).Bind(ctx, state, pod, node)
	})
	return status(g.name, framework.Bind, s, fwk.Skip, fwk.Unschedulable, fwk.UnschedulableAndUnresolvable, fwk.Pending)
}

func (g *adapter) PostBind(ctx context.Context, a framework.Assignment) {
	g.binds(framework.PostBind, a, func(state fwk.CycleState, pod *v1.Pod, node string) *fwk.Status {
		g.plugin.(fwk.PostBindPlugin).PostBind(ctx, state, pod, node)
		return nil
	})
}
