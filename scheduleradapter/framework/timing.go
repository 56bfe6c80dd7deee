package framework

import "time"

// Timing measures the attempts of a Cycle, one after the other.
type Timing struct {
	// Clock is the time since any instant; nil measures nothing.
	Clock func() time.Duration
	// Plugins says that the attempt's plugins are measured one by one too.
	Plugins bool
	// Spans are those of the latest attempt.
	Spans []Span
}

// Span is how long an extension point took, or one plugin there.
type Span struct {
	Point  Point
	Plugin string // empty for all together
	Code   Code
	Took   time.Duration
}

// Begin is the beginning of an extension point, for End.
func (t *Timing) Begin() time.Duration {
	if t.Clock == nil {
		return 0
	}
	return t.Clock()
}

// End measures an extension point.
func (t *Timing) End(point Point, code Code, begin time.Duration) {
	if t.Clock != nil {
		t.Spans = append(t.Spans, Span{Point: point, Code: code, Took: t.Clock() - begin})
	}
}

func (t *Timing) beginPlugin() time.Duration {
	if !t.Plugins {
		return 0
	}
	return t.Clock()
}

func (t *Timing) endPlugin(point Point, plugin string, code Code, begin time.Duration) {
	if t.Plugins {
		t.Spans = append(t.Spans, Span{point, plugin, code, t.Clock() - begin})
	}
}
