// Package extender calls HTTP extenders, which filter and score nodes, change
// victims of preemption and bind. It also serves an extender, which evaluates nodes
// for another scheduler. The protocol is k8s.io/kube-scheduler/extender/v1.
package extender

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"slices"

	v1 "k8s.io/api/core/v1"
	wire "k8s.io/kube-scheduler/extender/v1"

	"github.com/evictd/evictd/internal/manifest"
	"github.com/evictd/evictd/scheduleradapter/config"
	"github.com/evictd/evictd/scheduleradapter/framework"
	"github.com/evictd/evictd/scheduleradapter/nodetable"
)

// Extender is an HTTP extender as a late filter, score plugin, preemptor and bind
// plugin. It does nothing at an extension point without a configured verb. An error
// fails the attempt unless the extender is ignorable.
type Extender struct {
	cfg     config.Extender
	name    string
	client  *http.Client
	log     *slog.Logger
	failing bool     // the last error was logged
	reasons []string // of the last Filter
	scoring *request // of the last PreScore
}

// NewAll makes the extenders in order. The error joins the faults of all files and
// certificates.
func NewAll(all []config.Extender, log *slog.Logger) ([]*Extender, error) {
	var extenders []*Extender
	var faults []error
	seen := map[string]int{}
	for _, cfg := range all {
		name := "extender/" + cfg.URLPrefix
		if seen[name]++; seen[name] > 1 {
			name += fmt.Sprintf("#%d", seen[name])
		}
		if u, err := url.Parse(cfg.URLPrefix); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
			faults = append(faults, fmt.Errorf("%s.urlPrefix %q: expected a URL that begins with http:// or https://", cfg.Path, cfg.URLPrefix))
			continue
		}
		client, err := newClient(&cfg)
		if err != nil {
			faults = append(faults, manifest.At(fmt.Sprintf("%s (%s)", cfg.Path, cfg.URLPrefix), err))
			continue
		}
		extenders = append(extenders, &Extender{cfg: cfg, name: name, client: client, log: log})
	}
	return extenders, errors.Join(faults...)
}

// Preempts reports whether the extender has a preemptVerb.
func (e *Extender) Preempts() bool { return e.cfg.PreemptVerb != "" }

// Add adds the extender to the plan of a profile: before its other bind plugins,
// and after its plugins at the other points.
func (e *Extender) Add(plan *framework.Plan) {
	add := func(verb string, points ...framework.Point) {
		for _, point := range points {
			if verb != "" {
				plan[point] = append(plan[point], framework.Enabled{Plugin: e, Weight: e.cfg.Weight})
			}
		}
	}
	add(e.cfg.FilterVerb, framework.PreFilter, framework.Filter)
	add(e.cfg.PrioritizeVerb, framework.PreScore, framework.Score)
	if e.cfg.BindVerb != "" {
		plan[framework.Bind] = slices.Insert(plan[framework.Bind], 0, framework.Enabled{Plugin: e})
	}
}

// Name is extender/ and the URL prefix.
func (e *Extender) Name() string { return e.name }

// FiltersLate marks that the nodes are sampled before the call.
func (*Extender) FiltersLate() {}

// Events are all: the scheduler does not know what the extender depends on.
func (*Extender) Events() []framework.EventHint {
	return []framework.EventHint{{Event: framework.Event{Resource: framework.AnyResource, Action: framework.All}}}
}

// interested reports whether a container requests a managed resource, or all pods
// are managed. Source: kube-scheduler's IsInterested.
func (e *Extender) interested(pod *v1.Pod) bool {
	if len(e.cfg.ManagedResources) == 0 {
		return true
	}
	for _, containers := range [][]v1.Container{pod.Spec.Containers, pod.Spec.InitContainers} {
		for i := range containers {
			for _, list := range []v1.ResourceList{containers[i].Resources.Requests, containers[i].Resources.Limits} {
				for name := range list {
					if slices.Contains(e.cfg.ManagedResources, string(name)) {
						return true
					}
				}
			}
		}
	}
	return false
}

// PreFilter skips pods in which the extender is not interested.
func (e *Extender) PreFilter(c *framework.Cycle) framework.Status {
	if !e.interested(c.Pod.Object) {
		return framework.Status{Code: framework.Skip}
	}
	return framework.Status{}
}

// Filter calls the filterVerb. It omits nodes about which the extender was not asked: they
// became feasible after the request.
func (e *Extender) Filter(c *framework.Cycle) framework.Status {
	rows := c.Feasible.Append(nil)
	r := e.ask(c, e.cfg.FilterVerb, rows, func() any { return e.arguments(c, rows) }, &wire.ExtenderFilterResult{})
	if err := c.Await(r); err != nil {
		return framework.AsStatus(err)
	}
	result, err := r.result.(*wire.ExtenderFilterResult), r.err
	if err == nil && result.Error != "" {
		err = errors.New(result.Error)
	}
	var passed map[string]bool
	if err == nil {
		passed, err = e.passed(r, result)
	}
	if s, failed := e.statusOf(err); failed {
		return s
	}
	e.reasons = e.reasons[:0]
	for _, row := range rows {
		name := c.Table.Node(row).Name.Value()
		if !r.asked[name] {
			c.Omit(row)
			continue
		}
		if passed[name] {
			continue
		}
		why, unresolvable := result.FailedAndUnresolvableNodes[name]
		if !unresolvable {
			var said bool
			why, said = result.FailedNodes[name]
			unresolvable = !said
		}
		c.Reject(row, e.reason(why), unresolvable)
	}
	return framework.Status{}
}

// passed are the names of the feasible nodes. A node that was not in the request is
// an error.
func (e *Extender) passed(r *request, result *wire.ExtenderFilterResult) (map[string]bool, error) {
	var names []string
	switch {
	case e.cfg.NodeCacheCapable && result.NodeNames != nil:
		names = *result.NodeNames
	case result.Nodes != nil:
		for i := range result.Nodes.Items {
			names = append(names, result.Nodes.Items[i].Name)
		}
	}
	passed := make(map[string]bool, len(names))
	for _, name := range names {
		if !r.asked[name] {
			return nil, fmt.Errorf("claims a filtered node %q which is not found in the input node list", name)
		}
		passed[name] = true
	}
	return passed, nil
}

// reason is the number of a text, for Reasons.
func (e *Extender) reason(text string) uint32 {
	text = cmp.Or(text, "node(s) were filtered out by "+e.name)
	i := slices.Index(e.reasons, text)
	if i < 0 {
		i = len(e.reasons)
		e.reasons = append(e.reasons, text)
	}
	return uint32(i)
}

func (e *Extender) Reasons(_ *nodetable.Pod, reason uint32) []string {
	return []string{e.reasons[reason]}
}

// Bind calls the bindVerb, unless the extender is not interested in the pod.
func (e *Extender) Bind(ctx context.Context, a framework.Assignment) framework.Status {
	pod := a.Pod.Object
	if !e.interested(pod) {
		return framework.Status{Code: framework.Skip}
	}
	args := &wire.ExtenderBindingArgs{PodName: pod.Name, PodNamespace: pod.Namespace, PodUID: pod.UID, Node: a.Node.Name.Value()}
	var result wire.ExtenderBindingResult
	err := e.call(ctx, e.cfg.BindVerb, args, &result)
	if err == nil && result.Error != "" {
		err = errors.New(result.Error)
	}
	if err != nil {
		return framework.AsStatus(fmt.Errorf("%s: bind: %w", e.name, err))
	}
	return framework.Status{}
}

// arguments of a request: node names, or nodes if the extender is not
// nodeCacheCapable.
func (e *Extender) arguments(c *framework.Cycle, rows []nodetable.Row) *wire.ExtenderArgs {
	args := &wire.ExtenderArgs{Pod: c.Pod.Object}
	if e.cfg.NodeCacheCapable {
		names := make([]string, len(rows))
		for i, row := range rows {
			names[i] = c.Table.Node(row).Name.Value()
		}
		args.NodeNames = &names
		return args
	}
	args.Nodes = &v1.NodeList{Items: make([]v1.Node, len(rows))}
	for i, row := range rows {
		args.Nodes.Items[i] = *c.Table.Node(row).Object
	}
	return args
}

// statusOf is the status of an error; failed is also true if the extender is
// ignorable and the attempt continues.
func (e *Extender) statusOf(err error) (s framework.Status, failed bool) {
	switch {
	case err == nil:
		if e.failing {
			e.log.Info("extender responds again", "extender", e.name)
		}
		e.failing = false
		return framework.Status{}, false
	case e.cfg.Ignorable:
		e.ignore(err)
		return framework.Status{}, true
	}
	return framework.AsStatus(fmt.Errorf("%s: %w", e.name, err)), true
}

// ignore logs the first of consecutive errors of an ignorable extender.
func (e *Extender) ignore(err error) {
	if !e.failing {
		e.log.Warn("ignorable extender failed", "extender", e.name, "error", err)
	}
	e.failing = true
}
