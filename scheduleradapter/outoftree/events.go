package outoftree

import (
	"fmt"

	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/evictd/evictd/scheduleradapter/framework"
	"github.com/evictd/evictd/scheduleradapter/nodetable"
)

// actions map kube-scheduler's action types. UpdateNodePreemptionPolicy, whose
// feature is off, has no counterpart.
var actions = []struct {
	upstream fwk.ActionType
	own      framework.Action
}{
	{fwk.Add, framework.Add},
	{fwk.Delete, framework.Delete},
	{fwk.UpdateNodeAllocatable, framework.UpdateNodeAllocatable},
	{fwk.UpdateNodeLabel, framework.UpdateNodeLabel},
	{fwk.UpdateNodeTaint, framework.UpdateNodeTaint},
	{fwk.UpdateNodeCondition, framework.UpdateNodeCondition},
	{fwk.UpdateNodeAnnotation, framework.UpdateNodeAnnotation},
	{fwk.UpdateNodeDeclaredFeature, framework.UpdateNodeDeclaredFeature},
	{fwk.UpdatePodLabel, framework.UpdatePodLabel},
	{fwk.UpdatePodScaleDown, framework.UpdatePodScaleDown},
	{fwk.UpdatePodScaleUp, framework.UpdatePodScaleUp},
	{fwk.UpdatePodToleration, framework.UpdatePodToleration},
	{fwk.UpdatePodSchedulingGatesEliminated, framework.UpdatePodSchedulingGatesEliminated},
	{fwk.UpdatePodGeneratedResourceClaim, framework.UpdatePodGeneratedResourceClaim},
}

// register reads EventsToRegister; a plugin without it is registered for all
// events.
func (g *adapter) register() error {
	extensions, ok := g.plugin.(fwk.EnqueueExtensions)
	if !ok {
		g.events = []framework.EventHint{{Event: framework.Event{Resource: framework.AnyResource, Action: framework.All}}}
		return nil
	}
	upstream, err := extensions.EventsToRegister(g.profile.host.ctx)
	if err != nil {
		return fmt.Errorf("events to register: %w", err)
	}
	for _, e := range upstream {
		hint := framework.EventHint{Event: framework.Event{Resource: framework.Resource(e.Event.Resource)}}
		for _, a := range actions {
			if e.Event.ActionType&a.upstream != 0 {
				hint.Event.Action |= a.own
			}
		}
		if f := e.QueueingHintFn; f != nil {
			hint.Hint = g.hint(f)
		}
		g.events = append(g.events, hint)
	}
	return nil
}

func (g *adapter) hint(f fwk.QueueingHintFn) func(*framework.Occurrence, *nodetable.Pod) (framework.Hint, error) {
	return func(o *framework.Occurrence, pod *nodetable.Pod) (framework.Hint, error) {
		was, is := objects(o)
		answer := fwk.QueueSkip
		s := g.call(framework.PreEnqueue, func() (s *fwk.Status) {
			var err error
			answer, err = f(klog.FromContext(g.profile.host.ctx), pod.Object, was, is)
			return fwk.AsStatus(err)
		})
		if answer == fwk.Queue || !s.IsSuccess() {
			return framework.Queue, s.AsError()
		}
		return framework.QueueSkip, nil
	}
}

// objects are the old and the new object of an event; an untyped nil if there is
// none.
func objects(o *framework.Occurrence) (was, is any) {
	was, is = o.OldObject, o.Object
	switch {
	case o.OldPod != nil:
		was = o.OldPod.Object
	case o.OldNode != nil:
		was = o.OldNode.Object
	}
	switch {
	case o.Pod != nil:
		is = o.Pod.Object
	case o.Node != nil:
		is = o.Node.Object
	}
	return was, is
}
