package publish

import (
	"context"
	"slices"
	"strings"

	"github.com/evictd/evictd/eviction"
)

// Summary describes the nearest threshold of the last pass, its next victim, and the
// signals with a threshold that the pass could not measure, in one line.
func (p *Publisher) Summary(ctx context.Context) (string, error) {
	s, err := p.snapshots.Recent(ctx)
	if err != nil {
		return "", err
	}
	line := "no threshold is measured"
	if near := nearest(s.Eviction, &s.Observations, func(*eviction.Threshold) bool { return true }); near != nil {
		victim := "none"
		order := eviction.Rank(s.Eviction, near.Signal, s.Candidates, nil)
		if i := slices.IndexFunc(order, func(r eviction.Ranked) bool { return r.Exempt() == "" }); i >= 0 {
			victim = order[i].Pod.String()
		}
		line = describe(near, &s.Observations) + "; next victim: " + victim
	}
	if missing := unmeasured(s.Eviction, &s.Observations); len(missing) > 0 {
		line += "; not measured: " + strings.Join(missing, ", ")
	}
	if p.cfg.API != nil && !p.cfg.API().Connected {
		line += "; the API server does not answer"
	}
	return line, nil
}

// unmeasured are the signals with a threshold that cannot be compared with it, sorted.
func unmeasured(cfg *eviction.Config, o *eviction.Observations) (signals []string) {
	for i := range cfg.Thresholds {
		t := &cfg.Thresholds[i]
		_, required := t.Value.Of(o[t.Signal])
		if !required || !o[t.Signal].Available.IsKnown() {
			signals = append(signals, t.Signal.String())
		}
	}
	slices.Sort(signals)
	return slices.Compact(signals)
}

// nearest is the threshold with the lowest ratio of available to required, among those
// for which counts is true; nil where none was measured.
func nearest(cfg *eviction.Config, o *eviction.Observations, counts func(*eviction.Threshold) bool) *eviction.Threshold {
	var near *eviction.Threshold
	var least float64
	for i := range cfg.Thresholds {
		t := &cfg.Thresholds[i]
		available, measured := o[t.Signal].Available.Get()
		required, known := t.Value.Of(o[t.Signal])
		if !counts(t) || !measured || !known || required == 0 {
			continue
		}
		if ratio := float64(available) / float64(required); near == nil || ratio < least {
			near, least = t, ratio
		}
	}
	return near
}

// describe describes a measured threshold, with both amounts in the unit of the smaller.
func describe(t *eviction.Threshold, o *eviction.Observations) string {
	available, _ := o[t.Signal].Available.Get()
	required, _ := t.Value.Of(o[t.Signal])
	smaller := min(available, required)
	if smaller <= 0 {
		smaller = required
	}
	return t.Signal.String() + " is " + t.Signal.RoundedAs(smaller, available) + ", " + t.Kind() + " threshold " + t.Signal.RoundedAs(smaller, required)
}
