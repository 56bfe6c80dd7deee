package eviction

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/evictd/evictd/stats"
)

const (
	// outsideInterval is the least time between victims of a shortage that is not the
	// pods' (kubelet: housekeeping interval).
	outsideInterval = 10 * time.Second
	// freeingBegins is how long after SIGKILL the memory of a victim may take to become
	// less. A process that waits for a device in the kernel cannot be killed before.
	freeingBegins = 200 * time.Millisecond
)

// Relief is what a victim was chosen by. The next pass compares it with what there is
// then. Amounts are in the signal's unit.
type Relief struct {
	// Signal and Since of the last victim; Since is zero before the first.
	Signal Signal
	Since  time.Time
	// Available when it was chosen, Held is what all pods held that may be evicted, and
	// Victim what it held.
	Available, Held, Victim int64
	// Outside says that the shortage was not that of the pods that may be evicted, when a
	// victim was last looked for: together they do not hold what is missing, none uses more
	// than its request, what they gave back is not available, or pods that may not be
	// evicted grow faster.
	Outside bool
	// Group says that the victim was a cgroup outside of the pods.
	Group bool
}

// VictimUsage is the memory of a victim after its SIGKILL, bytes.
type VictimUsage struct {
	UID    types.UID
	Memory int64
}

// held is what the pods of a ranking hold that may be evicted, those in flight among
// them.
func held(ranking []Ranked) (sum int64) {
	for i := range ranking {
		if r := &ranking[i]; r.Exempt() == "" {
			sum += r.WouldFree.Or(0)
		}
	}
	return sum
}

// exemptGrow says whether the pods that may not be evicted and use more than they request, and the cgroups outside
// of the pods, grow faster together than the others.
func exemptGrow(ranking []Ranked) bool {
	var exempt, others int64
	for i := range ranking {
		switch r := &ranking[i]; {
		case r.Pod.Protection == "" && !r.Pod.Outside:
			others += max(0, r.Growth)
		case r.Exceeds:
			exempt += max(0, r.Growth)
		}
	}
	return exempt > others
}

// follows says whether a victim may follow the last one now. Where the shortage is not that
// of the pods that may be evicted, it may after outsideInterval.
func (st *State) follows(cfg *Config, in *Input, t *Met, ranking []Ranked, victim *Ranked, missing, held int64) bool {
	if !cfg.MeasuresRelief || t.Signal == MemoryStall {
		return true
	}
	r := &st.Relief[t.Signal.Condition()]
	rest := r.Since.Add(outsideInterval).Sub(in.Now)
	gave, rise := r.Held-held, in.Signals[t.Signal].Available.Or(0)-r.Available
	// What the pods hold together became less by about what the last victim held, and
	// half of that is not available. An old comparison says nothing.
	useless := rest > -outsideInterval && r.Signal == t.Signal && r.Victim > 0 && gave >= r.Victim/2 && rise < gave/2
	within := !victim.Exceeds && victim.Signal.Requestable()
	grows := t.Signal.Condition() == MemoryPressure && exemptGrow(ranking)
	r.Outside = useless || missing > held || within || grows
	if !r.Outside || rest <= 0 {
		return true
	}
	left, falls := in.Signals[t.Signal].UsedUpIn.Get()
	return within && !useless && !grows && missing <= held && falls && time.Duration(left) < rest
}

// outsideFirst is the place in the ranking of the cgroup outside of the pods to evict; negative for none. The pods are
// not the cause of a shortage of the node's memory, or there is none that may be evicted. It ranks before all pods, or
// none of them follows the last victim yet. It follows a pod at once, and another cgroup after outsideInterval.
func (st *State) outsideFirst(in *Input, t *Met, ranking []Ranked, pods, follows bool) int {
	r := &st.Relief[MemoryPressure]
	if t.Signal != MemoryAvailable || !t.Hard() || pods && !r.Outside || r.Group && in.Now.Sub(r.Since) < outsideInterval {
		return -1
	}
	for i := range ranking {
		g := &ranking[i]
		g.Outside = g.Pod.Outside && g.Exceeds
	}
	for i := st.nextEligible(ranking, 0); i >= 0; i = st.nextEligible(ranking, i+1) {
		switch {
		case ranking[i].Pod.Outside:
			return i
		case follows:
			return -1
		}
	}
	return -1
}

// chose records what a victim was chosen by, and what its end frees.
func (st *State) chose(cfg *Config, in *Input, e *Eviction, frees, held int64) {
	if !cfg.MeasuresRelief || e.Signal == MemoryStall {
		return
	}
	r := &st.Relief[e.Signal.Condition()]
	*r = Relief{Signal: e.Signal, Since: in.Now, Available: in.Signals[e.Signal].Available.Or(0), Held: held, Victim: frees, Outside: r.Outside, Group: e.Pod.Outside}
}

// watchVictims finds the victims that SIGKILL does not end: see freeingBegins. Others
// are chosen beside them where their signal still falls or is nearly used up.
func (st *State) watchVictims(cfg *Config, in *Input) {
	copied := false
	for _, u := range in.VictimUsage {
		at := st.indexInFlight(u.UID)
		if at < 0 {
			continue
		}
		f := st.InFlight[at]
		first, known := f.MemoryAtKill.Get()
		switch {
		case !known:
			f.MemoryAtKill, f.Killed = stats.Known(u.Memory), in.Now
		case !f.Stuck && in.Now.Sub(f.Killed) >= freeingBegins && u.Memory > first-first/10 && cfg.urgent(&in.Signals, f.Signal):
			f.Stuck = true
		default:
			continue
		}
		if !copied {
			st.InFlight, copied = in.Buffers.forInFlight(st.InFlight), true
		}
		st.InFlight[at] = f
	}
}

// urgent says whether a signal falls, or a quarter of what its hard threshold requires is
// left.
func (c *Config) urgent(signals *Observations, s Signal) bool {
	o := signals[s]
	available, measured := o.Available.Get()
	for i := range c.Thresholds {
		t := &c.Thresholds[i]
		if required, known := t.Value.Of(o); t.Signal == s && t.Hard() && measured && known && available < required/4 {
			return true
		}
	}
	return o.UsedUpIn.IsKnown()
}
