package framework

import (
	"fmt"
	"strings"

	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
)

// PlacementFeasible runs the PlacementFeasible plugins until one rejects the group or
// fails. Wait of a plugin remains if the others return Success.
func (r *Runner) PlacementFeasible(group *schedulingv1beta1.PodGroup, scheduled, remaining int) (status Status) {
	for _, p := range r.feasible {
		switch s := p.plugin.PlacementFeasible(group, scheduled, remaining); s.Code {
		case Success:
		case Wait:
			status = p.withPlugin(s)
		case Unschedulable:
			return p.withPlugin(s)
		default:
			return p.withPlugin(AsStatus(fmt.Errorf("running PlacementFeasible plugin: %s", s.Message())))
		}
	}
	return status
}

// PodGroupPostFilter runs the PodGroupPostFilter plugins until one returns Success,
// UnschedulableAndUnresolvable or Error. Otherwise it joins their reasons.
func (r *Runner) PodGroupPostFilter(g *PodGroupAttempt) (PodGroupNomination, Status) {
	var reasons []string
	for _, p := range r.groupPosts {
		n, s := p.plugin.PodGroupPostFilter(g)
		switch s.Code {
		case Success, UnschedulableAndUnresolvable:
			return n, p.withPlugin(s)
		case Unschedulable:
			reasons = append(reasons, s.Reason)
		default:
			return PodGroupNomination{}, p.withPlugin(AsStatus(fmt.Errorf("error in %q PodGroupPostFilter plugins: %s", p.name, s.Message())))
		}
	}
	return PodGroupNomination{}, Status{Code: Unschedulable, Reason: strings.Join(reasons, ", ")}
}
