// Package statuspage serves the status page of the scheduler.
package statuspage

import (
	"context"
	"embed"
	"maps"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/evictd/evictd/internal/page"
	"github.com/evictd/evictd/internal/serve"
	"github.com/evictd/evictd/scheduleradapter/cycle"
)

//go:embed web
var web embed.FS

// Interval of Figures.Take.
const Interval = 5 * time.Second

const (
	// keptFigures are those of 15 minutes.
	keptFigures = int(15 * time.Minute / Interval)
	// shownPending bounds the listed pods.
	shownPending = 200
)

// Figures are the metrics that the page shows, for the last 15 minutes.
type Figures struct {
	metrics prometheus.Gatherer
	kept    *page.Ring[figure]
}

// figure has the metrics at an instant; totals count since the start.
type figure struct {
	At       int64              `json:"at"` // ms
	Pending  map[string]float64 `json:"pending"`
	Attempts map[string]float64 `json:"attempts"` // by result
	// Durations are the cumulative counts of attempts by upper bound; Bounds are in
	// seconds.
	Durations []uint64  `json:"durations"`
	Bounds    []float64 `json:"bounds"`
}

// NewFigures reads from a gatherer.
func NewFigures(metrics prometheus.Gatherer) *Figures {
	return &Figures{metrics, page.NewRing[figure](keptFigures)}
}

// Take reads the metrics. Metrics that cannot be read are left out.
func (f *Figures) Take(now time.Time) {
	families, _ := f.metrics.Gather()
	is := figure{At: now.UnixMilli(), Pending: map[string]float64{}, Attempts: map[string]float64{}}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			labels := map[string]string{}
			for _, l := range m.GetLabel() {
				labels[l.GetName()] = l.GetValue()
			}
			switch family.GetName() {
			case "scheduler_pending_pods":
				is.Pending[labels["queue"]] = m.GetGauge().GetValue()
			case "scheduler_schedule_attempts_total":
				is.Attempts[labels["result"]] += m.GetCounter().GetValue()
			case "scheduler_scheduling_attempt_duration_seconds":
				for i, b := range m.GetHistogram().GetBucket() {
					if i == len(is.Bounds) {
						is.Bounds, is.Durations = append(is.Bounds, b.GetUpperBound()), append(is.Durations, 0)
					}
					is.Durations[i] += b.GetCumulativeCount()
				}
			}
		}
	}
	f.kept.Add(is)
}

// since are the figures after an instant, oldest first.
func (f *Figures) since(at time.Time) []figure {
	all := f.kept.All()
	for len(all) > 0 && all[0].At <= at.UnixMilli() {
		all = all[1:]
	}
	return all
}

type overview struct {
	At       int64  `json:"at"` // ms
	Standing string `json:"standing"`
	Placed   int    `json:"placed"` // pods with a node
	Pending  int    `json:"pending"`
	Nodes    int    `json:"nodes"`

	Kinds map[cycle.NodeKind]int `json:"kinds"` // number of nodes
}

// New makes the page. state is the text of the scheduler's state.
func New(l *cycle.Loop, figures *Figures, state func() string) *page.Page {
	past := func(since time.Time) page.Event { return page.Event{Name: "figures", Data: figures.since(since)} }
	shown := newNodes()
	return page.New(web, page.Feed{History: past, Current: func(ctx context.Context) ([]page.Event, error) {
		now := time.Now()
		ctx, cancel := context.WithTimeout(ctx, serve.Timeout)
		defer cancel()
		type summary struct {
			overview
			pending []cycle.PendingPod
		}
		is, err := cycle.Ask(ctx, l, func() (is summary) {
			is.pending, is.Pending, is.Placed, is.Nodes = l.Pending(shownPending), l.Queue.Len(), l.Table.PodCount(), l.Table.Len()
			return is
		})
		if err == nil {
			err = shown.follow(ctx, l, now)
		}
		if err != nil {
			shown = newNodes()
			return nil, err
		}
		is.At, is.Standing, is.Kinds = now.UnixMilli(), state(), maps.Clone(shown.counts)
		return []page.Event{
			{Name: "overview", Data: is.overview},
			{Name: "pending", Data: is.pending},
			shown.event(),
			past(now.Add(-2 * Interval)),
		}, nil
	}})
}
