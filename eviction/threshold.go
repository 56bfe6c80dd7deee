package eviction

import (
	"cmp"
	"slices"
	"strconv"
	"time"
)

// Value is an amount of a signal, or a part of its capacity.
type Value struct {
	// Amount in bytes or counts; used where Fraction is zero.
	Amount int64
	// Fraction of the capacity. The kubelet keeps it in 32 bits and multiplies
	// in 64, so that 5% of 10Gi is 536870920, eight more than by hand.
	Fraction float32
}

// Of resolves the value against a capacity, rounding down. It fails where a
// fraction meets an unknown capacity.
func (v Value) Of(o Observation) (int64, bool) {
	if v.Fraction == 0 {
		return v.Amount, true
	}
	// A minimum reclaim may be more than the capacity, and so overflow.
	const most = 1 << 62
	capacity, known := o.Capacity.Get()
	return int64(min(float64(capacity)*float64(v.Fraction), most)), known
}

// format writes the value as a configuration would: 100Mi, or 10%.
func (v Value) format(s Signal) string {
	if v.Fraction != 0 {
		return strconv.FormatFloat(float64(v.Fraction)*100, 'g', 6, 32) + "%"
	}
	return s.Quantity(v.Amount)
}

// Threshold is the amount of a signal below which the node acts.
type Threshold struct {
	Signal Signal
	// Value that the signal must not fall below; equal is still enough.
	Value Value
	// Grace is how long the signal must stay below before the threshold acts.
	// Zero makes the threshold hard.
	Grace time.Duration
	// MinReclaim is how far above Value the signal must rise before a
	// threshold that has acted counts as resolved.
	MinReclaim Value
	// Some is the part of the time in which some tasks have to wait besides, for a threshold of
	// memory.stall.
	Some Share
}

// Hard thresholds act at once and end pods without waiting for them.
func (t *Threshold) Hard() bool { return t.Grace == 0 }

// Kind is "hard" or "soft".
func (t *Threshold) Kind() string {
	if t.Hard() {
		return "hard"
	}
	return "soft"
}

// FormatValue and FormatMinReclaim write the amounts as a configuration would.
func (t *Threshold) FormatValue() string { return t.Value.format(t.Signal) }

// FormatMinReclaim is FormatValue for the minimum reclaim.
func (t *Threshold) FormatMinReclaim() string { return t.MinReclaim.format(t.Signal.OfPods()) }

// crossed says whether the observation is below the threshold, strictly; with
// reclaim, below the threshold plus its minimum reclaim. A signal that was not
// measured crosses nothing, and neither does a fraction of nothing known, or what is above the capacity of a disk.
func (t *Threshold) crossed(o Observation, reclaim bool) bool {
	available, measured := o.Available.Get()
	required, known := t.Value.Of(o)
	if !measured || !known || t.AboveDisk(o) || t.Signal == MemoryStall && !t.contended(&o) {
		return false
	}
	if reclaim {
		more, _ := t.MinReclaim.Of(o)
		available -= more // required + more could overflow
	}
	return required > available
}

// AboveDisk reports whether a threshold of a disk is not below the capacity of the disk: it would evict every pod, and
// is meant for a disk that is mounted there later.
func (t *Threshold) AboveDisk(o Observation) bool {
	capacity, measured := o.Capacity.Get()
	required, known := t.Value.Of(o)
	return t.Signal.Condition() == DiskPressure && measured && known && capacity > 0 && required >= capacity
}

// MaxThresholds bounds a configuration: a hard and a soft threshold for each
// signal, and the copies that allocatableMemory.available takes over.
const MaxThresholds = 2*NumSignals + 2

// Config is what Decide needs to know of the configuration.
type Config struct {
	// Thresholds in the order in which they act, which New sees to.
	Thresholds []Threshold
	Layout     Layout
	// MaxPodGracePeriod, seconds, bounds the grace of victims of soft
	// thresholds.
	MaxPodGracePeriod int64
	// PressureTransitionPeriod is how long a condition outlives its cause.
	PressureTransitionPeriod time.Duration
	// HardGrace is the grace of victims of hard thresholds and of limits, at most the
	// announced second; shorter where the signal is used up before.
	HardGrace time.Duration
	// WithdrawsSoft has soft victims whose evictions are requested withdrawn once what they were chosen for is
	// over.
	WithdrawsSoft bool
	// SoftPatience is how late the kill of a soft victim may begin.
	SoftPatience time.Duration
	// DryRun kills nothing: a victim leaves flight when it would be overdue.
	DryRun bool
	// Lapse is the longest time between housekeeping passes that counts toward
	// graces in full; zero counts any.
	Lapse time.Duration
	// MemoryStallWindow is the time of which memory.stall is a part; zero where no threshold of it is set.
	MemoryStallWindow time.Duration
	// LocalStorageCapacityIsolation turns the local-storage limits on.
	LocalStorageCapacityIsolation bool
	// EnoughVictims ends as many pods in a pass as cover what is missing, one
	// otherwise.
	EnoughVictims bool
	// PreferenceNamespaces are those in which the Preference of a pod counts.
	PreferenceNamespaces []string
	// MemoryReclaims is off where it is zero, and so is ThrottlePeriod, which is how long the pod is throttled that
	// is about to use up the memory above a hard threshold.
	MemoryReclaims MemoryReclaims
	ThrottlePeriod time.Duration
	// Restarts says when a container is restarted in place of the eviction of its pod.
	Restarts Restarts
	// Resizes says in which namespaces the memory limits of containers are raised.
	Resizes Resizes
	// Warnings says which pods are warned before one is evicted.
	Warnings Warnings
	// MeasuresRelief has victims follow by what earlier ones gave back, and a soft victim
	// that ranks first end at a hard threshold in place of another pod.
	MeasuresRelief bool
}

// New completes a configuration for a layout: containerfs takes over the
// thresholds of the filesystem that writable layers are on, whatever it was
// given.
func New(c Config, layout Layout) Config {
	follows := containerFsFollows[layout]
	takenOver := map[Signal]Signal{follows.available: ContainerFsAvailable, follows.inodesFree: ContainerFsInodesFree}
	thresholds := make([]Threshold, 0, MaxThresholds)
	for _, t := range c.Thresholds {
		if t.Signal == ContainerFsAvailable || t.Signal == ContainerFsInodesFree {
			continue
		}
		thresholds = append(thresholds, t)
		if copied, ok := takenOver[t.Signal]; ok {
			t.Signal = copied
			thresholds = append(thresholds, t)
		}
	}
	c.Thresholds, c.Layout = Order(thresholds), layout
	return c
}

// Order sorts thresholds, in place, into the order in which they act: memory
// before everything else, as in the kubelet; then hard before soft; then by
// signal. Unlike the kubelet's, the order is total.
func Order(thresholds []Threshold) []Threshold {
	slices.SortStableFunc(thresholds, func(a, b Threshold) int {
		return cmp.Or(
			compareBool(a.Signal.Condition() != MemoryPressure, b.Signal.Condition() != MemoryPressure),
			compareBool(!a.Hard(), !b.Hard()),
			cmp.Compare(a.Signal, b.Signal))
	})
	return thresholds
}

// compareBool orders false before true.
func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	default:
		return 1
	}
}
