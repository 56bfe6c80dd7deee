package eviction_test

import (
	"encoding/binary"
	"math/rand/v2"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/evictd/evictd/eviction"
)

// dice are random numbers that the fuzzer chooses, for as long as it has any.
type dice struct {
	chosen []byte
	rest   *rand.PCG
}

func (d *dice) Uint64() uint64 {
	if len(d.chosen) == 0 {
		return d.rest.Uint64()
	}
	var word [8]byte
	d.chosen = d.chosen[copy(word[:], d.chosen):]
	return binary.LittleEndian.Uint64(word[:])
}

// FuzzDecide calls Decide in any order with any input: passes continue that did
// not begin, outcomes name pods that were not chosen, time runs backwards.
func FuzzDecide(f *testing.F) {
	f.Add([]byte{})
	for seed := range byte(20) {
		f.Add([]byte{seed, 0, 0, 0, 0, 0, 0, seed, 200})
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		r := rand.New(&dice{data, rand.NewPCG(uint64(len(data)), 0)})
		cfg, now := anyConfig(r), start
		var st eviction.State
		for range 20 {
			now = now.Add(time.Duration(r.IntN(40)-10) * time.Second)
			candidates := anyCandidates(r, 5)
			in := eviction.Input{Now: now, Pass: one(r, eviction.Housekeeping, eviction.Event, eviction.Continue, eviction.Continue),
				Signals: anySignals(r, now), Candidates: candidates, Sampled: r.IntN(2) == 0}
			for range r.IntN(3) {
				o := eviction.Outcome{Failed: r.IntN(2) == 0}
				o.UID = one[types.UID](r, "pod0", "pod1", "pod2", "unknown")
				in.Outcomes = append(in.Outcomes, o)
			}
			before := text(st)
			next, d := eviction.Decide(&cfg, st, in)
			d.Explain()
			if text(st) != before {
				t.Fatal("the state was changed")
			}
			for _, e := range d.Evictions {
				if e.Pod.Protection != "" || e.GracePeriodSeconds < 1 || e.Because == "" || e.Message == "" {
					t.Fatalf("%s", text(e))
				}
			}
			st = next
		}
	})
}
