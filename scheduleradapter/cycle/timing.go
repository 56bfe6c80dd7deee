package cycle

import (
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/evictd/evictd/internal/metric"
	"github.com/evictd/evictd/scheduleradapter/framework"
	"github.com/evictd/evictd/scheduleradapter/nodetable"
	"github.com/evictd/evictd/scheduleradapter/queue"
)

// timings are the metrics of durations. They cache the observers, so that an attempt
// does not allocate. Any goroutine may use points, only the loop's the others.
type timings struct {
	points, plugins, events, hints *prometheus.HistogramVec
	evaluations, executions        *prometheus.HistogramVec

	ofSpan  map[profileSpan]prometheus.Observer
	ofEvent map[framework.Event]prometheus.Observer
}

// profileSpan is the key of an observer; Took is zero.
type profileSpan struct {
	framework.Span
	profile string
}

func newTimings(stable, beta, alpha metric.Maker) timings {
	tenths := prometheus.ExponentialBuckets(0.0001, 2, 12)
	fine := prometheus.ExponentialBuckets(0.00001, 1.5, 20)
	long := prometheus.ExponentialBuckets(0.001, 2, 16)
	return timings{
		points:      stable.Histogram("scheduler_framework_extension_point_duration_seconds", "Duration of all plugins of an extension point.", tenths, "extension_point", "status", "profile"),
		plugins:     beta.Histogram("scheduler_plugin_execution_duration_seconds", "Duration of a plugin at an extension point, in every tenth attempt.", fine, "plugin", "extension_point", "status"),
		events:      alpha.Histogram("scheduler_event_handling_duration_seconds", "Duration of handling a cluster event in the queue.", tenths, "event"),
		hints:       alpha.Histogram("scheduler_queueing_hint_execution_duration_seconds", "Duration of a queueing hint.", fine, "plugin", "event", "hint"),
		evaluations: alpha.Histogram("scheduler_preemption_evaluation_duration_seconds", "Duration of selecting victims.", long, "preemptor", "result"),
		executions:  alpha.Histogram("scheduler_preemption_execution_duration_seconds", "Duration of deleting victims.", long, "preemptor", "result"),
		ofSpan:      map[profileSpan]prometheus.Observer{},
		ofEvent:     map[framework.Event]prometheus.Observer{},
	}
}

// preemptor is the label value of preemptions by a single pod.
const preemptor = "pod"

// label is the label value of an extension point.
func label(p framework.Point) string {
	name := p.String()
	return strings.ToUpper(name[:1]) + name[1:]
}

func (t *timings) attempted(spans []framework.Span, profile string) {
	for _, s := range spans {
		kind := profileSpan{s, profile}
		kind.Took = 0
		o := t.ofSpan[kind]
		if o == nil {
			o = t.observer(kind)
			t.ofSpan[kind] = o
		}
		o.Observe(s.Took.Seconds())
		if isPostFilter(s) {
			t.evaluations.WithLabelValues(preemptor, s.Code.String()).Observe(s.Took.Seconds())
		}
	}
}

// isPostFilter reports whether a span is that of all PostFilter plugins.
func isPostFilter(s framework.Span) bool { return s.Point == framework.PostFilter && s.Plugin == "" }

func (t *timings) observer(kind profileSpan) prometheus.Observer {
	if kind.Plugin != "" {
		return t.plugins.WithLabelValues(kind.Plugin, label(kind.Point), kind.Code.String())
	}
	return t.points.WithLabelValues(label(kind.Point), kind.Code.String(), kind.profile)
}

func (t *timings) point(p framework.Point, s framework.Status, profile string, took time.Duration) {
	t.points.WithLabelValues(label(p), s.Code.String(), profile).Observe(took.Seconds())
}

func (t *timings) eventHandled(event framework.Event, took time.Duration) {
	o := t.ofEvent[event]
	if o == nil {
		o = t.events.WithLabelValues(event.String())
		t.ofEvent[event] = o
	}
	o.Observe(took.Seconds())
}

func (t *timings) preemptionExecuted(err error, took time.Duration) {
	result := "success"
	if err != nil {
		result = "error"
	}
	t.executions.WithLabelValues(preemptor, result).Observe(took.Seconds())
}

// measuredProfile is a profile whose queueing hints are measured.
type measuredProfile struct {
	queue.Profile
	hints map[string][]framework.EventHint
}

func (m measuredProfile) Hints() map[string][]framework.EventHint { return m.hints }

func (t *timings) measureHints(p queue.Profile) queue.Profile {
	m := measuredProfile{p, map[string][]framework.EventHint{}}
	for plugin, hints := range p.Hints() {
		own := make([]framework.EventHint, len(hints))
		for i, h := range hints {
			if own[i] = h; h.Hint != nil {
				own[i].Hint = t.measureHint(plugin, h.Hint)
			}
		}
		m.hints[plugin] = own
	}
	return m
}

type hintResult struct {
	event framework.Event
	label string
}

func (t *timings) measureHint(plugin string, call hintFunc) hintFunc {
	observers := map[hintResult]prometheus.Observer{}
	return func(o *framework.Occurrence, pod *nodetable.Pod) (framework.Hint, error) {
		begin := time.Now()
		hint, err := call(o, pod)
		took := time.Since(begin)
		v := hintResult{o.Event, hint.String()}
		if err != nil {
			v.label = "Error"
		}
		observer := observers[v]
		if observer == nil {
			observer = t.hints.WithLabelValues(plugin, o.Event.String(), v.label)
			observers[v] = observer
		}
		observer.Observe(took.Seconds())
		return hint, err
	}
}

type hintFunc = func(*framework.Occurrence, *nodetable.Pod) (framework.Hint, error)
