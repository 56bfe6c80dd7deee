package eviction

import (
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// throttleAgain is the least time between two throttles of a pod.
const throttleAgain = time.Minute

// Growth is how the memory of a pod grows.
type Growth struct {
	UID types.UID
	// Memory is its working set, bytes, and PerSecond its growth.
	Memory, PerSecond int64
}

// Throttled is the state of throttles.
type Throttled struct {
	// Pod is throttled since Since; nil while none is. Evicted says that it was chosen as a victim since.
	Pod     *Pod
	Since   time.Time
	Evicted bool
	// High is the value of memory.high, bytes; zero until it is known.
	High int64
	// Last is the pod that was throttled last, and Before are those before it, and until when they are not
	// again.
	Last   StoppedReclaim
	Before []StoppedReclaim
}

func (t *Throttled) equal(other *Throttled) bool {
	return t.Pod == other.Pod && t.Evicted == other.Evicted && t.Since.Equal(other.Since) && t.High == other.High && t.Last == other.Last && slices.Equal(t.Before, other.Before)
}

// throttle decides about memory.high of the pod that grows fastest. It is called by the call that opens a pass.
func (st *State) throttle(cfg *Config, in *Input, d *Decision) {
	t := &st.Throttled
	if cfg.ThrottlePeriod == 0 || cfg.DryRun {
		return
	}
	t.Before = without(t.Before, func(s StoppedReclaim) bool { return !in.Now.Before(s.Until) })
	if !in.Now.Before(t.Last.Until) {
		t.Last = StoppedReclaim{}
	}
	for i := range in.StepOutcomes {
		switch o := &in.StepOutcomes[i]; {
		case o.Step != Throttle || t.Pod == nil || o.UID != t.Pod.UID:
		case o.Bytes > 0:
			t.High = o.Bytes
		case o.Refused != "":
			t.end(in.Now)
		default: // memory.high was put back at its deadline, before a pass of the loop
			d.step(in, StepAction{Step: Throttle, Pod: t.Pod, Over: true, Because: "its deadline has passed"})
			t.end(in.Now)
		}
	}
	crossed, soon := st.nearestHard(cfg, in)
	if t.Pod != nil {
		because := ""
		switch {
		case crossed:
			because = "a hard threshold is crossed"
		case t.Evicted:
			because = "the pod is being evicted"
		case in.Fastest.UID == t.Pod.UID && in.Fastest.Memory <= t.Pod.MemoryRequest:
			because = "the pod is within its request"
		case in.Now.Sub(t.Since) >= cfg.ThrottlePeriod:
			because = "it has lasted " + cfg.ThrottlePeriod.String()
		default:
			return
		}
		d.step(in, StepAction{Step: Throttle, Pod: t.Pod, Over: true, Because: because})
		t.end(in.Now)
		return
	}
	if crossed || soon == nil {
		return
	}
	g := &in.Fastest
	at := slices.IndexFunc(in.Candidates, func(c Candidate) bool { return c.Pod.UID == g.UID })
	if at < 0 || st.keepsFromThrottle(in.Candidates[at].Pod, g) != "" || g.PerSecond < soon.falls/2 {
		return
	}
	pod := in.Candidates[at].Pod
	if t.Last.UID != "" {
		t.Before, t.Last = append(slices.Clip(t.Before), t.Last), StoppedReclaim{}
	}
	t.Pod, t.Since = pod, in.Now
	d.step(in, StepAction{Step: Throttle, Pod: pod, Bytes: soon.left / 2, For: cfg.ThrottlePeriod, Cause: soon.cause(), Because: fmt.Sprintf("%v %s above %s (hard), which it reaches in %v; the pod is %s above its request and grows by %s a second",
		soon.Signal, soon.Signal.Rounded(soon.left), soon.FormatValue(), soon.in.Round(time.Millisecond), rounded(g.Memory-pod.MemoryRequest), rounded(g.PerSecond))})
}

// end ends a throttle. A pod is throttled again after throttleAgain. It allocates nothing: a hard threshold
// may be crossed.
func (t *Throttled) end(now time.Time) {
	*t = Throttled{Last: StoppedReclaim{t.Pod.UID, now.Add(throttleAgain)}, Before: t.Before}
}

// keepsFromThrottle is why a pod that grows is not throttled; "" where it may be.
func (st *State) keepsFromThrottle(p *Pod, g *Growth) string {
	t := &st.Throttled
	switch {
	case p.Terminal || st.indexInFlight(p.UID) >= 0:
		return "it has ended"
	case p.Protection != "":
		return string(p.Protection)
	case p.Outside:
		return "it is no pod"
	case p.Estimated:
		return "its request is not known"
	case g.Memory <= p.MemoryRequest:
		return "it is not above its request"
	case t.Pod != nil && t.Pod.UID == p.UID:
		return "it is throttled"
	case t.Last.UID == p.UID || slices.ContainsFunc(t.Before, func(s StoppedReclaim) bool { return s.UID == p.UID }):
		return "it was throttled less than a minute ago"
	}
	return ""
}

// approach is a hard threshold of memory that is reached at the present rate: what is left until then, and how
// much of that a second takes.
type approach struct {
	*Threshold
	in          time.Duration
	left, falls int64
}

// nearestHard is the hard threshold of memory that is reached first, within Config.ThrottlePeriod; crossed says
// that one is.
func (st *State) nearestHard(cfg *Config, in *Input) (crossed bool, nearest *approach) {
	for i := range cfg.Thresholds {
		t := &cfg.Thresholds[i]
		o := in.Signals[t.Signal]
		if !t.Signal.ofMemory() || !t.Hard() {
			continue
		}
		if t.crossed(o, st.Thresholds[i].Acting) {
			return true, nil
		}
		available, measured := o.Available.Get()
		required, known := t.Value.Of(o)
		usedUpIn, falls := o.UsedUpIn.Get()
		if !measured || !known || !falls || usedUpIn <= 0 || available <= required {
			continue
		}
		left := available - required
		until := time.Duration(float64(usedUpIn) * float64(left) / float64(available))
		if until <= cfg.ThrottlePeriod && (nearest == nil || until < nearest.in) {
			nearest = &approach{t, until, left, int64(float64(available) / time.Duration(usedUpIn).Seconds())}
		}
	}
	return false, nearest
}
