package scheduleradapter

import (
	"context"
	"embed"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/evictd/evictd/internal/page"
	"github.com/evictd/evictd/scheduleradapter/cycle"
)

//go:embed web
var web embed.FS

const (
	// figuresKept are a quarter of an hour.
	figuresKept = int(15 * time.Minute / attendEvery)
	// shownPending bounds the pods that the status page lists.
	shownPending = 200
)

// figures are what the status page shows of the metrics, now and before.
type figures struct {
	metrics prometheus.Gatherer
	kept    *page.Ring[figure]
}

// figure is how the metrics stood; totals count since the start.
type figure struct {
	At       int64              `json:"at"` // ms
	Pending  map[string]float64 `json:"pending"`
	Attempts map[string]float64 `json:"attempts"` // by result
	// Durations of attempts: how many took no longer than each of Bounds, seconds.
	Durations []uint64  `json:"durations"`
	Bounds    []float64 `json:"bounds"`
}

func newFigures(metrics prometheus.Gatherer) *figures {
	return &figures{metrics, page.NewRing[figure](figuresKept)}
}

// take reads the metrics. What cannot be read is left out.
func (f *figures) take(now time.Time) {
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
func (f *figures) since(at time.Time) []figure {
	all := f.kept.All()
	for len(all) > 0 && all[0].At <= at.UnixMilli() {
		all = all[1:]
	}
	return all
}

// overview is of the cluster.
type overview struct {
	At       int64  `json:"at"` // ms
	Standing string `json:"standing"`
	Placed   int    `json:"placed"` // pods that have a node
	Pending  int    `json:"pending"`
	Nodes    int    `json:"nodes"`
}

// newPage makes the status page.
func (d *daemon) newPage() *page.Page {
	past := func(since time.Time) page.Event { return page.Event{Name: "figures", Data: d.figures.since(since)} }
	return page.New(web, page.Feed{Past: past, Now: func(ctx context.Context) ([]page.Event, error) {
		now := time.Now()
		var o overview
		var pending []cycle.PendingPod
		nodes, err := onLoop(ctx, d.loop, func() []cycle.NodeSummary {
			pending, o.Pending, o.Placed = d.loop.Pending(shownPending), d.loop.Queue.Len(), d.loop.Table.PodCount()
			return d.loop.Nodes(now)
		})
		if err != nil {
			return nil, err
		}
		o.At, o.Standing, o.Nodes = now.UnixMilli(), d.standing(), len(nodes)
		return []page.Event{
			{Name: "overview", Data: o},
			{Name: "pending", Data: pending},
			{Name: "nodes", Data: nodes},
			past(now.Add(-2 * attendEvery)),
		}, nil
	}})
}
