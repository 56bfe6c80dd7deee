package eviction

import (
	"time"

	v1 "k8s.io/api/core/v1"
)

// missing is what the signal lacks of the threshold and its minimum reclaim. Memory and process ids that ending pods
// still hold are expected to be free soon, whatever the pods are ended for; disk space is not.
func (st *State) missing(cfg *Config, in *Input, t *Threshold) (amount int64, known bool) {
	o := in.Signals[t.Signal]
	available, measured := o.Available.Get()
	required, resolved := t.Value.Of(o)
	if !measured || !resolved {
		return 0, false
	}
	if t.Signal == MemoryStall { // no amount of memory is known to end it
		return 0, false
	}
	more, _ := t.MinReclaim.Of(o)
	missing := required - (available - more) // required + more could overflow
	if t.Signal.Condition() == DiskPressure || missing <= 0 {
		return max(1, missing), true
	}
	for i := range in.Candidates {
		c := &in.Candidates[i]
		if c.measured(t.Signal) && st.ending(c.Pod, in.Now) {
			missing -= st.frees(c, t.Signal, cfg.Layout)
		}
	}
	return missing, true
}

// frees is what the end of a victim in flight frees, in the signal's unit. A container that is restarted frees its
// memory, and nothing that is known of other resources.
func (st *State) frees(c *Candidate, s Signal, l Layout) int64 {
	if f := st.Victim(c.Pod.UID); f != nil && f.Container != "" {
		if s.Resource() != v1.ResourceMemory {
			return 0
		}
		return c.ContainerMemory(f.Container).Or(0)
	}
	return c.frees(s, l)
}

// ending says whether the pod is expected to end soon: it was sent SIGKILL, or it has a second of grace because it was not
// admitted or is over a limit of its own. A pod that is stuck or overdue is not.
func (st *State) ending(p *Pod, now time.Time) bool {
	at := st.indexInFlight(p.UID)
	if at < 0 {
		return false
	}
	f := &st.InFlight[at]
	return (now.Sub(f.Since) >= f.Grace || int(f.Signal) >= NumSignals) && !f.Stuck && !f.Overdue(now)
}

// atMost is the most that the pod's end may free. Threads use process ids, too.
func (r *Ranked) atMost() (amount int64, measured bool) {
	amount, measured = r.WouldFree.Get()
	if r.Signal.Condition() == PIDPressure && measured {
		amount = max(amount, r.Candidate.Usage.Threads.Or(0))
	}
	return amount, measured
}

// unknownPatience is how long pods within their request are spared because of
// unknown pods: after a restart of what lists the pods they are known within a
// moment; others may stay unknown permanently.
const unknownPatience = 2 * time.Second

// holdsBack says whether a victim within its request is spared for now, because an
// unknown pod may use the rest.
func (st *State) holdsBack(in *Input, r *Ranked) bool {
	if in.UnknownPods != Yes {
		st.UnknownSince = time.Time{}
	}
	if in.UnknownPods != Yes || r.Exceeds {
		return false
	}
	if st.UnknownSince.IsZero() {
		st.UnknownSince = in.Now
	}
	return in.Now.Sub(st.UnknownSince) < unknownPatience
}
