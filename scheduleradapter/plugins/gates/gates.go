// Package gates is the plugin SchedulingGates: it gates pods with
// spec.schedulingGates.
package gates

import (
	"fmt"
	"strings"

	"github.com/evictd/evictd/scheduleradapter/framework"
	"github.com/evictd/evictd/scheduleradapter/nodetable"
)

// Name of the plugin.
const Name = "SchedulingGates"

// Plugin is SchedulingGates.
type Plugin struct{}

func New(any, framework.Env) (framework.Plugin, error) { return &Plugin{}, nil }

func (*Plugin) Name() string { return Name }

// PreEnqueue gates pods with a scheduling gate.
func (*Plugin) PreEnqueue(pod *nodetable.Pod) framework.Status {
	gates := pod.Object.Spec.SchedulingGates
	if len(gates) == 0 {
		return framework.Status{}
	}
	names := make([]string, len(gates))
	for i := range gates {
		names[i] = gates[i].Name
	}
	return framework.Status{
		Code:   framework.UnschedulableAndUnresolvable,
		Reason: fmt.Sprintf("waiting for scheduling gates: [%s]", strings.Join(names, " ")),
	}
}

// Events are: the last gate of the pod was removed.
func (*Plugin) Events() []framework.EventHint {
	return []framework.EventHint{{Event: framework.Event{Resource: framework.TargetPod, Action: framework.UpdatePodSchedulingGatesEliminated}}}
}
