// Package extender lets HTTP services take part in scheduling, as kube-scheduler's
// extenders do: they filter and score nodes, have a say in preemption, and bind.
// It also is such a service, which tells another scheduler what is known of
// pressure on nodes. What goes over the wire is k8s.io/kube-scheduler/extender/v1.
package extender

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"slices"

	v1 "k8s.io/api/core/v1"
	wire "k8s.io/kube-scheduler/extender/v1"

	"github.com/evictd/evictd/scheduleradapter/config"
	"github.com/evictd/evictd/scheduleradapter/framework"
	"github.com/evictd/evictd/scheduleradapter/nodetable"
)

// Extender is a service as a plugin: it filters late, scores, and binds. It does
// at each point nothing that its configuration does not name a verb for. A fault
// of the service fails the attempt, unless the service is ignorable.
type Extender struct {
	cfg     config.Extender
	name    string
	client  *http.Client
	log     *slog.Logger
	failing bool     // as it was told
	reasons []string // of the latest Filter
	scoring *scoring
}

// NewAll makes an extender of each configuration, in order. The error joins every
// file that cannot be read and every certificate that cannot be used.
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
			faults = append(faults, fmt.Errorf("extenders: urlPrefix %q: expected a URL that begins with http:// or https://", cfg.URLPrefix))
			continue
		}
		client, err := newClient(&cfg)
		if err != nil {
			faults = append(faults, fmt.Errorf("extenders: %s: %w", cfg.URLPrefix, err))
			continue
		}
		extenders = append(extenders, &Extender{cfg: cfg, name: name, client: client, log: log})
	}
	return extenders, errors.Join(faults...)
}

// Preempts says whether the service has a say in preemption.
func (e *Extender) Preempts() bool { return e.cfg.PreemptVerb != "" }

// Add puts the extender into the plan of a profile: it binds before the profile's
// own plugins do, and at the other points comes after them.
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

// FiltersLate marks that nodes are sampled before the service is asked.
func (*Extender) FiltersLate() {}

// Events are all: nobody knows what the service looks at, so any may help.
func (*Extender) Events() []framework.EventHint {
	return []framework.EventHint{{Event: framework.Event{Resource: framework.AnyResource, Action: framework.All}}}
}

// interested says whether the service is to be asked about a pod: it manages a
// resource that a container asks for, or all pods.
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

// PreFilter skips pods that the service is not interested in.
func (e *Extender) PreFilter(c *framework.Cycle) framework.Status {
	if !e.interested(c.Pod.Object) {
		return framework.Status{Code: framework.Skip}
	}
	return framework.Status{}
}

// Filter asks the service which of the nodes will do.
func (e *Extender) Filter(c *framework.Cycle) framework.Status {
	rows := c.Feasible.Append(nil)
	var result wire.ExtenderFilterResult
	err := e.call(context.Background(), e.cfg.FilterVerb, e.arguments(c, rows), &result)
	if err == nil && result.Error != "" {
		err = errors.New(result.Error)
	}
	var passed map[string]bool
	if err == nil {
		passed, err = e.passed(c, rows, &result)
	}
	if s, faulty := e.judge(err); faulty {
		return s
	}
	e.reasons = e.reasons[:0]
	for _, row := range rows {
		name := c.Table.Node(row).Name.Value()
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

// passed are the names of the nodes that will do. A node that was not asked about
// makes the whole answer worthless.
func (e *Extender) passed(c *framework.Cycle, rows []nodetable.Row, result *wire.ExtenderFilterResult) (map[string]bool, error) {
	asked := make(map[string]bool, len(rows))
	for _, row := range rows {
		asked[c.Table.Node(row).Name.Value()] = true
	}
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
		if !asked[name] {
			return nil, fmt.Errorf("claims a filtered node %q which is not found in the input node list", name)
		}
		passed[name] = true
	}
	return passed, nil
}

// reason is the number of a text, for Reasons.
func (e *Extender) reason(text string) uint32 {
	if text == "" {
		text = "node(s) were filtered out by " + e.name
	}
	i := slices.Index(e.reasons, text)
	if i < 0 {
		i = len(e.reasons)
		e.reasons = append(e.reasons, text)
	}
	return uint32(i)
}

// Reasons are what the service said.
func (e *Extender) Reasons(_ *nodetable.Pod, reason uint32) []string {
	return []string{e.reasons[reason]}
}

// Bind lets the service bind, unless it is not interested in the pod.
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

// arguments are a pod and nodes as the service wants them.
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

// judge makes a status of a fault that the attempt fails for; faulty also where
// the service is ignorable and the attempt goes on without it.
func (e *Extender) judge(err error) (s framework.Status, faulty bool) {
	switch {
	case err == nil:
		if e.failing {
			e.log.Info("extender is back", "extender", e.name)
		}
		e.failing = false
		return framework.Status{}, false
	case e.cfg.Ignorable:
		e.ignore(err)
		return framework.Status{}, true
	}
	return framework.AsStatus(fmt.Errorf("%s: %w", e.name, err)), true
}

// ignore tells of the first of several faults in a row that nothing fails for.
func (e *Extender) ignore(err error) {
	if !e.failing {
		e.log.Warn("extender fails and is ignored", "extender", e.name, "error", err)
	}
	e.failing = true
}
