// Package nodename is the plugin NodeName: it rejects all nodes but spec.nodeName.
package nodename

import (
	"github.com/evictd/evictd/scheduleradapter/framework"
	"github.com/evictd/evictd/scheduleradapter/nodetable"
)

// Name of the plugin.
const Name = "NodeName"

// Plugin is NodeName.
type Plugin struct {
	others nodetable.Bits
}

func New(any, framework.Env) (framework.Plugin, error) { return &Plugin{}, nil }

func (*Plugin) Name() string { return Name }

// IgnoresPods marks that the result depends on the node only.
func (*Plugin) IgnoresPods() {}

// PreFilter narrows the nodes to spec.nodeName.
func (*Plugin) PreFilter(c *framework.Cycle) framework.Status {
	name := c.Pod.Object.Spec.NodeName
	if name == "" {
		return framework.Status{Code: framework.Skip}
	}
	c.Narrow([]nodetable.Symbol{nodetable.Intern(name)})
	return framework.Status{}
}

// Filter rejects all other nodes.
func (p *Plugin) Filter(c *framework.Cycle) framework.Status {
	p.others = p.others.Copied(c.Table.Alive())
	if row := c.Table.Row(nodetable.Intern(c.Pod.Object.Spec.NodeName)); row != nodetable.NoRow {
		p.others.Clear(row)
	}
	c.RejectAll(p.others, 1, true)
	return framework.Status{}
}

func (*Plugin) Reasons(*nodetable.Pod, uint32) []string {
	return []string{"node(s) didn't match the requested node name"}
}

// Events are: a node was added.
func (*Plugin) Events() []framework.EventHint {
	return []framework.EventHint{{Event: framework.Event{Resource: framework.NodeResource, Action: framework.Add}}}
}
