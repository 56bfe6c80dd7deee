package publish

import (
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/evictd/evictd/eviction"
	"github.com/evictd/evictd/eviction/control"
	"github.com/evictd/evictd/nodestatus"
)

// Explain takes a snapshot and writes the document of /v1/explain: about all pods, or
// about one by its namespace/name, name or uid. found is false where no pod matches.
func (p *Publisher) Explain(ctx context.Context, pod string) (e nodestatus.Explanation, found bool, err error) {
	s, err := p.snapshots.Snapshot(ctx)
	if err != nil {
		return nodestatus.Explanation{}, false, err
	}
	e = nodestatus.Explanation{Node: p.cfg.Node, Time: nodestatus.Time{Time: s.At}, DryRun: s.Eviction.DryRun, Unprotected: p.unprotected(), Signals: []nodestatus.SignalForecast{}, Limits: []nodestatus.PodLimit{}}
	selected := func(c *eviction.Pod) bool {
		return pod == "" || pod == c.String() || pod == c.Name || pod == string(c.UID)
	}
	names := map[types.UID]string{}
	uids := map[types.UID]bool{}
	for i := range s.Candidates {
		c := s.Candidates[i].Pod
		names[c.UID], uids[c.UID] = c.String(), selected(c)
		found = found || selected(c)
	}
	name := func(uid types.UID) string {
		if name := names[uid]; name != "" {
			return name
		}
		return string(uid)
	}
	for _, signal := range ranked(&s) {
		f, ok := predict(&s, signal)
		if !ok {
			continue
		}
		row := nodestatus.NewSignalForecast(&f, name)
		row.OneByOne = !s.Eviction.EnoughVictims
		row.Order = slices.DeleteFunc(row.Order, func(p nodestatus.ExplainedPod) bool { return !uids[p.UID] })
		e.Signals = append(e.Signals, row)
	}
	e.Steps = stepsInEffect(&s, selected)
	if pod != "" {
		e.Prospects = prospects(&s, selected)
	}
	if s.Eviction.LocalStorageCapacityIsolation {
		e.Limits = append(e.Limits, limits(&s, selected)...)
	}
	return e, found || pod == "", nil
}

// predict computes the forecast for the met threshold of a signal, hard before soft,
// else for the next one.
func predict(s *control.Snapshot, signal eviction.Signal) (nearest eviction.Prediction, ok bool) {
	in := eviction.Input{Now: s.At, Signals: s.Observations, Candidates: s.Candidates}
	for i := range s.Eviction.Thresholds {
		if s.Eviction.Thresholds[i].Signal != signal {
			continue
		}
		f, possible := eviction.Predict(s.Eviction, s.State, in, i)
		switch {
		case !possible:
		case !ok, nearest.Assumed && f.Required > nearest.Required:
			nearest, ok = f, true
		}
	}
	return nearest, ok
}

func limits(s *control.Snapshot, selected func(*eviction.Pod) bool) (all []nodestatus.PodLimit) {
	for _, c := range s.Candidates {
		if !selected(c.Pod) {
			continue
		}
		for l := range eviction.Limits(c, s.Eviction.Layout) {
			all = append(all, nodestatus.PodLimit{
				Pod: c.Pod.String(), Signal: l.Signal.String(), Of: l.Of, Held: l.Signal.Quantity(l.Held), Limit: l.Limit.String(), Over: l.Over(),
			})
		}
	}
	return all
}
