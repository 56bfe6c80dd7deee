package publish

import (
	"context"
	"math"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evictd/evictd/cri/inventory"
	"github.com/evictd/evictd/eviction"
	"github.com/evictd/evictd/eviction/control"
	"github.com/evictd/evictd/eviction/reclaim"
	"github.com/evictd/evictd/nodestatus"
	"github.com/evictd/evictd/stats"
)

// Status takes a snapshot and writes the document of /v1/status.
func (p *Publisher) Status(ctx context.Context) (nodestatus.Status, error) {
	s, err := p.snapshots.Snapshot(ctx)
	if err != nil {
		return nodestatus.Status{}, err
	}
	var preview reclaim.Plan
	if p.cfg.Preview != nil {
		preview = p.cfg.Preview()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	raised := raisedIn(&s.State)
	conditions := p.cfg.Mode.Conditions(raised, messages(s.Eviction, &s.Observations), p.conditions, s.At)
	p.sayOutside(conditions)
	status := nodestatus.Status{
		Node: p.cfg.Node, Mode: p.cfg.Mode, Time: nodestatus.Time{Time: s.At}, PID: p.cfg.PID, StateDir: p.cfg.StateDir,
		Signals:    p.signals(&s),
		Conditions: nodestatus.StatusOf(conditions),
		Taints:     nodestatus.TaintNames(p.cfg.Mode.Taints(raised)),
		Ranking:    map[string][]nodestatus.Ranked{},

		MemoryAvailable: memory(&s.Node),
		Stalls:          stalls(&s.Node),
		Reclaiming:      reclaiming(&s),
	}
	status.Unprotected = p.unprotected()
	if p.cfg.ConfigurationRefused != nil {
		status.ConfigurationRefused = p.cfg.ConfigurationRefused()
	}
	if pod := s.Grower; pod != nil {
		status.Growing = &nodestatus.Growing{Pod: pod.String(), UID: pod.UID, PerSecond: eviction.MemoryAvailable.Quantity(s.Growth)}
	}
	reclaimables(&status, &preview)
	if p.cfg.API != nil {
		api := p.cfg.API()
		status.API = &api
	}
	if p.cfg.Runtime != nil {
		runtime := p.cfg.Runtime()
		measured(&runtime, s.Candidates)
		status.Runtime = &runtime
	}
	for _, signal := range ranked(&s) {
		status.Ranking[signal.String()] = ranking(&s, signal)
	}
	status.KernelKills = slices.Clone(p.kernelKills)
	status.Steps = stepsInEffect(&s, func(*eviction.Pod) bool { return true })
	for _, o := range p.outside {
		if o.Outside != nil {
			status.Outside = append(status.Outside, *o.Outside)
		}
	}
	for _, e := range p.evictions {
		status.Evictions = append(status.Evictions, e.Eviction)
	}
	if p.cfg.DryRun {
		status.DryRun = true
		status.WouldBe = &nodestatus.WouldBe{Conditions: status.Conditions, Taints: status.Taints, Evictions: p.candidates.all()}
		status.Conditions, status.Taints = nil, nil
	}
	return status, nil
}

func (p *Publisher) unprotected() string {
	if p.cfg.Unprotected == nil {
		return ""
	}
	return p.cfg.Unprotected()
}

// measured adds the memory of running containers.
func measured(r *nodestatus.Runtime, candidates []eviction.Candidate) {
	usage := map[string]stats.Amount{} // by uid/name
	for i := range candidates {
		c := &candidates[i]
		if c.Usage == nil {
			continue
		}
		for j := range c.Usage.Containers {
			usage[string(c.Pod.UID)+"/"+c.Pod.Containers[j].Name] = c.Usage.Containers[j].Memory
		}
	}
	for i := range r.Pods {
		for j := range r.Pods[i].Containers {
			c := &r.Pods[i].Containers[j]
			if memory, known := usage[string(r.Pods[i].UID)+"/"+c.Name].Get(); known && c.State == inventory.ContainerRunning {
				c.Memory = eviction.MemoryAvailable.Quantity(memory)
			}
		}
	}
}

// memory is the available memory of one reading by each model; reclaimAware with all
// cache cold.
func memory(n *stats.Node) map[string]string {
	models := map[string]string{}
	for _, name := range stats.MemoryModels() {
		model, _ := stats.ParseMemoryModel(name)
		if available, known := n.Memory.Available(model, true).Get(); known {
			models[name] = eviction.MemoryAvailable.Quantity(available)
		}
	}
	return models
}

func stalls(n *stats.Node) map[string]nodestatus.Stall {
	all := map[string]nodestatus.Stall{}
	for resource, s := range map[string]stats.Stall{"memory": n.MemoryStall, "io": n.IOStall, "cpu": n.CPUStall} {
		if s.Known {
			all[resource] = nodestatus.Stall{Some: s.Some.Seconds(), Full: s.Full.Seconds()}
		}
	}
	return all
}

// signals are the signals that were measured or have a threshold.
func (p *Publisher) signals(s *control.Snapshot) []nodestatus.SignalStatus {
	var all []nodestatus.SignalStatus
	for _, signal := range eviction.Signals() {
		o := s.Observations[signal]
		status := nodestatus.SignalStatus{Name: signal.String(), Source: string(p.last.Source), Unmeasured: p.cfg.unmeasured(s.Eviction, signal, o)}
		if available, known := o.Available.Get(); known {
			status.Available = signal.Quantity(available)
			status.Age = metav1.Duration{Duration: s.At.Sub(o.Time)}
		}
		if capacity, known := o.Capacity.Get(); known && signal != eviction.MemoryStall {
			status.Capacity = signal.Quantity(capacity)
		}
		for i := range s.Eviction.Thresholds {
			t := &s.Eviction.Thresholds[i]
			if t.Signal != signal {
				continue
			}
			threshold := nodestatus.ThresholdStatus{Kind: t.Kind(), Quantity: t.FormatValue(), Met: !s.State.Thresholds[i].FirstObserved.IsZero()}
			if required, known := t.Value.Of(o); known {
				threshold.Quantity = signal.Quantity(required)
			}
			status.Thresholds = append(status.Thresholds, threshold)
			status.SecondsToThreshold = nearer(status.SecondsToThreshold, s.Until[i])
		}
		if o.Available.IsKnown() || len(status.Thresholds) > 0 {
			all = append(all, status)
		}
	}
	return all
}

// nearer returns the shorter of two times to a threshold that is not crossed yet.
func nearer(seconds *float64, until time.Duration) *float64 {
	if until <= 0 {
		return seconds
	}
	s := math.Round(until.Seconds()*10) / 10
	if seconds == nil || s < *seconds {
		return &s
	}
	return seconds
}

// ranked are the measured signals with a threshold.
func ranked(s *control.Snapshot) []eviction.Signal {
	var all []eviction.Signal
	for _, signal := range eviction.Signals() {
		for i := range s.Eviction.Thresholds {
			if s.Eviction.Thresholds[i].Signal == signal && s.Observations[signal].Available.IsKnown() {
				all = append(all, signal)
				break
			}
		}
	}
	return all
}

func ranking(s *control.Snapshot, signal eviction.Signal) []nodestatus.Ranked {
	return nodestatus.RankedPods(signal, eviction.Rank(s.Eviction, signal, s.Candidates, nil))
}
