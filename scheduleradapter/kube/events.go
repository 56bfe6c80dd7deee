package kube

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clients "k8s.io/client-go/kubernetes/typed/events/v1"

	"github.com/evictd/evictd/scheduleradapter/cycle"
)

const (
	eventsKept   = 16384 // queued events; further ones are dropped
	eventWriters = 4
	// eventYield bounds how long the writer waits for running bindings and evictions
	// before it writes an event.
	eventYield = 100 * time.Millisecond
	// Events that repeat within seriesGap form a series, which is written at most
	// once per seriesPause.
	seriesGap   = 6 * time.Minute
	seriesPause = time.Minute
	seriesKept  = 8192
	noteLength  = 1024 // bytes; source: validation of events.k8s.io
)

// events writes the events of pods, with a lower priority than bindings and evictions.
// The broadcaster of client-go starts a goroutine for each event, which repeats a failed
// write for two minutes: while the API server is away nothing bounds them, and no write
// waits for a binding.
type events struct {
	client   clients.EventsGetter
	urgent   *traffic // events wait for these requests
	log      *slog.Logger
	instance string
	waiting  chan happening
	dropped  atomic.Int64

	mu     sync.Mutex
	series map[series]*repeats
}

type happening struct {
	cycle.Event
	at time.Time
}

// series is the key of events that differ in their notes only.
type series struct {
	pod            types.UID
	reason, action string
}

type repeats struct {
	name            string
	count           int32
	last, lastWrite time.Time
}

func newEvents(client clients.EventsGetter, urgent *traffic, log *slog.Logger) *events {
	host, _ := os.Hostname()
	return &events{client: client, urgent: urgent, log: log, instance: host, waiting: make(chan happening, eventsKept), series: map[series]*repeats{}}
}

func (e *events) add(event cycle.Event) {
	select {
	case e.waiting <- happening{event, time.Now()}:
	default:
		e.dropped.Add(1)
	}
}

func (e *events) run(ctx context.Context) {
	var writers sync.WaitGroup
	for range eventWriters {
		writers.Go(func() {
			for {
				select {
				case <-ctx.Done():
					return
				case h := <-e.waiting:
					e.yield(ctx)
					if err := e.write(ctx, h); err != nil && ctx.Err() == nil {
						e.log.Debug("event is not written", "reason", h.Reason, "pod", h.Regarding.Namespace+"/"+h.Regarding.Name, "error", err)
					}
				}
			}
		})
	}
	writers.Wait()
	if dropped := e.dropped.Load() + int64(len(e.waiting)); dropped > 0 {
		e.log.Warn("events are dropped", "events", dropped)
	}
}

// yield waits for running bindings and evictions, at most for eventYield.
func (e *events) yield(ctx context.Context) {
	late := time.NewTimer(eventYield)
	defer late.Stop()
	select {
	case <-e.urgent.pause():
	case <-late.C:
	case <-ctx.Done():
	}
}

func (e *events) write(ctx context.Context, h happening) error {
	client := e.client.Events(h.Regarding.Namespace)
	key := series{h.Regarding.UID, h.Reason, h.Action}
	name, count, write := e.count(key, h)
	switch {
	case !write:
		return nil
	case count == 1:
		_, err := client.Create(ctx, e.object(name, h), metav1.CreateOptions{})
		return err
	}
	body := fmt.Appendf(nil, `{"series":{"count":%d,"lastObservedTime":%q}}`, count, h.at.UTC().Format(metav1.RFC3339Micro))
	_, err := client.Patch(ctx, name, types.StrategicMergePatchType, body, metav1.PatchOptions{})
	if gone(err) { // the event has expired
		e.mu.Lock()
		delete(e.series, key)
		e.mu.Unlock()
		return nil
	}
	return err
}

// count adds an event to its series. It returns the name of the event object, the
// count, and whether it is to be written now.
func (e *events) count(key series, h happening) (name string, count int32, write bool) {
	name = fmt.Sprintf("%s.%x", strings.TrimRight(fmt.Sprintf("%.230s", h.Regarding.Name), ".-"), h.at.UnixNano())
	if h.Type == v1.EventTypeNormal { // not repeated
		return name, 1, true
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	s := e.series[key]
	if s == nil || h.at.Sub(s.last) > seriesGap {
		if len(e.series) >= seriesKept {
			clear(e.series)
		}
		e.series[key] = &repeats{name, 1, h.at, h.at}
		return name, 1, true
	}
	s.count++
	s.last = h.at
	if s.count > 2 && h.at.Sub(s.lastWrite) < seriesPause {
		return s.name, s.count, false
	}
	s.lastWrite = h.at
	return s.name, s.count, true
}

func (e *events) object(name string, h happening) *eventsv1.Event {
	object := &eventsv1.Event{
		ObjectMeta:          metav1.ObjectMeta{Name: name, Namespace: h.Regarding.Namespace},
		EventTime:           metav1.NewMicroTime(h.at),
		ReportingController: h.Controller,
		ReportingInstance:   h.Controller + "-" + e.instance,
		Type:                h.Type, Reason: h.Reason, Action: h.Action, Note: shortened(h.Note),
		Regarding: reference(h.Regarding),
	}
	if h.Related != nil {
		related := reference(h.Related)
		object.Related = &related
	}
	return object
}

func shortened(note string) string {
	const more = " ..."
	if len(note) <= noteLength {
		return note
	}
	return strings.ToValidUTF8(note[:noteLength-len(more)], "") + more
}

func reference(pod *v1.Pod) v1.ObjectReference {
	return v1.ObjectReference{
		APIVersion: cmp.Or(pod.APIVersion, "v1"), Kind: cmp.Or(pod.Kind, "Pod"), Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, ResourceVersion: pod.ResourceVersion,
	}
}
