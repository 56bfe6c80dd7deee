// Package unschedulable is the plugin NodeUnschedulable: cordoned nodes get no
// pods but those that tolerate it.
package unschedulable

import (
	v1 "k8s.io/api/core/v1"

	"github.com/evictd/evictd/scheduleradapter/framework"
	"github.com/evictd/evictd/scheduleradapter/nodetable"
)

// Name of the plugin.
const Name = "NodeUnschedulable"

// Registration of the plugin.
var Registration = framework.Register[*Plugin](Name, New)

// Plugin is NodeUnschedulable.
type Plugin struct {
	// cordon is the taint that a cordoned node stands for.
	cordon nodetable.Taint
}

// New makes the plugin; it takes no arguments.
func New(any, framework.Env) (framework.Plugin, error) {
	return &Plugin{nodetable.NewTaint(&v1.Taint{Key: v1.TaintNodeUnschedulable, Effect: v1.TaintEffectNoSchedule})}, nil
}

// Name of the plugin.
func (*Plugin) Name() string { return Name }

// IgnoresPods marks that only the node counts.
func (*Plugin) IgnoresPods() {}

// Filter takes out cordoned nodes.
func (p *Plugin) Filter(c *framework.Cycle) framework.Status {
	if !c.Pod.Tolerations.Tolerate(p.cordon) {
		c.RejectAll(c.Table.Unschedulable(), 1, true)
	}
	return framework.Status{}
}

// Reasons has the one text.
func (*Plugin) Reasons(*nodetable.Pod, uint32) []string {
	return []string{"node(s) were unschedulable"}
}

// Events are: a node came or is cordoned no more, and more tolerations of the pod.
func (p *Plugin) Events() []framework.EventHint {
	return []framework.EventHint{
		{Event: framework.Event{Resource: framework.NodeResource, Action: framework.Add | framework.UpdateNodeTaint}, Hint: p.nodeChanged},
		{Event: framework.Event{Resource: framework.TargetPod, Action: framework.UpdatePodToleration}, Hint: p.tolerationAdded},
	}
}

func (p *Plugin) nodeChanged(o *framework.Occurrence, _ *nodetable.Pod) (framework.Hint, error) {
	if !o.Node.Unschedulable && (o.OldNode == nil || o.OldNode.Unschedulable) {
		return framework.Queue, nil
	}
	return framework.QueueSkip, nil
}

func (p *Plugin) tolerationAdded(o *framework.Occurrence, _ *nodetable.Pod) (framework.Hint, error) {
	if o.Pod.Tolerations.Tolerate(p.cordon) {
		return framework.Queue, nil
	}
	return framework.QueueSkip, nil
}
