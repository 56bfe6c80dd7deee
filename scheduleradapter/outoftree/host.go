package outoftree

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/evictd/evictd/scheduleradapter/cycle"
	"github.com/evictd/evictd/scheduleradapter/framework"
	"github.com/evictd/evictd/scheduleradapter/nodetable"
)

// Factory makes a plugin, as for kube-scheduler's WithPlugin: args is the
// pluginConfig as *runtime.Unknown in JSON, or nil.
type Factory func(ctx context.Context, args runtime.Object, handle fwk.Handle) (fwk.Plugin, error)

// Config of a Host.
type Config struct {
	// Plugins by name.
	Plugins map[string]Factory
	Table   *nodetable.Table
	// Parallelism is the number of concurrent calls of a plugin, at least 1.
	Parallelism int
	API         API
	Log         *slog.Logger
}

// Owner is the goroutine that owns the Scheduler.
type Owner struct {
	// Do calls a function on that goroutine, in the order of the calls of Do. It does
	// not block; any goroutine may call it.
	Do        func(func())
	Scheduler *cycle.Scheduler
	Pods      PodActions
}

// PodActions are requests of plugins. The owner's goroutine calls them.
type PodActions interface {
	// Activate moves pods to the active queue.
	Activate(pods ...types.UID)
	// Allow records that a plugin allows a waiting pod.
	Allow(pod types.UID, plugin string)
	// Reject ends the wait of a pod; it does nothing for a pod that does not wait.
	Reject(pod types.UID, s framework.Status)
}

// Host runs the out-of-tree plugins of all profiles over one table.
type Host struct {
	cfg      Config
	ctx      context.Context // of calls outside of attempts and binding cycles
	follower *follower
	prebinds prebinds

	mu     sync.Mutex
	inside int // depth of plugin calls on the owner's goroutine
	owner  Owner
	early  []func(Owner) // functions posted before Attach

	running sync.Mutex // held while a plugin runs other plugins
}

// New makes a host. ctx is passed to the plugins.
func New(ctx context.Context, cfg Config) (*Host, error) {
	api, err := cfg.API.orMissing(cfg.Log)
	if err != nil {
		return nil, err
	}
	cfg.API = api
	ctx = klog.NewContext(ctx, logr.FromSlogHandler(cfg.Log.Handler()))
	return &Host{cfg: cfg, ctx: ctx, follower: newFollower(cfg.Table), prebinds: prebinds{pods: map[types.UID]*prebind{}}}, nil
}

// Attach sets the owner, after the scheduler is made and before a pod is queued. A
// nil Host does nothing.
func (h *Host) Attach(owner Owner) {
	if h == nil {
		return
	}
	h.cfg.API.report(h.cfg.Log)
	h.mu.Lock()
	h.owner = owner
	early := h.early
	h.early = nil
	h.mu.Unlock()
	for _, f := range early {
		owner.Do(func() { f(owner) })
	}
}

func (h *Host) post(f func(Owner)) {
	h.mu.Lock()
	owner := h.owner
	if owner.Do == nil {
		h.early = append(h.early, f)
	}
	h.mu.Unlock()
	if owner.Do != nil {
		owner.Do(func() { f(owner) })
	}
}

// ask calls a function while the owner's goroutine is inside a plugin, or on it,
// and returns its result; the zero value before Attach and after the end of the
// context.
func ask[T any](h *Host, f func(Owner) T) (answer T) {
	h.mu.Lock()
	switch {
	case h.owner.Do == nil:
		h.mu.Unlock()
		return answer
	case h.inside > 0:
		defer h.mu.Unlock()
		return f(h.owner)
	}
	owner := h.owner
	h.mu.Unlock()
	answers := make(chan T, 1)
	owner.Do(func() { answers <- f(owner) })
	select {
	case answer = <-answers:
	case <-h.ctx.Done():
	}
	return answer
}

// enter and leave surround each plugin call on the owner's goroutine.
func (h *Host) enter() {
	h.mu.Lock()
	h.inside++
	h.mu.Unlock()
}

func (h *Host) leave() {
	h.mu.Lock()
	h.inside--
	h.mu.Unlock()
}

func (h *Host) isInside() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.inside > 0
}

// guard turns a panic of a plugin into an error status.
func (h *Host) guard(plugin string, point framework.Point, s **fwk.Status) {
	if cause := recover(); cause != nil {
		h.cfg.Log.Error("plugin panics", "plugin", plugin, "point", point.String(), "panic", cause, "stack", string(debug.Stack()))
		*s = fwk.AsStatus(fmt.Errorf("panic: %v", cause))
	}
}

// Factories make the plugins of a profile. A nil Host has none.
func (h *Host) Factories(profileName string) map[string]framework.Factory {
	if h == nil {
		return nil
	}
	p := &profile{host: h, name: profileName}
	factories := make(map[string]framework.Factory, len(h.cfg.Plugins))
	for name, factory := range h.cfg.Plugins {
		factories[name] = p.factory(name, factory)
	}
	return factories
}

// profile has the out-of-tree plugins of a profile.
type profile struct {
	host     *Host
	name     string
	adapters []*adapter

	cycle   *framework.Cycle // the latest cycle
	views   []view
	scoring bool
}

// attempt is the context of the running attempt, with the host's logger.
func (p *profile) attempt() context.Context {
	return klog.NewContext(p.cycle.Context(), klog.FromContext(p.host.ctx))
}

func (p *profile) factory(name string, factory Factory) framework.Factory {
	return func(args any, _ framework.Env) (framework.Plugin, error) {
		object, _ := args.(runtime.Object)
		plugin, err := factory(p.host.ctx, object, &handle{p.host, p})
		if err != nil {
			return nil, fmt.Errorf("plugin %s: %w", name, err)
		}
		if plugin == nil {
			return nil, fmt.Errorf("plugin %s: its factory returned nil", name)
		}
		g := &adapter{profile: p, name: name, plugin: plugin}
		if err := g.register(); err != nil {
			return nil, fmt.Errorf("plugin %s: %w", name, err)
		}
		p.adapters = append(p.adapters, g)
		return g, nil
	}
}

// Begin takes the snapshot of a cycle.
func (p *profile) Begin(c *framework.Cycle) {
	h := p.host
	h.mu.Lock() // goroutines of plugins may read the previous snapshot
	h.follower.take()
	h.mu.Unlock()
	state := newState()
	c.State = state
	p.cycle, p.scoring = c, false
	p.views = append(p.views[:0], view{state: state})
	for depth := range c.Table.Tries() { // of a PodGroup: the snapshot has these moves
		serial, moves := c.Table.Tried(depth)
		p.views = append(p.views, view{serial: serial, replayed: len(moves), state: state})
	}
	for _, g := range p.adapters {
		g.ran, g.texts, g.known = false, g.texts[:0], map[string]uint32{}
	}
}
