package eviction

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// freeingTime is what the kernel may need to free the memory of a killed pod.
const freeingTime = 50 * time.Millisecond

// Shortened is a victim in flight whose SIGKILL is to be sent earlier: Grace
// counts from now.
type Shortened struct {
	UID   types.UID
	Grace time.Duration
}

// hardGrace is the time that a victim of a hard threshold has before SIGKILL: half
// of the time in which the signal is used up at its present rate, less freeingTime;
// at most the configured grace, which also holds where the signal does not fall.
func (c *Config) hardGrace(signals *Observations, s Signal) time.Duration {
	if int(s) >= NumSignals { // a limit of the pod's own: no signal falls
		return c.HardGrace
	}
	left, falls := signals[s].UsedUpIn.Get()
	if !falls {
		return c.HardGrace
	}
	return min(c.HardGrace, max(0, time.Duration(left)/2-freeingTime))
}

// gracePeriod is the announced one, in seconds: one for a hard threshold; for a soft
// one what the pod asks for, up to the configured maximum, and never below one.
func gracePeriod(cfg *Config, t *Threshold, p *Pod) int64 {
	if t.Hard() {
		return 1
	}
	grace := cfg.MaxPodGracePeriod
	if p.TerminationGracePeriod != nil {
		grace = min(grace, *p.TerminationGracePeriod)
	}
	return max(1, grace)
}

// shortenGraces shortens the grace of hard victims in flight whose signal falls
// faster than when they were chosen. A grace is never prolonged.
func (st *State) shortenGraces(cfg *Config, in *Input, d *Decision) {
	copied := false
	for i := range st.InFlight {
		f := &st.InFlight[i]
		if !f.Hard || f.Unattended || !f.Ended.IsZero() {
			continue
		}
		grace := cfg.hardGrace(&in.Signals, f.Signal)
		if passed := in.Now.Sub(f.Since); passed+grace < f.Grace {
			if !copied {
				st.InFlight, copied = in.Buffers.forInFlight(st.InFlight), true
				f = &st.InFlight[i]
			}
			f.Grace = passed + grace
			d.Shortened = append(d.Shortened, Shortened{f.UID, grace})
		}
	}
}

// hasten ends the long grace of victims of soft thresholds where a hard one of the
// same shortage acts: of all, where no other pod is eligible; else of those that rank before
// every other. It says whether there is any.
func (st *State) hasten(cfg *Config, in *Input, s Signal, ranking []Ranked, d *Decision) bool {
	first := st.nextEligible(ranking, 0)
	copied := false
	for i := range ranking {
		r := &ranking[i]
		at := st.indexInFlight(r.Pod.UID)
		if at < 0 || r.ended() || st.InFlight[at].Hard || cfg.Layout.shortage(st.InFlight[at].Signal) != cfg.Layout.shortage(s) {
			continue
		}
		if first >= 0 && (i > first || !cfg.MeasuresRelief) {
			continue
		}
		if !copied {
			st.InFlight, copied = in.Buffers.forInFlight(st.InFlight), true
		}
		f := &st.InFlight[at]
		f.Hard, f.Since, f.Grace, f.Patience = true, in.Now, cfg.hardGrace(&in.Signals, f.Signal), 0
		d.Hastened = append(d.Hastened, r.Pod)
		d.Shortened = append(d.Shortened, Shortened{f.UID, f.Grace})
	}
	return copied
}
