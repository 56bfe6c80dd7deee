// Package unschedulable is the plugin NodeUnschedulable: it rejects cordoned nodes
// unless the pod tolerates their taint.
package unschedulable

import (
	v1 "k8s.io/api/core/v1"

	"github.com/evictd/evictd/scheduleradapter/framework"
	"github.com/evictd/evictd/scheduleradapter/nodetable"
)

// Name of the plugin.
const Name = "NodeUnschedulable"

// Plugin is NodeUnschedulable.
type Plugin struct {
	// cordon is the taint of a cordoned node.
	cordon nodetable.Taint
	// tolerated: the pod of SignFilter tolerates it.
	tolerated bool
}

func New(any, framework.Env) (framework.Plugin, error) {
	return &Plugin{cordon: nodetable.NewTaint(&v1.Taint{Key: v1.TaintNodeUnschedulable, Effect: v1.TaintEffectNoSchedule})}, nil
}

func (*Plugin) Name() string { return Name }

// IgnoresPods marks that the result depends on the node only.
func (*Plugin) IgnoresPods() {}

// Filter rejects cordoned nodes.
func (p *Plugin) Filter(c *framework.Cycle) framework.Status {
	if !c.Pod.Tolerations.Tolerate(p.cordon) {
		c.RejectAll(c.Table.Unschedulable(), 1, true)
	}
	return framework.Status{}
}

// SignFilter adds whether the pod tolerates the taint.
func (p *Plugin) SignFilter(c *framework.Cycle, s *framework.Signature) (width int, ok bool) {
	if p.tolerated = c.Pod.Tolerations.Tolerate(p.cordon); p.tolerated {
		s.Add(1)
	}
	return 0, true
}

// FitsRow is false for a cordoned node.
func (p *Plugin) FitsRow(c *framework.Cycle, row nodetable.Row) bool {
	return p.tolerated || !c.Table.Unschedulable().Has(row)
}

func (*Plugin) Reasons(*nodetable.Pod, uint32) []string {
	return []string{"node(s) were unschedulable"}
}

// Events are: a node was added or uncordoned; more tolerations of the pod.
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
