package eviction

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/evictd/evictd/stats"
)

// Ranked is a candidate's place in the order of victims for one signal, with
// every key that put it there. The first is evicted first.
type Ranked struct {
	Candidate
	Signal Signal
	// Measured says whether there are the statistics of the pod that the order needs.
	Measured bool
	// Preference of the pod, where it counts.
	Preference Preference
	// Usage and Request in the signal's unit.
	Usage, Request int64
	// Exceeds says whether usage is above the request. Not a key for pids.
	Exceeds bool
	// WouldFree is what the pod's end frees, in the signal's unit; unknown
	// without statistics, unless pods hold nothing on the filesystem at all.
	// Zero exempts the pod from a signal of a disk, and of swap: a pod that may not
	// swap holds none.
	WouldFree stats.Amount
	// Outside says of a cgroup outside of the pods that the pods are not the cause of the shortage.
	Outside bool
	// LastResort says that no pod is known to hold anything on the starved filesystem: then those of the kubelet's order
	// are evicted that seem to hold nothing.
	LastResort bool
	// Causes says whether the pod causes the contention of memory.stall.
	Causes bool
}

// holdsNothing exempts a pod, all of which was measured, from a signal of a disk.
const holdsNothing = "holds nothing on the starved filesystem"

// Exempt says why the pod is never a victim for the signal, or nothing.
func (r *Ranked) Exempt() string {
	if r.Pod.Protection != "" {
		return string(r.Pod.Protection)
	}
	if r.Signal.Condition() == DiskPressure && r.WouldFree == stats.Known(0) && !r.LastResort {
		return holdsNothing
	}
	if r.Signal == SwapAvailable && r.WouldFree == stats.Known(0) {
		return "holds no swap"
	}
	if r.Pod.Outside && !r.Outside {
		return "no pod, and evicted only where memory is short and the pods are not the cause"
	}
	if r.Signal == MemoryStall && !r.Causes && !r.Exceeds {
		return "reads no memory back and is within its request"
	}
	return ""
}

// ended says whether no process of the pod is left, whatever it holds still.
func (r *Ranked) ended() bool {
	return r.Candidate.Usage != nil && (r.Candidate.Usage.Threads == stats.Known(0) || r.Candidate.Usage.Processes == stats.Known(0))
}

// A key compares two candidates by one rule. Because states in words why the first
// ranks before the second, value what is compared.
type key struct {
	name    string
	value   func(r *Ranked) string
	compare func(a, b Ranked) int // by value: behind pointers every comparison would allocate
	because func(a, b *Ranked) string
}

// Statistics are the first key of every order: unlike the kubelet, a pod without them
// ranks after every pod that has some. Among themselves such pods differ by
// priority alone.
var (
	byStatistics = key{
		"statistics",
		func(r *Ranked) string { return either(r.Measured, "measured", "none") },
		func(a, b Ranked) int { return compareBool(!a.Measured, !b.Measured) },
		func(a, b *Ranked) string { return fmt.Sprintf("%v has no statistics", b.Pod) },
	}
	byExcess = key{
		"above its request",
		func(r *Ranked) string { return either(r.Exceeds, "yes", "no") },
		func(a, b Ranked) int { return compareBool(!a.Exceeds, !b.Exceeds) },
		func(a, b *Ranked) string {
			uses, requested := a.pair(a.Usage, a.Request)
			return fmt.Sprintf("uses %s and requested %s; %v is within its request", uses, requested, b.Pod)
		},
	}
	byPriority = key{
		"priority",
		func(r *Ranked) string { return strconv.Itoa(int(r.Pod.Priority)) },
		func(a, b Ranked) int { return cmp.Compare(a.Pod.Priority, b.Pod.Priority) },
		func(a, b *Ranked) string {
			return fmt.Sprintf("priority %d is lower than %d of %v", a.Pod.Priority, b.Pod.Priority, b.Pod)
		},
	}
	byPreference = key{
		PreferenceAnnotation,
		func(r *Ranked) string { return r.Preference.String() },
		func(a, b Ranked) int { return cmp.Compare(a.Preference, b.Preference) },
		func(a, b *Ranked) string {
			switch {
			case b.Pod.Outside:
				return fmt.Sprintf("ManagedOOMPreference of %v is avoid", b.Pod)
			case a.Preference == EvictFirst:
				return "its annotation " + PreferenceAnnotation + " is first"
			}
			return fmt.Sprintf("the annotation %s of %v is last", PreferenceAnnotation, b.Pod)
		},
	}
	byOverRequest = key{
		"usage less request",
		func(r *Ranked) string { return r.quantity(r.overRequest()) },
		func(a, b Ranked) int { return cmp.Compare(b.overRequest(), a.overRequest()) },
		func(a, b *Ranked) string {
			if a.Request == 0 && b.Request == 0 {
				uses, less := a.pair(a.Usage, b.Usage)
				return fmt.Sprintf("uses %s, %v %s", uses, b.Pod, less)
			}
			one, other := a.pair(max(a.overRequest(), -a.overRequest()), max(b.overRequest(), -b.overRequest()))
			return fmt.Sprintf("is %s %s its request, %v %s %s", one, a.side(), b.Pod, other, b.side())
		},
	}
	byProcesses = key{
		"processes",
		func(r *Ranked) string { return r.quantity(r.Usage) },
		func(a, b Ranked) int { return cmp.Compare(b.Usage, a.Usage) },
		func(a, b *Ranked) string {
			return fmt.Sprintf("has %s processes, %v %s", a.quantity(a.Usage), b.Pod, b.quantity(b.Usage))
		},
	}
	byGrowth = key{
		"growth",
		func(r *Ranked) string { return r.quantity(r.Growth) + "/s" },
		func(a, b Ranked) int { return cmp.Compare(b.Growth, a.Growth) },
		func(a, b *Ranked) string {
			return fmt.Sprintf("uses as much as %v and grows faster, by %d bytes a second more", b.Pod, a.Growth-b.Growth)
		},
	}
	byUID = key{
		"uid",
		func(r *Ranked) string { return string(r.Pod.UID) },
		func(a, b Ranked) int { return cmp.Compare(a.Pod.UID, b.Pod.UID) },
		func(a, b *Ranked) string { return fmt.Sprintf("equal to %v in every respect, and first by uid", b.Pod) },
	}
)

// orders gives the keys of a condition's ranking, first one first (kubelet
// 1.37: rankMemoryPressure, rankDiskPressureFunc, rankPIDPressure). What follows
// the kubelet's keys settles what they leave equal. byPreference is none of the kubelet's, and off
// where the configuration lists no namespaces.
var orders = [NumConditions][]key{
	MemoryPressure: {byStatistics, byExcess, byPriority, byPreference, byOverRequest, byGrowth, byUID},
	DiskPressure:   {byStatistics, byExcess, byPriority, byPreference, byOverRequest, byUID},
	PIDPressure:    {byStatistics, byPriority, byPreference, byProcesses, byUID},

	MemoryContention: {byStatistics, byCause, byExcess, byPriority, byPreference, byReadBack, byOverRequest, byGrowth, byUID},
}

// overRequest is the use above the request, negative below it; nothing where
// the use is unknown.
func (r *Ranked) overRequest() int64 {
	if !r.Measured {
		return 0
	}
	return r.Usage - r.Request
}

// side is where the pod's usage is, relative to its request.
func (r *Ranked) side() string { return either(r.overRequest() < 0, "below", "above") }

func either(is bool, yes, no string) string {
	if is {
		return yes
	}
	return no
}

func (r *Ranked) quantity(amount int64) string { return r.Signal.OfPods().Quantity(amount) }

// pair writes two amounts for people, exactly where they would look the same.
func (r *Ranked) pair(a, b int64) (string, string) {
	s := r.Signal.OfPods()
	first, second := s.Rounded(a), s.Rounded(b)
	if strings.Replace(first, ".0", "", 1) != strings.Replace(second, ".0", "", 1) {
		return first, second
	}
	return r.quantity(a), r.quantity(b)
}

// Before states in words which rule ranks r before next.
func (r *Ranked) Before(next *Ranked) string {
	for _, k := range orders[r.Signal.Condition()] {
		if k.compare(*r, *next) != 0 {
			return k.because(r, next)
		}
	}
	return "is the same pod"
}

// Rank orders all candidates for a signal, exempt ones among them. Ended pods
// are left out. The result is appended to ranked, which may be nil.
func Rank(cfg *Config, s Signal, candidates []Candidate, ranked []Ranked) []Ranked {
	return rank(cfg, s, candidates, nil, ranked)
}

// rank is Rank with the victims in flight that are reported as ended already.
func rank(cfg *Config, s Signal, candidates []Candidate, inFlight []InFlight, ranked []Ranked) []Ranked {
	most := contentionOf(candidates)
	for _, c := range candidates {
		if c.Pod.Terminal && !slices.ContainsFunc(inFlight, func(f InFlight) bool { return f.UID == c.Pod.UID }) {
			continue
		}
		r := Ranked{Candidate: c, Signal: s, Measured: c.measured(s), Request: c.request(s)}
		if c.Pod.Outside || slices.Contains(cfg.PreferenceNamespaces, c.Pod.Namespace) {
			r.Preference = c.Pod.Preference
		}
		switch {
		case r.Measured:
			r.Usage = c.usage(s, cfg.Layout)
			r.Exceeds = r.Usage > r.Request
			r.WouldFree = stats.Known(c.frees(s, cfg.Layout))
			r.Causes = s == MemoryStall && c.causes(most)
			if s.Condition() == DiskPressure && c.Usage.Partial && r.Usage == 0 && cfg.Layout.placement(s).holds != 0 {
				r.WouldFree = stats.Amount{}
			}
		case s.Condition() == DiskPressure && cfg.Layout.placement(s).holds == 0:
			r.WouldFree = stats.Known(0)
		}
		ranked = append(ranked, r)
	}
	order := orders[s.Condition()]
	slices.SortFunc(ranked, func(a, b Ranked) int { return compareBy(order, a, b) })
	return ranked
}

// compareBy is negative where a ranks before b.
func compareBy(order []key, a, b Ranked) int {
	for i := range order {
		if c := order[i].compare(a, b); c != 0 {
			return c
		}
	}
	return 0
}
