// Package gates is the plugin SchedulingGates: a pod waits until nobody holds it
// back.
package gates

import (
	"fmt"
	"strings"

	"github.com/evictd/evictd/scheduleradapter/framework"
	"github.com/evictd/evictd/scheduleradapter/nodetable"
)

// Name of the plugin.
const Name = "SchedulingGates"

// Registration of the plugin.
var Registration = framework.Register[*Plugin](Name, New)

// Plugin is SchedulingGates.
type Plugin struct{}

// New makes the plugin; it takes no arguments.
func New(any, framework.Env) (framework.Plugin, error) { return &Plugin{}, nil }

// Name of the plugin.
func (*Plugin) Name() string { return Name }

// PreEnqueue holds pods with a scheduling gate back.
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

// Events are: the pod's last gate is gone.
func (*Plugin) Events() []framework.EventHint {
	return []framework.EventHint{{Event: framework.Event{Resource: framework.TargetPod, Action: framework.UpdatePodSchedulingGatesEliminated}}}
}
