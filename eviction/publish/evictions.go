package publish

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evictd/evictd/eviction"
	"github.com/evictd/evictd/eviction/control"
	"github.com/evictd/evictd/eviction/kill"
	"github.com/evictd/evictd/internal/wire"
	"github.com/evictd/evictd/nodestatus"
)

// record is one eviction as the status document has it.
type record struct {
	nodestatus.Eviction
	pod   wire.PodName
	owner types.UID
	hard  bool
	// outside: it is of a cgroup outside of the pods.
	outside bool
	signal  eviction.Signal // zero for an eviction of a previous process
}

// decided records and logs one eviction.
func (p *Publisher) decided(r *control.Report, e *eviction.Eviction) {
	of := nodestatus.Eviction{
		Pod: e.Pod.String(), UID: e.Pod.UID, Signal: e.Signal.String(),
		Crossed: nodestatus.Time{Time: e.Since}, Decided: nodestatus.Time{Time: r.At},
		Grace: e.Grace.Round(time.Millisecond).String(), Source: string(r.Source), Reason: eviction.ReasonEvicted, Message: e.Message, Because: e.Because, Estimated: e.Pod.Estimated, Held: e.Held(),
	}
	if r.DryRun {
		if p.candidates.add(of, e.Signal) {
			p.log.Info("would evict", "pod", of.Pod, "signal", of.Signal, "hard", e.Hard, "because", e.Because, "message", e.Message, "source", r.Source)
			p.metrics.evictions.WithLabelValues(of.Signal, kind(e.Hard), "dry-run").Inc()
		}
		return
	}
	if e.Pod.Outside {
		p.event(wire.Event{At: r.At, Type: v1.EventTypeWarning, Reason: "EvictedOutsidePods", Action: "Evicting", Note: "Cgroup " + e.Pod.String() + ": " + e.Because})
	}
	p.evictions = append(p.evictions, &record{
		Eviction: of,
		pod:      wire.PodName{UID: e.Pod.UID, Namespace: e.Pod.Namespace, Name: e.Pod.Name}, owner: e.Pod.Owner, outside: e.Pod.Outside, hard: e.Hard, signal: e.Signal,
	})
	p.evictions = p.evictions[max(0, len(p.evictions)-keptEvictions):]
	p.log.Info("evicting", "pod", e.Pod.String(), "signal", e.Signal.String(), "hard", e.Hard, "gracePeriodSeconds", e.GracePeriodSeconds, "grace", e.Grace.Round(time.Millisecond).String(), "because", e.Because, "message", e.Message, "source", r.Source)
}

// resumed completes the record of a victim of a previous process.
func (p *Publisher) resumed(v *eviction.Resumed) {
	p.log.Info("continuing an eviction of the previous process", "pod", v.Pod.String(), "signal", v.Signal.String(), "hard", v.Hard)
	if e := p.record(v.Pod.UID); e != nil {
		e.Pod, e.Grace, e.Estimated = v.Pod.String(), v.Grace.Round(time.Millisecond).String(), v.Pod.Estimated
	}
}

// killEnded records the result of a kill.
func (p *Publisher) killEnded(k *kill.Result) {
	e := p.record(k.UID)
	if e == nil {
		return
	}
	resumed := e.Source == fromJournal // when it was signalled first is not known
	if e.Signalled.IsZero() && !resumed {
		e.Signalled = nodestatus.Time{Time: k.Signalled}
	}
	if e.Killed.IsZero() {
		e.Killed = nodestatus.Time{Time: k.Killed}
	}
	if k.Gone.IsZero() {
		p.log.Warn("a kill failed; the next candidate is chosen", "pod", e.Pod, "error", k.Err)
		p.metrics.evictions.WithLabelValues(e.Signal, kind(e.hard), "failed").Inc()
		return
	}
	e.Gone = nodestatus.Time{Time: k.Gone}
	onDisk := e.signal.Condition() == eviction.DiskPressure
	if p.cfg.Evicted != nil && onDisk {
		p.cfg.Evicted(e.UID)
	}
	if freed, known := k.Freed.Get(); known {
		p.metrics.freed.Add(float64(freed))
		if !onDisk {
			e.Freed = eviction.MemoryAvailable.Quantity(freed)
		}
	}
	gain := []any{"freed", e.Freed}
	if onDisk {
		gain = []any{"held", e.Held}
	}
	p.metrics.evictions.WithLabelValues(e.Signal, kind(e.hard), "gone").Inc()
	p.metrics.kubeletEvictions.WithLabelValues(e.Signal).Inc()
	p.metrics.relief.WithLabelValues(e.Signal).Observe(k.Gone.Sub(e.Crossed.Time).Seconds())
	took := []any{"crossingToGone", k.Gone.Sub(e.Crossed.Time).String()}
	if !k.Signalled.IsZero() && !resumed { // the pod had processes
		took = []any{"crossingToSignal", k.Signalled.Sub(e.Crossed.Time).String(), "signalToGone", k.Gone.Sub(k.Signalled).String()}
	}
	p.log.Info("evicted", slices.Concat([]any{"pod", e.Pod, "signal", e.Signal}, gain, took)...)
}

// withdrawn drops the records of evictions that were withdrawn.
func (p *Publisher) withdrawn(uid types.UID) {
	e := p.record(uid)
	if e == nil {
		return
	}
	p.log.Info("the request for an eviction was withdrawn: what the pod was chosen for is over", "pod", e.Pod, "signal", e.Signal)
	p.metrics.evictions.WithLabelValues(e.Signal, kind(e.hard), "withdrawn").Inc()
	p.evictions = slices.DeleteFunc(p.evictions, func(r *record) bool { return r == e })
}

// record is the newest eviction of a pod that is not over.
func (p *Publisher) record(uid types.UID) *record {
	for i := len(p.evictions) - 1; i >= 0; i-- {
		if e := p.evictions[i]; e.UID == uid && e.Gone.IsZero() {
			return e
		}
	}
	return nil
}

func kind(hard bool) string {
	if hard {
		return "hard"
	}
	return "soft"
}
