package stats

import (
	"cmp"
	"time"
)

// trendSpan is the Span of a Trend that has none.
const trendSpan = 5 * time.Second

// Trend follows an amount and tells how fast it changes. The zero Trend has
// seen nothing.
type Trend struct {
	// Span is how far back it looks, more or less: older changes weigh less and
	// less. Zero means 5 s.
	Span time.Duration

	at   time.Time
	last int64
	rate float64 // units a second, negative while the amount falls
}

// Observe takes up the amount at an instant. What was not measured, and an
// instant that does not move on, leave the trend as it is.
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

// PerSecond is the present rate, units a second; negative while the amount falls.
func (t *Trend) PerSecond() int64 { return int64(t.rate) }

// Until is how long the amount takes to fall to a floor at the present rate:
// zero where it is there already, and not known where it does not fall.
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
