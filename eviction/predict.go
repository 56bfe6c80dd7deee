package eviction

import (
	"math"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/evictd/evictd/internal/podspec"
	"github.com/evictd/evictd/stats"
)

// Prediction is what Decide would do about a threshold if it acted now.
type Prediction struct {
	*Threshold
	Required, Available int64
	// Assumed says that the signal is not below the threshold, and the prediction
	// takes it to be there by one unit.
	Assumed bool
	// Lacking is what has to be freed: what is missing for the threshold and its
	// minimum reclaim, less what dying pods still hold.
	Lacking int64
	// Reclaim is what the node would free first; Victims are for when it gains
	// nothing by that.
	Reclaim []ReclaimStep
	// Ranking is of all pods that are not in flight, exempt ones among them.
	Ranking []Ranked
	// Victims would be evicted, in this order: as many as free what is lacking. None
	// where those of Awaited answer the threshold already.
	Victims []types.UID
	Awaited []types.UID
	// Freed is what they free, unknown where one has no statistics.
	Freed stats.Amount
}

// Predict has Decide answer a threshold of the configuration, by its index, alone,
// its grace over. It has no answer where the signal was not measured or can never
// fall below. Only in's Now, Signals and Candidates count.
func Predict(cfg *Config, st State, in Input, i int) (Prediction, bool) {
	t := &cfg.Thresholds[i]
	o := &in.Signals[t.Signal]
	required, resolved := t.Value.Of(*o)
	available, measured := o.Available.Get()
	if !resolved || !measured || required <= 0 {
		return Prediction{}, false
	}
	f := Prediction{Threshold: t, Required: required, Available: available, Assumed: !t.crossed(*o, st.Thresholds[i].Acting)}
	if f.Assumed {
		o.Available = stats.Known(required - 1)
		o.Some, o.ReadBack = stats.Known(stats.WholeTime), stats.Known(max(leastReadBack, o.ReadBack.Or(0)))
	}
	alone := *cfg
	alone.Thresholds, alone.LocalStorageCapacityIsolation, alone.EnoughVictims, alone.Restarts = cfg.Thresholds[i:i+1], false, true, Restarts{}
	before := State{InFlight: st.InFlight}
	before.Thresholds[0] = Standing{FirstObserved: in.Now.Add(-t.Grace), Acting: true}
	in = Input{Now: in.Now, Pass: Housekeeping, Signals: in.Signals, Candidates: in.Candidates, Sampled: true, UnknownPods: No}
	f.Lacking, _ = before.missing(&alone, &in, t)
	after, d := Decide(&alone, before, in)
	if f.Reclaim = d.Reclaim; len(f.Reclaim) > 0 {
		in.Pass = Continue
		_, d = Decide(&alone, after, in)
	}
	ranking := Rank(cfg, t.Signal, in.Candidates, nil)
	for _, r := range ranking {
		if st.indexInFlight(r.Pod.UID) < 0 {
			r.Outside = slices.ContainsFunc(d.Ranking, func(of Ranked) bool { return of.Outside && of.Pod == r.Pod })
			f.Ranking = append(f.Ranking, r)
		}
	}
	f.Freed = stats.Known(0)
	for j := range d.Evictions {
		e := &d.Evictions[j]
		f.Victims = append(f.Victims, e.Pod.UID)
		frees, measured := e.victim.atMost()
		if sum, known := f.Freed.Get(); known && measured {
			f.Freed = stats.Known(sum + frees)
		} else {
			f.Freed = stats.Amount{}
		}
	}
	awaited := st.awaited(&in, t, ranking)
	for i := range st.InFlight {
		v := &st.InFlight[i]
		if cfg.Layout.shortage(v.Signal) == cfg.Layout.shortage(t.Signal) || v == awaited {
			f.Awaited = append(f.Awaited, v.UID)
		}
	}
	return f, true
}

// Suffices says whether the victims free what is lacking.
func (f *Prediction) Suffices() bool {
	freed, known := f.Freed.Get()
	return known && freed >= f.Lacking
}

// Comparison is one key of the ranking by which two pods are compared, and its
// values.
type Comparison struct {
	Key        string
	This, Next string
	// Decides is true for the key that ranks the first pod before the second: keys after
	// it do not count.
	Decides bool
}

// Compare lists every key by which r ranks before next, up to the key that decides.
func (r *Ranked) Compare(next *Ranked) []Comparison {
	var all []Comparison
	for _, k := range orders[r.Signal.Condition()] {
		c := Comparison{k.name, k.value(r), k.value(next), k.compare(*r, *next) != 0}
		if c.This == "" && c.Next == "" { // neither has what the key compares
			continue
		}
		if all = append(all, c); c.Decides {
			break
		}
	}
	return all
}

// Change is what would have to become of one figure of a pod for it to pass
// another in the ranking, all else unchanged.
type Change struct {
	Of       string // usage, request or priority
	From, To int64
}

// lever is a figure that moves a pod in the ranking: up, by more of it, where
// hastens is 1, and by less where it is -1.
type lever struct {
	of        string
	hastens   int
	low, high int64
	get       func(*Ranked) int64
	set       func(*Ranked, int64)
}

var (
	usageLever = lever{"usage", 1, 0, math.MaxInt64 / 4, func(r *Ranked) int64 { return r.Usage }, func(r *Ranked, n int64) {
		r.Usage, r.Exceeds = n, n > r.Request
	}}
	requestLever = lever{"request", -1, 0, math.MaxInt64 / 4, func(r *Ranked) int64 { return r.Request }, func(r *Ranked, n int64) {
		r.Request, r.Exceeds = n, r.Usage > n
	}}
	priorityLever = lever{"priority", -1, math.MinInt32, podspec.SystemCriticalPriority - 1, func(r *Ranked) int64 { return int64(r.Pod.Priority) }, func(r *Ranked, n int64) {
		p := *r.Pod
		p.Priority, r.Pod = int32(n), &p
	}}
)

// Passing lists the single changes by which r would rank on the other side of
// another pod of the same ranking. A pod without statistics has no usage that
// could change.
func (r *Ranked) Passing(other *Ranked) []Change {
	order := orders[r.Signal.Condition()]
	before := func(r *Ranked) bool { return compareBy(order, *r, *other) < 0 }
	levers := []*lever{&priorityLever}
	if r.Measured && other.Measured {
		levers = []*lever{&usageLever, &priorityLever}
		if r.Signal.Requestable() {
			levers = []*lever{&usageLever, &requestLever, &priorityLever}
		}
	}
	var changes []Change
	was := before(r)
	for _, l := range levers {
		there := l.low
		if was == (l.hastens < 0) {
			there = l.high
		}
		if to, ok := nearest(l.get(r), there, func(n int64) bool {
			changed := *r
			l.set(&changed, n)
			return before(&changed) != was
		}); ok {
			changes = append(changes, Change{l.of, l.get(r), to})
		}
	}
	return changes
}

// nearest is the value nearest to from on the way to another for which something
// holds, which from does not and which holds from there on.
func nearest(from, to int64, holds func(int64) bool) (int64, bool) {
	if from == to || !holds(to) {
		return 0, false
	}
	for no, yes := from, to; ; {
		middle := no + (yes-no)/2
		if middle == no {
			return yes, true
		}
		if holds(middle) {
			yes = middle
		} else {
			no = middle
		}
	}
}

// Rival is the pod that the one at a place of the ranking has to pass: for a
// victim, the first that is none; for another, the first victim. Nil where the pod is
// exempt or there is no such other.
func (f *Prediction) Rival(place int) *Ranked {
	if len(f.Victims) == 0 || f.Ranking[place].Exempt() != "" {
		return nil
	}
	evicted := func(r *Ranked) bool { return slices.Contains(f.Victims, r.Pod.UID) }
	this := evicted(&f.Ranking[place])
	for i := range f.Ranking {
		if r := &f.Ranking[i]; r.Exempt() == "" && evicted(r) != this {
			return r
		}
	}
	return nil
}
