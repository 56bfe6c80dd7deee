package eviction_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evictd/evictd/eviction"
	"github.com/evictd/evictd/stats"
)

// TestReclaimAndThrottleStayWithinTheirBounds draws passes, results and figures of pods at random.
//
// rule: M.140
// rule: M.142
// rule: M.143
// rule: M.146
// rule: M.147
func TestReclaimAndThrottleStayWithinTheirBounds(t *testing.T) {
	const mib = 1 << 20
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 1))
		cfg := eviction.New(eviction.Config{
			Thresholds: []eviction.Threshold{
				{Signal: eviction.MemoryAvailable, Value: eviction.Value{Amount: 100 * mib}},
				{Signal: eviction.MemoryAvailable, Value: eviction.Value{Amount: 300 * mib}, Grace: time.Minute},
			},
			MemoryReclaims: eviction.MemoryReclaims{Budget: 96 * mib, Step: 32 * mib, Attempts: 5}, ThrottlePeriod: 5 * time.Second,
		}, eviction.SharedFs)
		var pods []*eviction.Pod
		for i := range 5 {
			p := &eviction.Pod{UID: types.UID(fmt.Sprint(i)), Name: fmt.Sprint(i), Namespace: "n", QOS: v1.PodQOSBestEffort, MemoryRequest: r.Int64N(200) * mib}
			if p.MemoryRequest > 0 {
				p.QOS = v1.PodQOSBurstable
			}
			if r.IntN(5) == 0 {
				p.Protection = eviction.StaticPod
			}
			pods = append(pods, p)
		}
		memory := map[types.UID]eviction.PodMemory{}
		measure := func(uid types.UID) eviction.PodMemory {
			m := eviction.PodMemory{UID: uid, WorkingSet: r.Int64N(400) * mib, PageCache: r.Int64N(200) * mib, Over: 250 * time.Millisecond, Refaulted: r.Int64N(8) * mib}
			memory[uid] = m
			return m
		}
		var st eviction.State
		var asked *eviction.StepAction
		var throttled time.Time
		now, began, bytes, attempts := time.Unix(1000, 0), time.Time{}, int64(0), 0
		for range 200 {
			now = now.Add(time.Duration(r.IntN(700)) * time.Millisecond)
			available := (90 + r.Int64N(300)) * mib
			in := eviction.Input{Now: now, Pass: eviction.Event}
			in.Signals[eviction.MemoryAvailable] = eviction.Observation{Available: stats.Known(available), Capacity: stats.Known(1 << 30), Time: now, UsedUpIn: stats.Known(r.Int64N(10 * int64(time.Second)))}
			for i, p := range pods {
				if r.IntN(100) == 0 {
					ended := *p
					ended.Terminal = !p.Terminal
					p, pods[i] = &ended, &ended
				}
				in.Candidates = append(in.Candidates, eviction.Candidate{Pod: p})
			}
			grows := pods[r.IntN(len(pods))]
			in.Fastest = eviction.Growth{UID: grows.UID, Memory: r.Int64N(400) * mib, PerSecond: r.Int64N(100) * mib}
			if asked != nil && r.IntN(3) > 0 {
				o := eviction.StepOutcome{Step: eviction.ReclaimMemory}
				if asked.Pod != nil {
					o.UID, o.Bytes, o.Less, o.Pods = asked.Pod.UID, r.Int64N(asked.Bytes+1), r.IntN(3) == 0, []eviction.PodMemory{measure(asked.Pod.UID)}
					bytes += o.Bytes
				} else {
					for _, p := range pods {
						o.Pods = append(o.Pods, measure(p.UID))
					}
				}
				in.StepOutcomes, asked = append(in.StepOutcomes, o), nil
			}
			var d eviction.Decision
			st, d = eviction.Decide(&cfg, st, in)
			fail := func(what string) { t.Fatalf("seed %d, %v: %s: %+v", seed, now, what, d.Steps) }
			for i := range d.Steps {
				switch m := &d.Steps[i]; {
				case m.Step == eviction.Throttle && m.Over:
					throttled = time.Time{}
				case m.Step == eviction.Throttle:
					if !throttled.IsZero() || available < 100*mib || m.Pod.Protection != "" || m.Pod.Terminal || in.Fastest.Memory <= m.Pod.MemoryRequest || m.Bytes > (available-100*mib)/2 {
						fail("no throttle is allowed")
					}
					throttled = now
				case m.Over:
				case asked != nil:
					fail("a second request")
				case available < 100*mib:
					fail("a hard threshold is crossed")
				case m.Pod == nil && !began.IsZero() && now.Sub(began) < 10*time.Second:
					fail("a second round within 10 s")
				case m.Pod == nil:
					asked, began, bytes, attempts = m, now, 0, 0
				case m.Pod.Protection != "" || m.Pod.Terminal || m.Bytes > memory[m.Pod.UID].WorkingSet-m.Pod.MemoryRequest || m.Bytes > memory[m.Pod.UID].PageCache || m.Bytes > 32*mib || m.Bytes <= 0:
					fail("more than the pod may lose")
				case bytes+m.Bytes > 96*mib || attempts == 5:
					fail("more than the budget")
				default:
					asked, attempts = m, attempts+1
				}
			}
			if !throttled.IsZero() && (now.Sub(throttled) >= 5*time.Second || available < 100*mib) {
				fail("the throttle lasts")
			}
		}
	}
}
