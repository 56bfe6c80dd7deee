package publish

import (
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/evictd/evictd/eviction"
	"github.com/evictd/evictd/eviction/control"
	"github.com/evictd/evictd/eviction/kill"
	"github.com/evictd/evictd/internal/wire"
)

// restarting is a restart of a container whose kill has not ended. There is one of a pod.
type restarting struct {
	pod     wire.PodName
	signal  string
	kind    string
	crossed time.Time
	message string
}

// restarts logs the restarts of containers that were decided in a pass.
func (p *Publisher) restarts(r *control.Report) {
	for i := range r.Decisions {
		for j := range r.Decisions[i].Restarts {
			c := &r.Decisions[i].Restarts[j]
			what := map[bool]string{true: "would restart a container", false: "restarting a container"}[r.DryRun]
			p.log.Info(what, "pod", c.Pod.String(), "container", c.Name(), "signal", c.Signal.String(), "hard", c.Hard, "grace", c.Grace.Round(time.Millisecond).String(), "because", c.Because, "message", c.Message, "source", r.Source)
			if r.DryRun {
				p.metrics.restarts.WithLabelValues(c.Signal.String(), kind(c.Hard), "dry-run").Inc()
				continue
			}
			p.restarting[c.Pod.UID] = restarting{wire.PodName{UID: c.Pod.UID, Namespace: c.Pod.Namespace, Name: c.Pod.Name}, c.Signal.String(), kind(c.Hard), c.Since, c.Message}
		}
	}
	for i := range r.NotRestarted {
		c := &r.NotRestarted[i]
		p.metrics.restarts.WithLabelValues(c.Signal.String(), kind(c.Hard), "failed").Inc()
	}
}

// restartEnded reports what has become of the kill of a container. A container that outlives its grace has a
// second result.
func (p *Publisher) restartEnded(k *kill.Result) {
	c, known := p.restarting[k.UID]
	switch {
	case !known:
	case k.Gone.IsZero():
		p.log.Warn("a container could not be ended", "pod", c.pod.Namespace+"/"+c.pod.Name, "container", k.Container, "error", k.Err)
		p.metrics.restarts.WithLabelValues(c.signal, c.kind, "failed").Inc()
	default:
		delete(p.restarting, k.UID)
		p.metrics.restarts.WithLabelValues(c.signal, c.kind, "ended").Inc()
		freed := ""
		if bytes, measured := k.Freed.Get(); measured {
			p.metrics.freed.Add(float64(bytes))
			freed = eviction.MemoryAvailable.Quantity(bytes)
		}
		p.log.Info("ended a container for its restart", "pod", c.pod.Namespace+"/"+c.pod.Name, "container", k.Container, "freed", freed, "crossingToGone", k.Gone.Sub(c.crossed).String())
		p.event(wire.Event{Pod: c.pod, At: k.Gone, Type: v1.EventTypeWarning, Reason: "ContainerRestarted", Action: "Restarting", Note: c.message})
	}
}
