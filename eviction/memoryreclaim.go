package eviction

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

const (
	// reclaimRound is the time that the budget of a MemoryReclaims is for.
	reclaimRound = 10 * time.Second
	// leastReclaim is the least that is reclaimed at once, bytes.
	leastReclaim = 1 << 20
	// refaultShare of what was reclaimed, read again at once, says that the pod needs it, and so does
	// a wait for memory of stallShare of the time.
	refaultShare, stallShare = 8, 20
	// reclaimStop is for how long nothing is reclaimed from a pod that needs what was.
	reclaimStop = time.Minute
)

// MemoryReclaims says how much memory of pods is reclaimed in a round of reclaimRound, while a soft threshold of
// memory is met. The zero value reclaims none.
type MemoryReclaims struct {
	// Budget bounds a round and Step one attempt, bytes, and Attempts their number.
	Budget, Step int64
	Attempts     int
}

// PodMemory is the memory of a pod, bytes, and how it changed within the time Over that ended with the
// reading.
type PodMemory struct {
	UID types.UID
	// PageCache is the part of its memory that the kernel can read again from files.
	WorkingSet, PageCache int64
	Over                  time.Duration
	// Refaulted is what was read again after it had been reclaimed, and Stalled for how long a process
	// of the pod waited for memory.
	Refaulted int64
	Stalled   time.Duration
}

// ReclaimRound is the state of the reclaim of pods' memory.
type ReclaimRound struct {
	// Began is when the round began; zero before the first.
	Began time.Time
	// Asked is when the running attempt, or measurement, was asked for, for Pod; zero while none runs.
	Asked time.Time
	Pod   types.UID
	// Attempts and Bytes of the round so far.
	Attempts int
	Bytes    int64
	// Pods that memory may be reclaimed from, the next first, and what was reclaimed from that.
	Pods []PodMemory
	Of   int64
	// Stopped are pods that need what was reclaimed.
	Stopped []StoppedReclaim
}

// StoppedReclaim is a pod that nothing is reclaimed from until Until.
type StoppedReclaim struct {
	UID   types.UID
	Until time.Time
}

func (r *ReclaimRound) equal(other *ReclaimRound) bool {
	return r.Began.Equal(other.Began) && r.Asked.Equal(other.Asked) && r.Pod == other.Pod && r.Attempts == other.Attempts && r.Bytes == other.Bytes &&
		r.Of == other.Of && slices.Equal(r.Pods, other.Pods) && slices.Equal(r.Stopped, other.Stopped)
}

// reclaimMemory asks for the next attempt to reclaim memory of a pod. It is called by the call that opens a pass,
// after the thresholds were evaluated, and decides nothing about an eviction: a soft threshold acts after its
// grace period, and a hard one at once.
func (st *State) reclaimMemory(cfg *Config, in *Input, d *Decision) {
	limits, r := &cfg.MemoryReclaims, &st.Round
	if limits.Budget == 0 || cfg.DryRun {
		return
	}
	r.Stopped = without(r.Stopped, func(s StoppedReclaim) bool { return !in.Now.Before(s.Until) })
	for i := range in.StepOutcomes {
		if o := &in.StepOutcomes[i]; o.Step == ReclaimMemory {
			r.settle(o, in, d)
		}
	}
	t, why := st.shortOfMemory(cfg, in)
	switch {
	case !r.Asked.IsZero():
		return
	case t == nil && len(r.Pods) > 0 && r.Of > 0: // the round continues should it be crossed again
		r.ended(in, why, false, d)
		return
	case t == nil:
		return
	}
	if r.Began.IsZero() || in.Now.Sub(r.Began) >= reclaimRound {
		*r = ReclaimRound{Began: in.Now, Asked: in.Now, Stopped: r.Stopped}
		d.step(in, StepAction{Step: ReclaimMemory, Cause: t.cause(), Because: t.shortage(in)})
		return
	}
	for len(r.Pods) > 0 {
		left := limits.Budget - r.Bytes
		if r.Attempts >= limits.Attempts || left < leastReclaim {
			r.end(in, "the budget of "+reclaimRound.String()+" is used up", false, d)
			r.Pods = nil
			return
		}
		next := &r.Pods[0]
		pod, why := st.reclaimsFrom(in, next)
		if why != "" {
			r.end(in, why, false, d)
			continue
		}
		bytes := min(limits.Step, left, next.WorkingSet-pod.MemoryRequest, next.PageCache)
		r.Asked, r.Pod, r.Attempts = in.Now, pod.UID, r.Attempts+1
		d.step(in, StepAction{Step: ReclaimMemory, Pod: pod, Bytes: bytes, Cause: t.cause(), Because: fmt.Sprintf("%s; %s above its request, page cache %s, %s of it read again in %v",
			t.shortage(in), rounded(next.WorkingSet-pod.MemoryRequest), rounded(next.PageCache), rounded(next.Refaulted), next.Over)})
		return
	}
}

func rounded(bytes int64) string { return MemoryAvailable.Rounded(bytes) }

// shortage says what a soft threshold lacks.
func (t *Threshold) shortage(in *Input) string {
	return fmt.Sprintf("%v %s below %s (soft)", t.Signal, t.Signal.Rounded(in.Signals[t.Signal].Available.Or(0)), t.FormatValue())
}

// ofMemory says whether a signal is of memory that can be reclaimed from pods. What a node that thrashes lacks is not
// freed by that: it reads back what is reclaimed.
func (s Signal) ofMemory() bool { return s != MemoryStall && s.Resource() == v1.ResourceMemory }

// shortOfMemory is a soft threshold of memory that is crossed, or is not resolved by what was reclaimed; or why
// nothing is reclaimed.
func (st *State) shortOfMemory(cfg *Config, in *Input) (soft *Threshold, why string) {
	why = "no soft threshold of memory is crossed any more"
	for i := range cfg.Thresholds {
		t := &cfg.Thresholds[i]
		switch {
		case !t.Signal.ofMemory():
		case t.Hard():
			if st.Thresholds[i].Acting || t.crossed(in.Signals[t.Signal], false) {
				return nil, "a hard threshold is crossed"
			}
		case soft == nil && t.crossed(in.Signals[t.Signal], st.Round.Bytes > 0):
			soft = t
		}
	}
	if slices.ContainsFunc(st.InFlight, func(f InFlight) bool { return f.Signal.Condition() == MemoryPressure }) {
		return nil, "a pod is being evicted for memory"
	}
	return soft, why
}

// reclaimsFrom is the pod of a measurement, and why nothing is reclaimed from it; "" where something is.
func (st *State) reclaimsFrom(in *Input, m *PodMemory) (pod *Pod, why string) {
	for i := range in.Candidates {
		if in.Candidates[i].Pod.UID == m.UID {
			pod = in.Candidates[i].Pod
		}
	}
	switch {
	case pod == nil || pod.Terminal || st.indexInFlight(m.UID) >= 0:
		return pod, "it has ended"
	case pod.Protection != "":
		return pod, string(pod.Protection)
	case pod.Outside:
		return pod, "it is no pod"
	case pod.Estimated: // its request is not known
		return pod, "its request is not known"
	case slices.ContainsFunc(st.Round.Stopped, func(s StoppedReclaim) bool { return s.UID == m.UID }):
		return pod, "it needed what was reclaimed before"
	case m.WorkingSet-pod.MemoryRequest < leastReclaim:
		return pod, "it is not above its request"
	case m.PageCache < leastReclaim: // without swap the kernel cannot reclaim the rest, and with it each page is written and read again
		return pod, "it has no page cache"
	}
	return pod, ""
}

// end takes the first pod out of the round.
func (r *ReclaimRound) end(in *Input, because string, needed bool, d *Decision) {
	r.ended(in, because, needed, d)
	r.Pods = r.Pods[1:]
}

// ended reports what was reclaimed from the first pod.
func (r *ReclaimRound) ended(in *Input, because string, needed bool, d *Decision) {
	uid := r.Pods[0].UID
	at := slices.IndexFunc(in.Candidates, func(c Candidate) bool { return c.Pod.UID == uid })
	if at >= 0 && (r.Of > 0 || needed) {
		d.step(in, StepAction{Step: ReclaimMemory, Pod: in.Candidates[at].Pod, Over: true, Bytes: r.Of, Because: because})
	}
	r.Of = 0
}

// settle applies the result of the running attempt.
func (r *ReclaimRound) settle(o *StepOutcome, in *Input, d *Decision) {
	if r.Asked.IsZero() || o.UID != r.Pod {
		return // of before a change of the configuration
	}
	r.Asked, r.Pod = time.Time{}, ""
	if o.UID == "" {
		r.Pods = inOrder(o.Pods, in.Candidates)
		return
	}
	r.Bytes, r.Of = r.Bytes+o.Bytes, r.Of+o.Bytes
	switch before := &r.Pods[0]; {
	case len(o.Pods) == 0:
		r.end(in, "it has ended", false, d)
	default:
		now := o.Pods[0]
		refaulted, stalled := now.Refaulted-before.expected(before.Refaulted, now.Over), now.Stalled-time.Duration(before.expected(int64(before.Stalled), now.Over))
		switch {
		case refaulted > o.Bytes/refaultShare && refaulted > 0:
			r.stop(in, fmt.Sprintf("%s of %s were read again in %v", rounded(now.Refaulted), rounded(o.Bytes), now.Over), d)
		case stalled > now.Over/stallShare && stalled > 0:
			r.stop(in, fmt.Sprintf("it has waited for memory for %v of %v", now.Stalled, now.Over), d)
		case o.Less:
			r.end(in, "the kernel finds no more", false, d)
		default: // what it did before the first attempt stays what it is compared with
			now.Over, now.Refaulted, now.Stalled = before.Over, before.Refaulted, before.Stalled
			r.Pods = slices.Concat([]PodMemory{now}, r.Pods[1:])
		}
	}
}

// stop takes the first pod out of the round, and of those for reclaimStop.
func (r *ReclaimRound) stop(in *Input, because string, d *Decision) {
	r.Stopped = append(slices.Clip(r.Stopped), StoppedReclaim{r.Pods[0].UID, in.Now.Add(reclaimStop)})
	r.end(in, because, true, d)
}

// expected is how much of an amount that was measured within m.Over falls into another time.
func (m *PodMemory) expected(amount int64, over time.Duration) int64 {
	if m.Over <= 0 {
		return 0
	}
	return int64(float64(amount) * float64(over) / float64(m.Over))
}

// inOrder is the order in which memory is reclaimed from pods: BestEffort before others, those that read
// least again first, then those with the most page cache.
func inOrder(pods []PodMemory, candidates []Candidate) []PodMemory {
	burstable := map[types.UID]bool{}
	for _, c := range candidates {
		burstable[c.Pod.UID] = c.Pod.QOS != v1.PodQOSBestEffort
	}
	return slices.SortedStableFunc(slices.Values(pods), func(a, b PodMemory) int {
		return cmp.Or(compareBool(burstable[a.UID], burstable[b.UID]),
			cmp.Compare(a.expected(a.Refaulted, time.Second), b.expected(b.Refaulted, time.Second)),
			cmp.Compare(b.PageCache, a.PageCache), cmp.Compare(a.UID, b.UID))
	})
}

// leaveRound takes a victim out of the round. The result of a running attempt is ignored.
func (st *State) leaveRound(uid types.UID) {
	r := &st.Round
	if len(r.Pods) > 0 && r.Pods[0].UID == uid {
		r.Of = 0
	}
	if r.Pod == uid {
		r.Asked, r.Pod = time.Time{}, ""
	}
	r.Pods = without(r.Pods, func(m PodMemory) bool { return m.UID == uid })
	if t := &st.Throttled; t.Pod != nil && t.Pod.UID == uid {
		st.Throttled.Evicted = true
	}
}
