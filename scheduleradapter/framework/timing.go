package framework

import "time"

// Timing measures the cycles that use it.
type Timing struct {
	// Clock is the time since any instant; nil: not measured.
	Clock func() time.Duration
	// Plugins: single plugins are measured.
	Plugins bool
	// Spans of the last cycle.
	Spans []Span
}

// Span is the duration of an extension point or of one plugin there.
type Span struct {
	Point  Point
	Plugin string // empty: all plugins
	Code   Code
	Took   time.Duration
}

// Begin is the start of an extension point, for End.
func (t *Timing) Begin() time.Duration {
	if t.Clock == nil {
		return 0
	}
	return t.Clock()
}

// End records an extension point.
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
