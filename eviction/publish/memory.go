package publish

import (
	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evictd/evictd/eviction"
	"github.com/evictd/evictd/eviction/control"
	"github.com/evictd/evictd/internal/metric"
	"github.com/evictd/evictd/internal/wire"
	"github.com/evictd/evictd/nodestatus"
)

// memorySteps are the metrics of what is done about the memory of pods before one is evicted.
type memorySteps struct {
	attempts, throttles *prometheus.CounterVec
	reclaimed           prometheus.Counter
}

func newMemorySteps(set *metric.Set) *memorySteps {
	own := set.Of(metric.Own, metric.Alpha)
	m := &memorySteps{
		attempts:  own.Counter("evictd_memory_reclaim_attempts_total", "Attempts to reclaim memory of a pod above its request (memory.reclaim), by outcome: whole, less or ended.", "outcome"),
		reclaimed: own.Counter("evictd_memory_reclaimed_bytes_total", "Memory that these have reclaimed.").WithLabelValues(),
		throttles: own.Counter("evictd_memory_throttles_total", "Pods that were to be throttled before a hard threshold (memory.high), by outcome: set, refused or ended.", "outcome"),
	}
	for _, outcome := range []string{"whole", "less", "ended"} {
		m.attempts.WithLabelValues(outcome) // starts at 0
	}
	for _, outcome := range []string{"set", "refused", "ended"} {
		m.throttles.WithLabelValues(outcome)
	}
	return m
}

func (m *memorySteps) observe(r *control.Report) {
	for _, o := range r.MemoryReclaimed {
		outcome := "whole"
		switch {
		case o.UID == "":
			continue
		case len(o.Pods) == 0:
			outcome = "ended"
		case o.Less:
			outcome = "less"
		}
		m.attempts.WithLabelValues(outcome).Inc()
		m.reclaimed.Add(float64(o.Bytes))
	}
	for _, o := range r.ThrottleOutcomes {
		outcome := "ended"
		switch {
		case o.High > 0:
			outcome = "set"
		case o.Refused != "":
			outcome = "refused"
		}
		m.throttles.WithLabelValues(outcome).Inc()
	}
}

// memory logs what is done about the memory of pods, and sends the events of it: one for each pod and round of a
// reclaim, and one for each throttle.
func (p *Publisher) memory(r *control.Report) {
	p.metrics.memorySteps.observe(r)
	event := func(pod *eviction.Pod, kind, reason, note string) {
		p.event(wire.Event{Pod: wire.PodName{UID: pod.UID, Namespace: pod.Namespace, Name: pod.Name}, At: r.At, Type: kind, Reason: reason, Action: "Reclaiming", Note: note})
	}
	bytes := eviction.MemoryAvailable.Rounded
	for i := range r.Decisions {
		d := &r.Decisions[i]
		for _, e := range d.MemoryReclaimEnds {
			p.log.Info("reclaimed memory of a pod", "pod", e.Pod.String(), "bytes", bytesOf(e.Bytes), "ended", e.Because)
			event(e.Pod, v1.EventTypeNormal, "MemoryReclaimed", bytes(e.Bytes)+" of the pod's memory were reclaimed, so that no pod has to be evicted; no more for now: "+e.Because)
		}
		if m := d.MemoryReclaim; m != nil && m.Pod != nil {
			p.log.Info("reclaiming memory of a pod", "pod", m.Pod.String(), "bytes", bytesOf(m.Bytes), "because", m.Because)
		}
		if t := d.ThrottleEnd; t != nil {
			p.log.Info("ending the throttle of a pod", "pod", t.Pod.String(), "because", t.Because)
		}
		if t := d.Throttle; t != nil {
			p.log.Info("throttling a pod", "pod", t.Pod.String(), "room", bytesOf(t.Room), "for", t.For.String(), "because", t.Because)
			event(t.Pod, v1.EventTypeWarning, "MemoryThrottled", "The pod may grow by "+bytes(t.Room)+" before it is throttled, for "+t.For.String()+": "+t.Because)
		}
	}
	for _, o := range r.ThrottleOutcomes {
		if o.Refused != "" {
			p.log.Warn("a pod is not throttled", "uid", o.UID, "reason", o.Refused)
		}
	}
}

// memoryInProgress is what is being done about the memory of pods.
func memoryInProgress(s *control.Snapshot) (all []nodestatus.MemoryStep) {
	name := func(uid types.UID) string {
		for i := range s.Candidates {
			if p := s.Candidates[i].Pod; p.UID == uid {
				return p.String()
			}
		}
		return string(uid)
	}
	quantity := eviction.MemoryAvailable.Quantity
	if r := &s.State.Round; r.Pod != "" {
		all = append(all, nodestatus.MemoryStep{Step: "reclaim", Pod: name(r.Pod), UID: r.Pod, Since: nodestatus.Time{Time: r.Asked}, Bytes: quantity(r.Bytes)})
	}
	if t := &s.State.Throttled; t.UID != "" {
		m := nodestatus.MemoryStep{Step: "throttle", Pod: name(t.UID), UID: t.UID, Since: nodestatus.Time{Time: t.Since}}
		if t.High > 0 {
			m.High = quantity(t.High)
		}
		all = append(all, m)
	}
	return all
}
