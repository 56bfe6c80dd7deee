package cycle

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/evictd/evictd/scheduleradapter/framework"
)

func TestEveryAttemptIsMeasuredAndEveryTenthByPlugin(t *testing.T) {
	c := newCluster(t)
	c.node("a")
	c.node("b")
	now := time.Duration(0)
	c.Measure(func() time.Duration { now++; return now })
	for i := range 2*pluginMetricsEvery + 1 {
		r := c.SchedulingCycle(c.pod(fmt.Sprint(i), requests("1m", "1Mi")), time.Time{})
		var points []framework.Point
		plugins := 0
		for _, span := range r.Cycle.Timing.Spans {
			if span.Plugin != "" {
				plugins++
			} else {
				points = append(points, span.Point)
			}
			if span.Took <= 0 {
				t.Errorf("%v took %v", span, span.Took)
			}
		}
		if want := []framework.Point{framework.PreFilter, framework.Filter, framework.PreScore, framework.Score, framework.Reserve, framework.Permit}; !slices.Equal(points, want) {
			t.Fatalf("attempt %d: %v, want %v", i, points, want)
		}
		if (plugins > 0) != (i%pluginMetricsEvery == 0) {
			t.Errorf("attempt %d: %d spans of plugins", i, plugins)
		}
	}
}

func TestMeasuringAllocatesNothing(t *testing.T) {
	c := newCluster(t)
	c.node("a")
	p := c.pod("p")
	start := time.Now()
	step := func() {
		c.table.Displace(p.UID)
		c.SchedulingCycle(p, time.Time{})
	}
	allocations := func() float64 {
		for range 20 {
			step()
		}
		return testing.AllocsPerRun(100, step)
	}
	without := allocations()
	c.Measure(func() time.Duration { return time.Since(start) })
	if with := allocations(); with > without {
		t.Errorf("%v allocations an attempt, %v unmeasured", with, without)
	}
}
