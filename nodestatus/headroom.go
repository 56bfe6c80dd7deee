package nodestatus

import (
	"encoding/json"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/evictd/evictd/eviction"
	"github.com/evictd/evictd/stats"
)

const (
	// HeadroomAnnotation holds a Headroom on the daemon's Lease.
	HeadroomAnnotation = "evictd.io/pressure"

	maxHeadroomBytes = 4096
	maxEvicted       = 32
	evictedWindow    = 30 * time.Minute
	tightSeconds     = 60
	headroomVersion  = 1
)

// Level says how near a signal is to its thresholds.
type Level string

// The levels, from the farthest to the lowest.
const (
	LevelOK Level = "ok"
	// LevelTight is within a quarter of the nearest threshold above it, or
	// within 60 s of it by the forecast.
	LevelTight Level = "tight"
	LevelSoft  Level = "soft" // below a soft threshold
	LevelHard  Level = "hard" // below a hard one
)

// Headroom is what the daemon publishes for the scheduler: its node's signals and
// recent evictions.
type Headroom struct {
	Version int                       `json:"v"`
	Signals map[string]SignalHeadroom `json:"signals"`
	Evicted []Evicted                 `json:"evicted"` // oldest first
}

// SignalHeadroom is how far one signal is from its nearest threshold: the
// highest of those it is not below, or the lowest where it is below all.
type SignalHeadroom struct {
	Level              Level    `json:"level"`
	Available          string   `json:"available"`
	Threshold          string   `json:"threshold"`
	SecondsToThreshold *float64 `json:"secondsToThreshold,omitempty"`
}

// Evicted is one recent eviction.
type Evicted struct {
	Owner  string    `json:"owner"` // uid of the controlling owner, else of the pod
	Signal string    `json:"signal"`
	At     time.Time `json:"at"`
}

// Measured is a signal against its thresholds, in bytes, inodes or tasks.
type Measured struct {
	Signal    eviction.Signal
	Available stats.Amount
	Hard      []int64
	Soft      []int64
	// SecondsToThreshold is the forecast time until the next threshold is crossed; nil
	// where the signal does not fall.
	SecondsToThreshold *float64
}

// NewHeadroom makes the headroom as of now. It leaves out signals that were not
// measured or have no threshold, evictions older than 30 minutes, and all but the last
// 32.
func NewHeadroom(signals []Measured, evicted []Evicted, now time.Time) Headroom {
	h := Headroom{Version: headroomVersion, Signals: map[string]SignalHeadroom{}, Evicted: []Evicted{}}
	for _, m := range signals {
		if signal, ok := m.headroom(); ok {
			h.Signals[m.Signal.String()] = signal
		}
	}
	for _, e := range evicted {
		if now.Sub(e.At) < evictedWindow {
			e.At = e.At.UTC().Truncate(time.Second)
			h.Evicted = append(h.Evicted, e)
		}
	}
	slices.SortStableFunc(h.Evicted, func(a, b Evicted) int { return a.At.Compare(b.At) })
	h.Evicted = h.Evicted[max(0, len(h.Evicted)-maxEvicted):]
	return h
}

// SameLevels says whether both have the same signals at the same levels.
func (h Headroom) SameLevels(other Headroom) bool {
	return maps.EqualFunc(h.Signals, other.Signals, func(a, b SignalHeadroom) bool { return a.Level == b.Level })
}

// Annotation is the value of HeadroomAnnotation, at most 4096 bytes: the oldest
// evictions are left out to fit.
func (h Headroom) Annotation() (string, error) {
	for {
		text, err := json.Marshal(h)
		if err != nil || len(text) <= maxHeadroomBytes || len(h.Evicted) == 0 {
			return string(text), err
		}
		h.Evicted = h.Evicted[1:]
	}
}

func (m Measured) headroom() (h SignalHeadroom, ok bool) {
	available, known := m.Available.Get()
	if !known || len(m.Hard)+len(m.Soft) == 0 {
		return SignalHeadroom{}, false
	}
	nearest, ahead := nearest(available, slices.Concat(m.Hard, m.Soft))
	h = SignalHeadroom{
		Available: m.Signal.Quantity(available),
		Threshold: m.Signal.Quantity(nearest),
	}
	if ahead && m.SecondsToThreshold != nil {
		tenths := math.Round(*m.SecondsToThreshold*10) / 10
		h.SecondsToThreshold = &tenths
	}
	switch {
	case slices.ContainsFunc(m.Hard, func(t int64) bool { return available < t }):
		h.Level = LevelHard
	case slices.ContainsFunc(m.Soft, func(t int64) bool { return available < t }):
		h.Level = LevelSoft
	case available-nearest <= m.tight(nearest), h.SecondsToThreshold != nil && *h.SecondsToThreshold <= tightSeconds:
		h.Level = LevelTight
	default:
		h.Level = LevelOK
	}
	return h, true
}

// tight is a quarter of a threshold: of the share of the time of a stall, which acts above it.
func (m Measured) tight(threshold int64) int64 {
	if m.Signal == eviction.MemoryStall {
		threshold = stats.WholeTime - threshold
	}
	return threshold / 4
}

// nearest is the highest threshold that available is not below, or else the lowest.
func nearest(available int64, thresholds []int64) (threshold int64, ahead bool) {
	threshold = slices.Min(thresholds)
	for _, t := range thresholds {
		if t <= available {
			threshold, ahead = max(threshold, t), true
		}
	}
	return threshold, ahead
}
