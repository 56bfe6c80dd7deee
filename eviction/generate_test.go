package eviction_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evictd/evictd/eviction"
	"github.com/evictd/evictd/stats"
)

// rounds is how many random nodes a property is tried on.
const rounds = 500

const gi = 1 << 30

// start is the instant of the first pass.
var start = time.Unix(1_000_000, 0)

// everywhere tries a property on random nodes; a failure names the seed.
func everywhere(t *testing.T, property func(t *testing.T, r *rand.Rand)) {
	t.Helper()
	for seed := range uint64(rounds) {
		property(t, rand.New(rand.NewPCG(seed, 0)))
		if t.Failed() {
			t.Fatalf("with seed %d", seed)
		}
	}
}

// one of the options.
func one[T any](r *rand.Rand, options ...T) T { return options[r.IntN(len(options))] }

// amount is unknown now and then.
func amount(r *rand.Rand, below int64) stats.Amount {
	if r.IntN(6) == 0 {
		return stats.Amount{}
	}
	return stats.Known(r.Int64N(below))
}

func anyConfig(r *rand.Rand) eviction.Config {
	value := func() eviction.Value {
		return one(r, eviction.Value{Amount: r.Int64N(1000)}, eviction.Value{Fraction: r.Float32()})
	}
	var thresholds []eviction.Threshold
	for _, s := range eviction.Signals() {
		for range r.IntN(3) {
			thresholds = append(thresholds, eviction.Threshold{
				Signal: s, Value: value(), MinReclaim: one(r, eviction.Value{}, value()),
				Grace: one(r, 0, 0, 10*time.Second, 25*time.Second), Some: one(r, 0, 0, eviction.Share(r.Int64N(1000))),
			})
		}
	}
	return eviction.New(eviction.Config{
		Thresholds:                    thresholds,
		MaxPodGracePeriod:             r.Int64N(60) - 5,
		HardGrace:                     one(r, 0, time.Second/2, time.Second),
		SoftPatience:                  one(r, 0, 0, 7*time.Second),
		DryRun:                        r.IntN(10) == 0,
		PressureTransitionPeriod:      one(r, 0, 10*time.Second, time.Minute),
		LocalStorageCapacityIsolation: r.IntN(2) == 0,
		EnoughVictims:                 r.IntN(3) == 0,
		MeasuresRelief:                r.IntN(3) == 0,
		MemoryStallWindow:             one(r, time.Second, 10*time.Second),
	}, one(r, eviction.SharedFs, eviction.ImageFs, eviction.SplitFs))
}

func anyQuantity(r *rand.Rand) resource.Quantity {
	return *resource.NewQuantity(r.Int64N(800), resource.BinarySI)
}

func anyPod(r *rand.Rand, name string) *eviction.Pod {
	limit := func() *resource.Quantity {
		if q := anyQuantity(r); r.IntN(6) == 0 {
			return &q
		}
		return nil
	}
	p := &eviction.Pod{
		UID: types.UID(name), Namespace: "default", Name: name,
		Priority:              one[int32](r, 0, 0, 1, -1, 2_000_000_000),
		Protection:            one(r, "", "", "", "", eviction.StaticPod, eviction.CriticalPriority),
		Terminal:              r.IntN(8) == 0,
		QOS:                   one(r, v1.PodQOSBestEffort, v1.PodQOSBurstable),
		MemoryRequest:         one(r, 0, 300, r.Int64N(600)),
		StorageRequest:        one(r, 0, 300, r.Int64N(600)),
		PodLevelMemoryRequest: limit(),
		StorageLimit:          limit(),
	}
	if grace := r.Int64N(60); r.IntN(2) == 0 {
		p.TerminationGracePeriod = &grace
	}
	for i := range r.IntN(3) {
		p.Containers = append(p.Containers, eviction.Container{Name: fmt.Sprint("c", i), MemoryRequest: anyQuantity(r), StorageRequest: anyQuantity(r)})
		if q := limit(); q != nil {
			p.Containers[i].StorageLimit = *q
		}
	}
	for i := range r.IntN(3) {
		p.Volumes = append(p.Volumes, eviction.Volume{Name: fmt.Sprint("v", i), Local: r.IntN(2) == 0, Ephemeral: r.IntN(2) == 0, SizeLimit: limit()})
	}
	return p
}

// anyUsage now and then measures other containers and volumes than the pod has.
func anyUsage(r *rand.Rand, p *eviction.Pod) *stats.Pod {
	if r.IntN(5) == 0 {
		return nil
	}
	u := &stats.Pod{Memory: amount(r, 700), Swap: amount(r, one[int64](r, 1, 300)), Processes: amount(r, 20)}
	for range len(p.Containers) + one(r, 0, 0, 0, 1) - one(r, 0, 0, 0, min(1, len(p.Containers))) {
		u.Containers = append(u.Containers, stats.Container{
			Memory: amount(r, 700), Rootfs: amount(r, 300), RootfsInodes: amount(r, 30), Logs: amount(r, 300), LogsInodes: amount(r, 3)})
	}
	for range len(p.Volumes) + one(r, 0, 0, 0, 1) - one(r, 0, 0, 0, min(1, len(p.Volumes))) {
		u.Volumes = append(u.Volumes, stats.Volume{Used: amount(r, 300), Inodes: amount(r, 30)})
	}
	return u
}

func anyCandidates(r *rand.Rand, atMost int) []eviction.Candidate {
	var all []eviction.Candidate
	for i := range r.IntN(atMost + 1) {
		p := anyPod(r, fmt.Sprint("pod", i))
		all = append(all, eviction.Candidate{Pod: p, Usage: anyUsage(r, p), ReadBack: one(r, 0, r.Int64N(200)), Stalled: amount(r, one[int64](r, 1, 1000))})
	}
	return all
}

// anySignals now and then repeats an old observation or has none.
func anySignals(r *rand.Rand, now time.Time) (all eviction.Observations) {
	for s := range all {
		if available := amount(r, 1100); available.IsKnown() {
			all[s] = eviction.Observation{Available: available, Capacity: one(r, stats.Known(1000), stats.Known(1000), stats.Amount{}),
				Time: one(r, now, now, now.Add(-15*time.Second), time.Time{}), UsedUpIn: amount(r, int64(5*time.Second))}
			if eviction.Signal(s) == eviction.MemoryStall {
				all[s].Some, all[s].ReadBack = amount(r, 1100), amount(r, 1<<21)
			}
		}
	}
	return all
}

// call is one call of Decide: what went in and what came out.
type call struct {
	before, after eviction.State
	in            eviction.Input
	out           eviction.Decision
}

// node runs random passes, as the loop does, and keeps every call.
type node struct {
	cfg   eviction.Config
	state eviction.State
	pods  []eviction.Candidate
	now   time.Time
	calls []call
}

func anyNode(r *rand.Rand) *node {
	return &node{cfg: anyConfig(r), pods: anyCandidates(r, 6), now: start}
}

func (n *node) decide(in eviction.Input) eviction.Decision {
	state, d := eviction.Decide(&n.cfg, n.state, in)
	d.Explain()
	n.calls = append(n.calls, call{n.state, state, in, d})
	n.state = state
	return d
}

// pass runs one whole pass and returns its calls. Now and then a kill
// fails, a victim in flight is gone, a reclaim frees something.
func (n *node) pass(t *testing.T, r *rand.Rand, kind eviction.Pass) []call {
	t.Helper()
	n.now = n.now.Add(time.Duration(r.IntN(12)) * time.Second)
	first := len(n.calls)
	in := eviction.Input{Now: n.now, Pass: kind, Signals: anySignals(r, n.now), Candidates: n.pods, Sampled: r.IntN(2) == 0, UnknownPods: one(r, eviction.Unasked, eviction.No, eviction.Yes)}
	for _, f := range n.state.InFlight {
		if r.IntN(3) == 0 {
			o := eviction.Outcome{UID: f.UID, Failed: r.IntN(4) == 0, Signalled: r.IntN(3) > 0}
			if r.IntN(2) == 0 {
				o.Ended = n.now.Add(-time.Duration(r.IntN(3000)) * time.Millisecond)
			}
			in.Outcomes = append(in.Outcomes, o)
		}
	}
	for _, f := range n.state.InFlight {
		if r.IntN(2) == 0 {
			in.TasksLeft = append(in.TasksLeft, eviction.TasksLeft{UID: f.UID, Tasks: r.Int64N(2), Removed: r.IntN(3) == 0})
		}
	}
	for i := range n.pods {
		if r.IntN(6) == 0 {
			in.Arrived = append(in.Arrived, n.pods[i].Pod.UID)
		}
	}
	if r.IntN(2) == 0 {
		in.DiskScans, in.ScannedSince = true, n.now.Add(-time.Duration(r.IntN(20))*time.Second)
	}
	for _, reclaim := range n.state.Reclaims {
		if !reclaim.Since.IsZero() && r.IntN(3) == 0 {
			in.Reclaims = append(in.Reclaims, eviction.ReclaimOutcome{For: reclaim.For, Ended: true})
		}
	}
	for again := true; again; in.Pass = eviction.Continue {
		d := n.decide(in)
		in.Outcomes, in.Reclaims = nil, nil
		if d.NeedUsage {
			in.Sampled = true
		}
		if d.NeedUnknownPods {
			in.UnknownPods = one(r, eviction.No, eviction.Yes)
		}
		if len(d.Reclaim) > 0 {
			switch r.IntN(3) {
			case 0:
				in.Signals[d.ReclaimFor].Available = stats.Known(r.Int64N(2000))
			case 1:
				in.Reclaims = []eviction.ReclaimOutcome{{For: d.ReclaimFor}}
			}
		}
		for _, e := range d.Evictions {
			if r.IntN(3) == 0 {
				in.Outcomes = append(in.Outcomes, eviction.Outcome{UID: e.Pod.UID, Failed: true})
			}
		}
		again = d.NeedUsage || d.NeedUnknownPods || len(d.Reclaim) > 0 || len(in.Outcomes) > 0
		if calls := len(n.calls) - first; calls > 2*len(n.pods)+10 {
			t.Fatalf("the pass does not end: %d calls", calls)
		}
	}
	return n.calls[first:]
}

// text is everything in a value, to compare it with what it is later.
func text(v any) string { return strings.ReplaceAll(fmt.Sprintf("%+v", v), "\n", " ") }
