package eviction

import (
	"cmp"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/evictd/evictd/stats"
)

const (
	// leastReadBack is the least memory, bytes a second, that has to be read back for a stall to be a lack
	// of memory. Tasks that memory.high throttles wait, too, and so do those that read a large file once: other pods
	// read back some of what that displaces.
	leastReadBack = 1 << 20
	// A pod causes the contention that reads back at least one part in causeShare of what the pod does that reads
	// back most, and whose tasks wait at least one part in causeShare as long as those of the pod that waits
	// longest. Beside a pod that waits at its own limit a wait of longWait is long enough; less than shortWait never is.
	causeShare          = 2
	shortWait, longWait = stats.WholeTime / 100, stats.WholeTime / 10
)

// Share is a part of a time, in 10,000.
type Share int64

// String writes the share in percent.
func (s Share) String() string {
	return strconv.FormatFloat(float64(s)/100, 'f', -1, 64) + "%"
}

// MarshalText writes the share in percent.
func (s Share) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText is ParseShare.
func (s *Share) UnmarshalText(text []byte) (err error) {
	*s, err = ParseShare(string(text))
	return err
}

// ParseShare reads a share in percent, from 0% to 100%.
func ParseShare(text string) (Share, error) {
	number, is := strings.CutSuffix(text, "%")
	percent, err := strconv.ParseFloat(number, 64)
	if !is || err != nil || !(percent >= 0 && percent <= 100) {
		return 0, fmt.Errorf("%q is not a percentage such as 40%%", text)
	}
	return Share(math.Round(percent * 100)), nil
}

// Value is that of a threshold of memory.stall.
func (s Share) Value() Value { return Value{Amount: stats.WholeTime - int64(s)} }

// contended says whether what else a threshold of memory.stall asks for is observed: that some tasks waited as
// long as it says, and that memory was read back.
func (t *Threshold) contended(o *Observation) bool {
	return o.ReadBack.Or(0) >= leastReadBack && o.Some.Or(0) >= int64(t.Some)
}

// contention is the most that any candidate reads back, in bytes a second, and waits.
type contention struct{ readBack, wait int64 }

func contentionOf(candidates []Candidate) (most contention) {
	for i := range candidates {
		most.readBack = max(most.readBack, candidates[i].ReadBack)
		most.wait = max(most.wait, candidates[i].Stalled.Or(0))
	}
	return most
}

// causes says whether the candidate causes the contention.
func (c *Candidate) causes(most contention) bool {
	waits := c.Stalled.Or(stats.WholeTime)
	long := waits >= longWait || waits >= shortWait && waits*causeShare >= most.wait
	return long && c.ReadBack > 0 && c.ReadBack*causeShare >= most.readBack
}

// The keys of memory.stall.
var (
	byCause = key{
		"causes the contention",
		func(r *Ranked) string { return either(r.Causes, "yes", "no") },
		func(a, b Ranked) int { return compareBool(!a.Causes, !b.Causes) },
		func(a, b *Ranked) string {
			return fmt.Sprintf("reads back %s/s of memory%s; %v does not cause the contention", rounded(a.ReadBack), a.stalled(), b.Pod)
		},
	}
	byReadBack = key{
		"reads back",
		func(r *Ranked) string { return MemoryAvailable.Quantity(r.ReadBack) + "/s" },
		func(a, b Ranked) int {
			if !a.Causes && !b.Causes {
				return 0
			}
			return cmp.Compare(b.ReadBack, a.ReadBack)
		},
		func(a, b *Ranked) string {
			first, second := a.pair(a.ReadBack, b.ReadBack)
			return fmt.Sprintf("reads back %s/s of memory%s, %v %s/s", first, a.stalled(), b.Pod, second)
		},
	}
)

// stalled says how long the pod's tasks waited, where that is known.
func (c *Candidate) stalled() string {
	share, known := c.Stalled.Get()
	if !known {
		return ""
	}
	return fmt.Sprintf(" and waits for it in %v of the time", Share(share))
}
