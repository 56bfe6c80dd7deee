package publish

import (
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evictd/evictd/eviction"
	"github.com/evictd/evictd/eviction/control"
	"github.com/evictd/evictd/internal/wire"
	"github.com/evictd/evictd/nodestatus"
)

// stepEvents are the events of a step and of its end, "" where there is none, and their notes, of its container, bytes,
// longest time and reason.
var stepEvents = map[eviction.Step]struct{ taken, note, over, overNote, action string }{
	eviction.Warn: {"MemoryWarning", "Container %[1]s: %[4]s", "MemoryWarningOver", "Container %[1]s: %[4]s", "Warning"},
	eviction.ReclaimMemory: {
		over: "MemoryReclaimed", overNote: "%[2]s of the pod's memory were reclaimed, so that no pod has to be evicted; no more for now: %[4]s", action: "Reclaiming",
	},
	eviction.Resize:   {taken: "MemoryLimitNear", note: "Container %[1]s: %[4]s", action: "Reporting"},
	eviction.Throttle: {taken: "MemoryThrottled", note: "The pod may grow by %[2]s before it is throttled, for %[3]v: %[4]s", action: "Throttling"},
}

// steps logs the steps before evictions of a pass, has those on containers taken, and reports those on pods, which the
// loop has had taken.
func (p *Publisher) steps(r *control.Report) {
	for i := range r.Decisions {
		for j := range r.Decisions[i].Steps {
			s := &r.Decisions[i].Steps[j]
			if s.Pod == nil { // a measurement
				continue
			}
			p.log.Info("step before an eviction", "step", s.Step.String(), "over", s.Over, "of", new(nodestatus.NewStep(s)).Of(), "because", s.Because)
			switch {
			case s.Container == "":
				p.StepTaken(s, nil)
			case s.Step == eviction.Resize:
				p.resize(s, r.DryRun)
			case p.cfg.Notice == nil:
				p.metrics.steps.WithLabelValues(s.Step.String(), s.Cause.Kind.String(), "dry-run").Inc()
			default:
				p.cfg.Notice(s)
			}
		}
	}
	for _, o := range r.StepOutcomes {
		switch {
		case o.Refused != "":
			p.metrics.steps.WithLabelValues(o.Step.String(), "", "failed").Inc()
			p.log.Warn("a step before an eviction is refused", "step", o.Step.String(), "uid", o.UID, "reason", o.Refused)
		case o.Step == eviction.ReclaimMemory:
			p.metrics.reclaimed.Add(float64(o.Bytes))
		}
	}
}

// resize has the limit of a container raised. Where it is not to be, only the event says that the container reaches it
// soon, for what adapts pods to their needs. The agent sends the event of a resize, once it knows the answer.
func (p *Publisher) resize(s *eviction.StepAction, dryRun bool) {
	limit, short := s.Pod.Limit(s.Container), eviction.MemoryAvailable.Rounded
	switch {
	case s.Over:
	case dryRun || p.cfg.Cluster == nil:
		p.metrics.steps.WithLabelValues(s.Step.String(), s.Cause.Kind.String(), "dry-run").Inc()
	case s.Bytes == 0:
		p.StepTaken(s, nil)
	default:
		p.metrics.steps.WithLabelValues(s.Step.String(), s.Cause.Kind.String(), "taken").Inc()
		p.cfg.Cluster.Resize(wire.Resize{
			PodName: wire.PodName{UID: s.Pod.UID, Namespace: s.Pod.Namespace, Name: s.Pod.Name}, Container: s.Container,
			From: limit, To: s.Bytes, Requests: s.Pod.QOS == v1.PodQOSGuaranteed,
			Note: fmt.Sprintf("Container %s: its memory limit of %s is raised to %s: %s.", s.Container, short(limit), short(s.Bytes), s.Because),
		})
	}
}

// StepTaken reports that a step, or its end, was delivered, or why it was not. It may be called from any goroutine, also
// by Config.Notice.
func (p *Publisher) StepTaken(s *eviction.StepAction, err error) {
	e := stepEvents[s.Step]
	outcome, kind, reason, note := "taken", v1.EventTypeWarning, e.taken, e.note
	if s.Over {
		outcome, kind, reason, note = "over", v1.EventTypeNormal, e.over, e.overNote
	}
	if err != nil {
		outcome = "failed"
		p.log.Debug("a step before an eviction was not delivered", "step", s.Step.String(), "pod", s.Pod.String(), "container", s.Container, "error", err)
	}
	p.metrics.steps.WithLabelValues(s.Step.String(), s.Cause.Kind.String(), outcome).Inc()
	if err == nil && reason != "" {
		p.event(wire.Event{
			Pod: wire.PodName{UID: s.Pod.UID, Namespace: s.Pod.Namespace, Name: s.Pod.Name}, At: time.Now(), Type: kind, Reason: reason, Action: e.action,
			Note: fmt.Sprintf(note, s.Container, eviction.MemoryAvailable.Rounded(s.Bytes), s.For, s.Because),
		})
	}
}

// prospects are those of steps before evictions on pods.
func prospects(s *control.Snapshot, selected func(*eviction.Pod) bool) (all []nodestatus.Prospect) {
	in := eviction.Input{Now: s.At, Signals: s.Observations, Candidates: s.Candidates}
	for i := range s.Candidates {
		c := &s.Candidates[i]
		if !selected(c.Pod) {
			continue
		}
		for _, p := range s.State.Prospects(s.Eviction, &in, c) {
			all = append(all, nodestatus.Prospect{Step: p.Step.String(), Pod: c.Pod.String(), May: p.May, Because: p.Because})
		}
	}
	return all
}

// stepsInEffect are the steps before evictions that are in effect on pods.
func stepsInEffect(s *control.Snapshot, selected func(*eviction.Pod) bool) (all []nodestatus.StepInEffect) {
	pods := map[types.UID]*eviction.Pod{}
	for i := range s.Candidates {
		pods[s.Candidates[i].Pod.UID] = s.Candidates[i].Pod
	}
	taken := s.State.StepsInEffect()
	for i := range taken {
		if pod := pods[taken[i].UID]; pod != nil && selected(pod) {
			all = append(all, nodestatus.NewStepInEffect(&taken[i], pod.String()))
		}
	}
	return all
}
