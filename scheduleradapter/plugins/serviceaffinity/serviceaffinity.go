// Package serviceaffinity is the plugin ServiceAffinity of legacy Policies: the
// pods of a service are placed on nodes with the same values of labels, or are
// spread over the values of labels.
package serviceaffinity

import (
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evictd/evictd/scheduleradapter/config"
	"github.com/evictd/evictd/scheduleradapter/framework"
	"github.com/evictd/evictd/scheduleradapter/nodetable"
)

// Name of the plugin.
const Name = "ServiceAffinity"

// Plugin is ServiceAffinity.
type Plugin struct {
	affinity, antiAffinity []nodetable.Symbol // label keys
	given                  map[string]string  // labels in the pod's node selector
	alike                  *nodetable.Matcher // pods with the pod's labels, if a service selects it; nil: none
	scratch                nodetable.Bits
	pods                   []int64   // of the service, by label value
	sums                   []float64 // by scored row
}

// New makes the plugin; args are a ServiceAffinityArgs.
func New(args any, _ framework.Env) (framework.Plugin, error) {
	a, ok := args.(*config.ServiceAffinityArgs)
	if !ok {
		return nil, fmt.Errorf("%s: arguments are %T", Name, args)
	}
	p := &Plugin{given: map[string]string{}}
	for _, label := range a.AffinityLabels {
		p.affinity = append(p.affinity, nodetable.Intern(label))
	}
	for _, label := range a.AntiAffinityLabelsPreference {
		p.antiAffinity = append(p.antiAffinity, nodetable.Intern(label))
	}
	return p, nil
}

func (*Plugin) Name() string { return Name }

// PreFilter reads the labels of the pod's node selector. The values of the others
// are those of the node of an existing pod of the service.
func (p *Plugin) PreFilter(c *framework.Cycle) framework.Status {
	if len(p.affinity) == 0 {
		return framework.Status{Code: framework.Skip}
	}
	clear(p.given)
	for _, key := range p.affinity {
		if value, asked := c.Pod.Object.Spec.NodeSelector[key.Value()]; asked {
			p.given[key.Value()] = value
		}
	}
	p.alike = nil
	if len(p.given) == len(p.affinity) || c.Table.Service(c.Pod) == nil {
		return framework.Status{}
	}
	selector := nodetable.NewSelector(&metav1.LabelSelector{MatchLabels: c.Pod.Object.Labels})
	p.alike = nodetable.NewMatcher([]string{c.Pod.Object.Namespace}, nil, selector, false)
	return framework.Status{}
}

// Filter rejects nodes with other label values.
func (p *Plugin) Filter(c *framework.Cycle) framework.Status {
	wanted := p.wanted(c.Table)
	if len(wanted) == 0 {
		return framework.Status{}
	}
	p.scratch = p.scratch.Copied(c.Feasible)
	p.scratch.AndNot(c.Table.Select(nodetable.NewNodeSelector(wanted, nil)))
	c.RejectAll(p.scratch, 0, false)
	return framework.Status{}
}

// wanted are the required label values for the current table.
func (p *Plugin) wanted(t *nodetable.Table) map[string]string {
	if p.alike == nil {
		return p.given
	}
	example := first(t, p.alike)
	if example == nil {
		return p.given
	}
	wanted := map[string]string{}
	for _, key := range p.affinity {
		if value, asked := p.given[key.Value()]; asked {
			wanted[key.Value()] = value
		} else if value, found := example.Labels.Get(key); found {
			wanted[key.Value()] = value.Value()
		}
	}
	return wanted
}

// first is the first node in the table's order with a matching pod.
func first(t *nodetable.Table, m *nodetable.Matcher) *nodetable.Node {
	counter := t.Counter(m)
	if counter.Len() == 0 {
		return nil
	}
	order := t.Order()
	return t.Node(order[slices.IndexFunc(order, func(row nodetable.Row) bool { return counter.On(row) > 0 })])
}

func (*Plugin) Reasons(*nodetable.Pod, uint32) []string {
	return []string{"node(s) didn't match service affinity"}
}

// Score counts the pods of the service on each node.
func (p *Plugin) Score(c *framework.Cycle, rows []nodetable.Row, scores []int64) framework.Status {
	clear(scores)
	service := c.Table.Service(c.Pod)
	if service == nil || len(p.antiAffinity) == 0 {
		return framework.Status{}
	}
	counter := c.Table.Counter(service)
	for i, row := range rows {
		scores[i] = int64(counter.On(row))
	}
	return framework.Status{}
}

// Normalize scores each label value by the share of the service's pods that are not
// on nodes with the value; 0 for nodes without the label. Several labels are
// averaged.
func (p *Plugin) Normalize(c *framework.Cycle, rows []nodetable.Row, scores []int64) framework.Status {
	total := int64(0)
	for _, n := range scores {
		total += n
	}
	p.sums = slices.Grow(p.sums[:0], len(rows))[:len(rows)]
	clear(p.sums)
	for _, key := range p.antiAffinity {
		topology := c.Table.Topology(key)
		p.pods = slices.Grow(p.pods[:0], len(topology.Nodes))[:len(topology.Nodes)]
		clear(p.pods)
		for i, row := range rows {
			if domain := topology.Of[row]; domain != nodetable.NoDomain {
				p.pods[domain] += scores[i]
			}
		}
		for i, row := range rows {
			if domain := topology.Of[row]; domain != nodetable.NoDomain {
				share := 1.0
				if total > 0 {
					share = float64(total-p.pods[domain]) / float64(total)
				}
				p.sums[i] += framework.MaxScore * share / float64(len(p.antiAffinity))
			}
		}
	}
	for i, sum := range p.sums {
		scores[i] = int64(sum)
	}
	return framework.Status{}
}

// Events that change the pods of the service, their nodes, or node labels.
func (*Plugin) Events() []framework.EventHint {
	return []framework.EventHint{
		{Event: framework.Event{Resource: framework.AssignedPod, Action: framework.Add | framework.Delete | framework.UpdatePodLabel}},
		{Event: framework.Event{Resource: framework.TargetPod, Action: framework.UpdatePodLabel}},
		{Event: framework.Event{Resource: framework.NodeResource, Action: framework.Add | framework.UpdateNodeLabel}},
	}
}
