// Package binder is the plugin DefaultBinder, which creates the Binding of a pod.
package binder

import (
	"context"

	"github.com/evictd/evictd/scheduleradapter/framework"
)

// Name of the plugin.
const Name = "DefaultBinder"

// Plugin is DefaultBinder.
type Plugin struct{ binder framework.Binder }

func New(_ any, env framework.Env) (framework.Plugin, error) { return &Plugin{env.Binder}, nil }

func (*Plugin) Name() string { return Name }

func (p *Plugin) Bind(ctx context.Context, a framework.Assignment) framework.Status {
	if err := p.binder.Bind(ctx, a.Pod, a.Node); err != nil {
		return framework.AsStatus(err)
	}
	return framework.Status{}
}
