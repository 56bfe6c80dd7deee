package publish

import (
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evictd/evictd/eviction"
	"github.com/evictd/evictd/eviction/control"
	"github.com/evictd/evictd/internal/wire"
	"github.com/evictd/evictd/nodestatus"
)

// steps has the steps before evictions of a pass taken.
func (p *Publisher) steps(r *control.Report) {
	for i := range r.Decisions {
		for j := range r.Decisions[i].Steps {
			s := &r.Decisions[i].Steps[j]
			p.log.Info("step before an eviction", "step", s.Step.String(), "pod", s.Pod.String(), "container", s.Container, "over", s.Over, "because", s.Because)
			if p.cfg.Notice == nil {
				p.metrics.steps.WithLabelValues(s.Step.String(), s.Cause.Kind.String(), "dry-run").Inc()
				continue
			}
			p.cfg.Notice(s)
		}
	}
}

// stepReasons are the reasons of the events of a step and of its end.
var stepReasons = map[eviction.Step][2]string{eviction.Warn: {"MemoryWarning", "MemoryWarningOver"}}

// StepTaken reports that a step, or its end, was delivered to its container, or why it was not. It may be called from
// any goroutine, also by Config.Notice.
func (p *Publisher) StepTaken(s *eviction.StepAction, err error) {
	outcome, kind, reason := "taken", v1.EventTypeWarning, stepReasons[s.Step][0]
	if s.Over {
		outcome, kind, reason = "over", v1.EventTypeNormal, stepReasons[s.Step][1]
	}
	if err != nil {
		outcome = "failed"
		p.log.Debug("a step before an eviction was not delivered", "step", s.Step.String(), "pod", s.Pod.String(), "container", s.Container, "error", err)
	}
	p.metrics.steps.WithLabelValues(s.Step.String(), s.Cause.Kind.String(), outcome).Inc()
	if err == nil {
		p.event(wire.Event{
			Pod: wire.PodName{UID: s.Pod.UID, Namespace: s.Pod.Namespace, Name: s.Pod.Name}, At: time.Now(), Type: kind, Reason: reason, Action: "Warning",
			Note: "Container " + s.Container + ": " + s.Because,
		})
	}
}

// stepsInEffect are the steps before evictions that are in effect on pods.
func stepsInEffect(s *control.Snapshot, selected func(*eviction.Pod) bool) (all []nodestatus.Step) {
	pods := map[types.UID]*eviction.Pod{}
	for i := range s.Candidates {
		pods[s.Candidates[i].Pod.UID] = s.Candidates[i].Pod
	}
	for _, t := range s.State.Steps {
		if pod := pods[t.UID]; pod != nil && !t.Over && selected(pod) {
			all = append(all, nodestatus.Step{
				Step: t.Step.String(), Pod: pod.String(), UID: t.UID, Container: t.Container, Cause: t.Cause.String(),
				Since: nodestatus.Time{Time: t.Since}, Last: nodestatus.Time{Time: t.Last},
			})
		}
	}
	return append(all, recentRestarts(s, selected)...)
}
