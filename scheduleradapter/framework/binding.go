package framework

import (
	"context"
	"fmt"
	"slices"
)

// PreBindPreFlight reports whether a PreBind plugin may take long.
func (r *Runner) PreBindPreFlight(a Assignment) bool {
	return slices.ContainsFunc(r.preBinders, func(p named[PreBinder]) bool {
		preparer, knows := p.plugin.(PreFlighter)
		return knows && preparer.PreBindPreFlight(a)
	})
}

// PreBind runs the PreBind plugins in order.
func (r *Runner) PreBind(ctx context.Context, a Assignment) Status {
	if r.hooks == nil {
		return r.preBind(ctx, a)
	}
	ctx, s := r.hooks.BeforePreBind(ctx, a)
	if s.OK() {
		s = r.preBind(ctx, a)
	}
	return r.hooks.AfterPreBind(ctx, a, s)
}

func (r *Runner) preBind(ctx context.Context, a Assignment) Status {
	for _, p := range r.preBinders {
		if s := p.plugin.PreBind(ctx, a); !s.OK() {
			return p.failed(s, "running PreBind plugin %q")
		}
	}
	return Status{}
}

// Bind runs the Bind plugins until one does not skip.
func (r *Runner) Bind(ctx context.Context, a Assignment) Status {
	for _, p := range r.binders {
		if s := p.plugin.Bind(ctx, a); s.Code != Skip {
			return p.failed(s, "running Bind plugin %q")
		}
	}
	return AsStatus(fmt.Errorf("every bind plugin skipped %s", a.Pod))
}

// PostBind runs the PostBind plugins.
func (r *Runner) PostBind(ctx context.Context, a Assignment) {
	for _, p := range r.postBinders {
		p.plugin.PostBind(ctx, a)
	}
}
