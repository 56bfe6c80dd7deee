package eviction_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/evictd/evictd/eviction"
	"github.com/evictd/evictd/stats"
)

// The references implement the rules of the core after the steps of the kubelet's eviction
// manager, with maps and lists that are built each time.

// reference is the kubelet's state between two passes.
type reference struct {
	firstObserved map[string]time.Time             // by threshold
	lastObserved  map[eviction.Condition]time.Time // by condition
	acting        []eviction.Threshold             // in the last pass
	taken         map[eviction.Signal]time.Time    // times of the last observations
}

// identity is what makes a threshold the same one from pass to pass.
func identity(t eviction.Threshold) string {
	return fmt.Sprint(t.Signal, t.Grace, t.Value)
}

func resolved(v eviction.Value, o eviction.Observation) int64 {
	if v.Fraction == 0 {
		return v.Amount
	}
	return int64(float64(v.Fraction) * float64(o.Capacity.Or(0)))
}

func unmet(thresholds []eviction.Threshold, in eviction.Observations, withReclaim bool) (all []eviction.Threshold) {
	for _, t := range thresholds {
		o := in[t.Signal]
		if !o.Available.IsKnown() || t.Value.Fraction != 0 && !o.Capacity.IsKnown() {
			continue
		}
		required := resolved(t.Value, o)
		if withReclaim {
			required += resolved(t.MinReclaim, o)
		}
		contended := t.Signal != eviction.MemoryStall || o.ReadBack.Or(0) >= 1048576 && o.Some.Or(0) >= int64(t.Some)
		if required > o.Available.Or(0) && contended {
			all = append(all, t)
		}
	}
	return all
}

// pass returns the thresholds that act and the conditions that are reported.
func (tw *reference) pass(cfg eviction.Config, now time.Time, in eviction.Observations) (acting []string, reported map[eviction.Condition]bool) {
	met := unmet(cfg.Thresholds, in, false)
	for _, t := range unmet(tw.acting, in, true) {
		if !slices.Contains(met, t) {
			met = append(met, t)
		}
	}
	first := map[string]time.Time{}
	for _, t := range met {
		first[identity(t)] = now
		if old, known := tw.firstObserved[identity(t)]; known {
			first[identity(t)] = old
		}
	}
	for _, t := range met {
		tw.lastObserved[t.Signal.Condition()] = now
	}
	reported = map[eviction.Condition]bool{}
	for c, last := range tw.lastObserved {
		reported[c] = now.Sub(last) < cfg.PressureTransitionPeriod
	}
	tw.firstObserved, tw.acting = first, nil
	for _, t := range met {
		if now.Sub(first[identity(t)]) >= t.Grace {
			tw.acting = append(tw.acting, t)
		}
	}
	for _, t := range tw.acting {
		last, seen := tw.taken[t.Signal]
		taken := in[t.Signal].Time
		if taken.IsZero() || !seen || last.IsZero() || taken.After(last) {
			acting = append(acting, fmt.Sprint(t))
		}
	}
	tw.taken = map[eviction.Signal]time.Time{}
	for s, o := range in {
		if o.Available.IsKnown() {
			tw.taken[eviction.Signal(s)] = o.Time
		}
	}
	return acting, reported
}

// rule: 3.7
// rule: 3.8
// rule: 3.9
// rule: 3.10
// rule: 3.11
// rule: 3.12
// rule: 3.13
// rule: 3.26
func TestThresholdsAreThoseOfTheReference(t *testing.T) {
	acted := 0
	everywhere(t, func(t *testing.T, r *rand.Rand) {
		cfg := anyConfig(r)
		// Of two thresholds that are the same to the kubelet one is enough.
		slices.SortStableFunc(cfg.Thresholds, func(a, b eviction.Threshold) int { return int(a.Signal) - int(b.Signal) })
		cfg.Thresholds = slices.CompactFunc(cfg.Thresholds, func(a, b eviction.Threshold) bool { return identity(a) == identity(b) })
		eviction.Order(cfg.Thresholds)
		tw := reference{firstObserved: map[string]time.Time{}, lastObserved: map[eviction.Condition]time.Time{}, taken: map[eviction.Signal]time.Time{}}
		var st eviction.State
		now := start
		for range 15 {
			now = now.Add(time.Duration(r.IntN(20)) * time.Second)
			in := eviction.Input{Now: now, Signals: anySignals(r, now)}
			var d eviction.Decision
			st, d = eviction.Decide(&cfg, st, in)
			d.Explain()
			want, reported := tw.pass(cfg, now, in.Signals)
			var got []string
			for _, m := range d.Met {
				got = append(got, fmt.Sprint(*m.Threshold))
			}
			slices.Sort(got)
			slices.Sort(want)
			if !slices.Equal(got, want) {
				t.Errorf("at %v act\n%v\nreference\n%v", now, got, want)
			}
			acted += len(got)
			for c, p := range st.Pressure {
				if p.Reported != reported[eviction.Condition(c)] {
					t.Errorf("at %v %v is reported %t, reference %t", now, eviction.Condition(c), p.Reported, reported[eviction.Condition(c)])
				}
			}
		}
	})
	if acted < rounds {
		t.Errorf("only %d thresholds ever acted", acted)
	}
}

// held is what a pod holds of a signal's resource, spelled out by layout.
func held(c eviction.Candidate, s eviction.Signal, l eviction.Layout) int64 {
	if s == eviction.MemoryAvailable || s == eviction.AllocatableMemoryAvailable || s == eviction.MemoryStall {
		return c.Usage.Memory.Or(0)
	}
	if s == eviction.SwapAvailable {
		return c.Usage.Memory.Or(0) + c.Usage.Swap.Or(0)
	}
	if s == eviction.PIDAvailable {
		return c.Usage.Processes.Or(0)
	}
	inodes := s == eviction.NodeFsInodesFree || s == eviction.ImageFsInodesFree || s == eviction.ContainerFsInodesFree
	pick := func(bytes, count stats.Amount) int64 {
		if inodes {
			return count.Or(0)
		}
		return bytes.Or(0)
	}
	var rootfs, logs, volumes int64
	for _, used := range c.Usage.Containers {
		rootfs += pick(used.Rootfs, used.RootfsInodes)
		logs += pick(used.Logs, used.LogsInodes)
	}
	for i, used := range c.Usage.Volumes {
		if i < len(c.Pod.Volumes) && c.Pod.Volumes[i].Local {
			volumes += pick(used.Used, used.Inodes)
		}
	}
	onNodeFs := s == eviction.NodeFsAvailable || s == eviction.NodeFsInodesFree
	onImageFs := s == eviction.ImageFsAvailable || s == eviction.ImageFsInodesFree
	switch {
	case l == eviction.ImageFs && onNodeFs:
		return logs + volumes
	case l == eviction.ImageFs:
		return rootfs
	case l == eviction.SplitFs && onImageFs:
		return 0
	default:
		return rootfs + logs + volumes
	}
}

// evictedBefore is the kubelet's order with what evictd mends in it.
func evictedBefore(a, b eviction.Candidate, s eviction.Signal, l eviction.Layout, readBack, wait int64) bool {
	measured := func(c eviction.Candidate) bool {
		return c.Usage != nil && (s != eviction.SwapAvailable || c.Usage.Swap.IsKnown())
	}
	if measured(a) != measured(b) {
		return measured(a)
	}
	causes := func(c eviction.Candidate) bool {
		waits, known := c.Stalled.Get()
		return s == eviction.MemoryStall && c.Usage != nil && c.ReadBack > 0 && 2*c.ReadBack >= readBack && (!known || waits >= 1000 || waits >= 100 && 2*waits >= wait)
	}
	if causes(a) != causes(b) {
		return causes(a)
	}
	var usageA, usageB int64
	if measured(a) && measured(b) {
		usageA, usageB = held(a, s, l), held(b, s, l)
	}
	var requestA, requestB int64
	switch s {
	case eviction.MemoryAvailable, eviction.AllocatableMemoryAvailable, eviction.SwapAvailable, eviction.MemoryStall:
		requestA, requestB = a.Pod.MemoryRequest, b.Pod.MemoryRequest
	case eviction.NodeFsAvailable, eviction.ImageFsAvailable, eviction.ContainerFsAvailable:
		requestA, requestB = a.Pod.StorageRequest, b.Pod.StorageRequest
	}
	exceedsA, exceedsB := measured(a) && usageA > requestA, measured(b) && usageB > requestB
	if s != eviction.PIDAvailable && exceedsA != exceedsB {
		return exceedsA
	}
	if a.Pod.Priority != b.Pod.Priority {
		return a.Pod.Priority < b.Pod.Priority
	}
	if causes(a) && a.ReadBack != b.ReadBack {
		return a.ReadBack > b.ReadBack
	}
	if overA, overB := usageA-requestA, usageB-requestB; measured(a) && overA != overB {
		return overA > overB
	}
	return a.Pod.UID < b.Pod.UID
}

// rule: 4.1
// rule: 4.2
// rule: 4.3
// rule: 4.4
// rule: 4.5
// rule: 4.6
// rule: 4.7
// rule: 4.8
// rule: 4.9
// rule: 4.10
// rule: 4.12
// rule: 4.19
// rule: 4.20
// rule: 4.21
// rule: 4.22
// rule: 4.23
// rule: M.4
// rule: M.5
// rule: M.9
// rule: M.158
func TestRankingIsThatOfTheReference(t *testing.T) {
	everywhere(t, func(t *testing.T, r *rand.Rand) {
		candidates := anyCandidates(r, 12)
		var readBack, wait int64
		for _, c := range candidates {
			readBack, wait = max(readBack, c.ReadBack), max(wait, c.Stalled.Or(0))
		}
		for _, s := range eviction.Signals() {
			for _, l := range []eviction.Layout{eviction.SharedFs, eviction.ImageFs, eviction.SplitFs} {
				var left []eviction.Candidate
				for _, c := range candidates {
					if !c.Pod.Terminal {
						left = append(left, c)
					}
				}
				for place, ranked := range eviction.Rank(&eviction.Config{Layout: l}, s, candidates, nil) {
					first := 0
					for i := range left {
						if evictedBefore(left[i], left[first], s, l, readBack, wait) {
							first = i
						}
					}
					if left[first].Pod != ranked.Pod {
						t.Fatalf("%v, %v: place %d has %v, with the reference %v", s, l, place, ranked.Pod, left[first].Pod)
					}
					left = slices.Delete(left, first, first+1)
				}
				if len(left) > 0 {
					t.Fatalf("%v, %v: %d pods are not ranked", s, l, len(left))
				}
			}
		}
	})
}
