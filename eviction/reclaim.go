package eviction

import (
	"fmt"
	"slices"
	"time"
)

const (
	// reclaimPatience is how long a disk waits for a reclaim in which it gains
	// nothing, before a pod is evicted.
	reclaimPatience = 30 * time.Second
	// reclaimHaste is how long it waits while it falls to half of what it had.
	reclaimHaste = 5 * time.Second
	// reclaimRest is how long none begins after one that the disk gained something
	// by, and reclaimLongRest after one that it gained nothing by: meanwhile pods are
	// evicted.
	reclaimRest     = 10 * time.Second
	reclaimLongRest = time.Minute
)

// Need is what a disk lacks, bytes and inodes, and which parts of a dead
// container lie on it.
type Need struct {
	Bytes, Inodes int64
	Layers, Logs  bool
}

// ReclaimOutcome is what has become of a signal's reclaim: it runs on, or it has
// ended.
type ReclaimOutcome struct {
	For   Signal
	Ended bool
}

// Reclaim is the state of the node's own reclaim of a disk.
type Reclaim struct {
	// Since is when the running reclaim began, for the signal For; zero while
	// none runs.
	Since time.Time
	For   Signal
	// From is what was available then; Best what was at most since, and Gained
	// when.
	From, Best int64
	Gained     time.Time
	// Rest is when the next one may begin.
	Rest time.Time
}

// Need is what the disk of a signal lacks for its thresholds to be resolved,
// minimum reclaim added, grace ignored.
func (c *Config) Need(observed *Observations, s Signal) Need {
	at := c.Layout.placement(s)
	need := Need{Layers: at.holds&writableLayers != 0, Logs: at.holds&logs != 0}
	for i := range c.Thresholds {
		t := &c.Thresholds[i]
		if t.Signal.Condition() != DiskPressure || c.Layout.placement(t.Signal).disk != at.disk {
			continue
		}
		lacks := &need.Bytes
		if t.Signal.Resource() == ResourceInodes {
			lacks = &need.Inodes
		}
		*lacks = max(*lacks, t.lacks(observed[t.Signal]))
	}
	return need
}

// ReclaimSteps are what the node can free on the disk of a signal without ending a pod, in the order in which it is
// tried.
func (c *Config) ReclaimSteps(s Signal) []ReclaimStep { return c.Layout.placement(s).reclaim }

// lacks is how far the observation is below the threshold and its minimum
// reclaim; zero where it does not cross them.
func (t *Threshold) lacks(o Observation) int64 {
	if !t.crossed(o, true) {
		return 0
	}
	required, _ := t.Value.Of(o)
	more, _ := t.MinReclaim.Of(o)
	return required - o.Available.Or(0) + more
}

// reclaims says whether a threshold that acts is answered by what the node frees
// by itself: it is asked to by the decision, or the disk still waits, or what was
// freed suffices.
func (st *State) reclaims(cfg *Config, in *Input, t *Threshold, d *Decision) bool {
	at := cfg.Layout.placement(t.Signal)
	r := &st.Reclaims[at.disk]
	switch {
	case len(at.reclaim) == 0:
		return false
	case !r.Since.IsZero():
		return r.patient(in)
	case st.pass.reclaims[at.disk]:
		return !short(cfg, in, t.Signal)
	case in.Now.Before(r.Rest):
		return false
	}
	st.pass.reclaims[at.disk] = true
	d.Reclaim, d.ReclaimFor, d.ReclaimNeed = at.reclaim, t.Signal, cfg.Need(&in.Signals, t.Signal)
	return true
}

// short says whether the signal's resource is still short after a reclaim:
// whether any threshold of that resource, grace ignored, is below its quantity
// plus its minimum reclaim. Unlike the kubelet, other resources do not count.
func short(cfg *Config, in *Input, s Signal) bool {
	want := cfg.Layout.shortage(s)
	return slices.ContainsFunc(cfg.Thresholds, func(t Threshold) bool {
		return cfg.Layout.shortage(t.Signal) == want && t.crossed(in.Signals[t.Signal], true)
	})
}

// patient says whether a disk may wait for its reclaim: while it gains by it,
// and does not lose faster.
func (r *Reclaim) patient(in *Input) bool {
	left, measured := in.Signals[r.For].Available.Get()
	losing := measured && left < r.Best/2 && in.Now.Sub(r.Since) >= reclaimHaste
	return in.Now.Sub(r.Gained) < reclaimPatience && !losing
}

// settleReclaims applies what has become of reclaims, and what they have freed. When
// one begins it asks for a scan: should it not suffice, disk usage is young enough.
func (st *State) settleReclaims(cfg *Config, in *Input, d *Decision) {
	for _, o := range in.Reclaims {
		r := &st.Reclaims[cfg.Layout.placement(o.For).disk]
		available := in.Signals[o.For].Available.Or(0)
		switch {
		case !o.Ended:
			st.askScan(in, in.Now, d)
			*r = Reclaim{Since: in.Now, For: o.For, From: available, Best: available, Gained: in.Now}
		case !r.Since.IsZero() && !short(cfg, in, o.For): // it has sufficed: the next crossing may ask again
			*r = Reclaim{}
		case !r.Since.IsZero():
			rest := reclaimRest
			if available <= r.From {
				rest = reclaimLongRest
			}
			*r = Reclaim{Rest: in.Now.Add(rest)}
		}
	}
	for d := range st.Reclaims {
		r := &st.Reclaims[d]
		if left := in.Signals[r.For].Available.Or(0); !r.Since.IsZero() && left > r.Best {
			r.Best, r.Gained = left, in.Now
		}
	}
}

// unreclaimed says of a victim that it is evicted although its disk's reclaim runs.
func (st *State) unreclaimed(l Layout, in *Input, s Signal) string {
	r := &st.Reclaims[l.placement(s).disk]
	if s.Condition() != DiskPressure || r.Since.IsZero() {
		return ""
	}
	return fmt.Sprintf("; the node's own reclaim has not ended in %v", in.Now.Sub(r.Since).Round(time.Millisecond))
}
