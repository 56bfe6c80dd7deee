package stats

import (
	"cmp"
	"time"
)

// trendSpan is the Span of a Trend that has none.
const trendSpan = 5 * time.Second

// Trend computes how fast an amount changes. The zero Trend has no observation.
type Trend struct {
	// Span is the time constant: the weight of older changes decreases. Zero means 5 s.
	Span time.Duration

	at   time.Time
	last int64
	rate float64 // units a second, negative while the amount falls
}

// Observe adds the amount at an instant. An unknown amount, and an instant not after
// the last one, are ignored.
func (t *Trend) Observe(at time.Time, amount Amount) {
	n, known := amount.Get()
	elapsed := at.Sub(t.at)
	if !known || !t.at.IsZero() && elapsed <= 0 {
		return
	}
	if !t.at.IsZero() {
		weight := float64(elapsed) / float64(elapsed+cmp.Or(t.Span, trendSpan))
		t.rate += weight * (float64(n-t.last)/elapsed.Seconds() - t.rate)
	}
	t.at, t.last = at, n
}

// Observed says whether there is an observation.
func (t *Trend) Observed() bool { return !t.at.IsZero() }

// PerSecond is the present rate, units a second; negative while the amount falls.
func (t *Trend) PerSecond() int64 { return int64(t.rate) }

// Until is how long the amount takes to fall to a floor at the present rate: zero where
// it is below, and not known where it does not fall.
func (t *Trend) Until(floor int64) (time.Duration, bool) {
	switch {
	case t.at.IsZero():
		return 0, false
	case t.last <= floor:
		return 0, true
	case t.rate >= -1:
		return 0, false
	}
	seconds := float64(t.last-floor) / -t.rate
	const horizon = 24 * 60 * 60
	return time.Duration(min(seconds, horizon) * float64(time.Second)), seconds <= horizon
}
