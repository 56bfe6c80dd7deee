package publish

import (
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/evictd/evictd/eviction"
	"github.com/evictd/evictd/eviction/control"
	"github.com/evictd/evictd/internal/wire"
	"github.com/evictd/evictd/nodestatus"
)

// Resume adds evictions that a previous process decided, so that their ends are
// reported.
func (p *Publisher) Resume(intents []wire.Intent) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, i := range intents {
		p.evictions = append(p.evictions, &record{
			Eviction: nodestatus.Eviction{
				Pod: i.Namespace + "/" + i.Name, UID: i.UID, Signal: i.Signal,
				Crossed: nodestatus.Time{Time: i.Crossed}, Decided: nodestatus.Time{Time: i.Decided}, Gone: nodestatus.Time{Time: i.Ended},
				Source: fromJournal, Reason: eviction.ReasonEvicted, Message: i.Message,
			},
			pod: wire.PodName{UID: i.UID, Namespace: i.Namespace, Name: i.Name}, owner: i.Owner, hard: i.Hard,
		})
	}
}

// conditionEvent sends the kubelet's event for a changed condition
// (recordNodeStatusEvent).
func (p *Publisher) conditionEvent(condition int, raised bool, at time.Time) {
	reason := p.cfg.Mode.EventReason(condition, raised)
	p.event(wire.Event{
		At: at, Type: v1.EventTypeNormal, Reason: reason, Action: "Reporting",
		Note: fmt.Sprintf("Node %s status is now: %s", p.cfg.Node, reason),
	})
}

// thresholdEvents sends an event for each threshold that is now met.
func (p *Publisher) thresholdEvents(r *control.Report) {
	acting := map[eviction.Signal]bool{}
	for _, d := range r.Decisions {
		for _, met := range d.Met {
			if acting[met.Signal] = true; !p.thresholdsMet[met.Signal] {
				p.event(wire.Event{
					At: r.At, Type: v1.EventTypeWarning, Reason: "EvictionThresholdMet", Action: "Reclaiming",
					Note: fmt.Sprintf("Attempting to reclaim %s", met.Signal.Resource()),
				})
			}
			p.thresholdsMet[met.Signal] = true
		}
	}
	if r.Source == control.Housekeeping { // evaluates all thresholds
		p.thresholdsMet = acting
	}
}

func (p *Publisher) event(e wire.Event) {
	if p.cfg.Cluster != nil {
		p.cfg.Cluster.Event(e)
	}
}

// AnnotationIgnored reports an annotation of a pod that has no effect, and why. It may be called
// from any goroutine.
func (p *Publisher) AnnotationIgnored(pod wire.PodName, why string) {
	p.log.Warn("an annotation is ignored", "pod", pod.Namespace+"/"+pod.Name, "reason", why)
	p.event(wire.Event{Pod: pod, At: time.Now(), Type: v1.EventTypeWarning, Reason: "AnnotationIgnored", Action: "Reporting", Note: why})
}

// Headroom is what the scheduler receives of a snapshot.
func (p *Publisher) Headroom(s *control.Snapshot) nodestatus.Headroom {
	var signals []nodestatus.Measured
	for _, signal := range eviction.Signals() {
		m := nodestatus.Measured{Signal: signal, Available: s.Observations[signal].Available}
		for i := range s.Eviction.Thresholds {
			t := &s.Eviction.Thresholds[i]
			required, known := t.Value.Of(s.Observations[signal])
			if t.Signal != signal || !known {
				continue
			}
			if t.Hard() {
				m.Hard = append(m.Hard, required)
			} else {
				m.Soft = append(m.Soft, required)
			}
			m.SecondsToThreshold = nearer(m.SecondsToThreshold, s.Until[i])
		}
		signals = append(signals, m)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	var evicted []nodestatus.Evicted
	for _, e := range p.evictions {
		if e.outside {
			continue
		}
		evicted = append(evicted, nodestatus.Evicted{Owner: string(e.owner), Signal: e.Signal, At: e.Decided.Time})
	}
	return nodestatus.NewHeadroom(signals, evicted, s.At)
}
