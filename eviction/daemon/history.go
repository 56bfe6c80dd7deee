package daemon

import (
	"context"
	"embed"
	"time"

	"github.com/evictd/evictd/eviction"
	"github.com/evictd/evictd/eviction/control"
	"github.com/evictd/evictd/internal/page"
	"github.com/evictd/evictd/nodestatus"
	"github.com/evictd/evictd/stats"
)

//go:embed web
var web embed.FS

// What a page shows at once when it is opened: the last quarter of an hour, in 20 KiB.
const (
	samplesKept = 90
	sampleEvery = 10 * time.Second
)

// history keeps that. It is fed beside the loop.
type history struct {
	samples *page.Ring[sample]
	sampled time.Time // the last of them; of Record's goroutine
}

// sample is how the node stood.
type sample struct {
	at        time.Time
	available [eviction.NumSignals]stats.Amount
	stalls    [3]stats.Stall
}

func newHistory() *history {
	return &history{samples: page.NewRing[sample](samplesKept)}
}

// Record implements publish.Recorder.
func (h *history) Record(r control.Report) {
	if r.Ended != nil || len(r.Decisions) == 0 && r.At.Sub(h.sampled) < sampleEvery {
		return
	}
	h.sampled = r.At
	s := sample{at: r.At, stalls: [3]stats.Stall{r.Node.MemoryStall, r.Node.IOStall, r.Node.CPUStall}}
	for i := range s.available {
		s.available[i] = r.Observations[i].Available
	}
	if free, known := s.available[eviction.MemoryStall].Get(); known { // percent, as in the status document
		s.available[eviction.MemoryStall] = stats.Known((stats.WholeTime - free + 50) / 100)
	}
	h.samples.Add(s)
}

// pastSample is a sample as the page has it: milliseconds, what is available of each
// signal in their order, and for how many seconds memory, io and cpu have stalled some.
type pastSample struct {
	At        int64      `json:"at"`
	Available []*int64   `json:"available"`
	Stalled   []*float64 `json:"stalled"`
}

// past is the event with which a page begins, and by which an open one has what came
// between two looks: a crossing is over before the next.
func (h *history) past(since time.Time) page.Event {
	doc := struct {
		Signals []string     `json:"signals"`
		Samples []pastSample `json:"samples"`
	}{Samples: []pastSample{}}
	for _, s := range eviction.Signals() {
		doc.Signals = append(doc.Signals, s.String())
	}
	for _, s := range h.samples.All() {
		if !s.at.After(since) {
			continue
		}
		p := pastSample{At: s.at.UnixMilli()}
		for _, a := range s.available {
			p.Available = append(p.Available, known(a.Get()))
		}
		for _, s := range s.stalls {
			p.Stalled = append(p.Stalled, known(s.Some.Seconds(), s.Known))
		}
		doc.Samples = append(doc.Samples, p)
	}
	return page.Event{Name: "past", Data: doc}
}

func known[T any](value T, is bool) *T {
	if !is {
		return nil
	}
	return &value
}

// newPage makes the status page.
func (d *Daemon) newPage(h *history) *page.Page {
	return page.New(web, page.Feed{History: h.past, Current: func(ctx context.Context) ([]page.Event, error) {
		status, err := d.publisher.Status(ctx)
		if err != nil {
			return nil, err
		}
		if status.Runtime != nil { // a copy: what is of no use to the page
			status.Runtime.Pods, status.Runtime.Calls = nil, nil
		}
		return []page.Event{h.past(status.Time.Add(-sampleEvery)), {Name: "status", Data: struct {
			Status  nodestatus.Status `json:"status"`
			Version string            `json:"version"`
		}{Status: status, Version: d.config.Version}}}, nil
	}})
}
