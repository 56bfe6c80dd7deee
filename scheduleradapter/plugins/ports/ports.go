// Package ports is the plugin NodePorts: it rejects nodes on which a host port of
// the pod is in use.
package ports

import (
	"github.com/evictd/evictd/scheduleradapter/framework"
	"github.com/evictd/evictd/scheduleradapter/nodetable"
)

// Name of the plugin.
const Name = "NodePorts"

// Plugin is NodePorts.
type Plugin struct {
	taken nodetable.Bits // buffer
}

func New(any, framework.Env) (framework.Plugin, error) { return &Plugin{}, nil }

func (*Plugin) Name() string { return Name }

// PreFilter skips pods without host ports.
func (*Plugin) PreFilter(c *framework.Cycle) framework.Status {
	if len(c.Pod.Ports) == 0 {
		return framework.Status{Code: framework.Skip}
	}
	return framework.Status{}
}

// Filter rejects nodes with a conflicting host port.
func (p *Plugin) Filter(c *framework.Cycle) framework.Status {
	p.taken = p.taken.Emptied(c.Table.Rows())
	c.Table.PortConflicts(c.Pod.Ports, p.taken)
	c.RejectAll(p.taken, 1, false)
	return framework.Status{}
}

func (*Plugin) Reasons(*nodetable.Pod, uint32) []string {
	return []string{"node(s) didn't have free ports for the requested pod ports"}
}

// Events are: a pod with one of the ports was deleted, or a node was added.
func (*Plugin) Events() []framework.EventHint {
	return []framework.EventHint{
		{Event: framework.Event{Resource: framework.AssignedPod, Action: framework.Delete}, Hint: podLeft},
		{Event: framework.Event{Resource: framework.NodeResource, Action: framework.Add}},
	}
}

func podLeft(o *framework.Occurrence, pod *nodetable.Pod) (framework.Hint, error) {
	if nodetable.Overlap(o.OldPod.Ports, pod.Ports) {
		return framework.Queue, nil
	}
	return framework.QueueSkip, nil
}
