package loop

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/evictd/evictd/scheduleradapter/queue"
)

// metrics are kube-scheduler's, by its names and with its buckets.
type metrics struct {
	attempts, preemptions *prometheus.CounterVec
	duration              *prometheus.HistogramVec
	permits, sli          *prometheus.HistogramVec
	violations            *prometheus.CounterVec
	timings
	algorithm, tries prometheus.Histogram
	victims          prometheus.Histogram
	loops            prometheus.Counter
}

func newMetrics(registerer prometheus.Registerer, l *Loop) *metrics {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		v := prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "scheduler", Name: name, Help: help}, labels)
		registerer.MustRegister(v)
		return v
	}
	histogram := func(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
		v := prometheus.NewHistogramVec(prometheus.HistogramOpts{Namespace: "scheduler", Name: name, Help: help, Buckets: buckets}, labels)
		registerer.MustRegister(v)
		return v
	}
	single := func(name, help string, buckets []float64) prometheus.Histogram {
		h := prometheus.NewHistogram(prometheus.HistogramOpts{Namespace: "scheduler", Name: name, Help: help, Buckets: buckets})
		registerer.MustRegister(h)
		return h
	}
	milliseconds := prometheus.ExponentialBuckets(0.001, 2, 15)
	m := &metrics{
		attempts:    counter("schedule_attempts_total", "Attempts to schedule pods, by result.", "result", "profile"),
		duration:    histogram("scheduling_attempt_duration_seconds", "Duration of attempts, the binding included.", milliseconds, "result", "profile"),
		algorithm:   single("scheduling_algorithm_duration_seconds", "Duration of finding a node.", milliseconds),
		sli:         histogram("pod_scheduling_sli_duration_seconds", "From a pod's coming into the queue to its being bound, by attempts.", prometheus.ExponentialBuckets(0.01, 2, 20), "attempts"),
		tries:       single("pod_scheduling_attempts", "Attempts it took to schedule a pod.", prometheus.ExponentialBuckets(1, 2, 5)),
		permits:     histogram("permit_wait_duration_seconds", "How long pods waited for permission.", milliseconds, "result"),
		preemptions: counter("preemption_attempts_total", "Attempts that found victims."),
		violations:  counter("preemption_pdb_violations_total", "Victims that a disruption budget protects.", "preemptor"),
		timings:     newTimings(histogram),
		victims:     single("preemption_victims", "Victims of an attempt.", prometheus.ExponentialBuckets(1, 2, 7)),
	}
	m.loops = prometheus.NewCounter(prometheus.CounterOpts{
		Namespace: "evictd_scheduler", Name: "preemption_loops_total", Help: "Preemptions by pods that had preempted on the same node before, while others took the room.",
	})
	registerer.MustRegister(m.loops, collector{l})
	return m
}

// results are kube-scheduler's names of outcomes.
var results = map[Outcome]string{Scheduled: "scheduled", Unschedulable: "unschedulable", Nominated: "unschedulable", Failed: "error"}

func (m *metrics) attempted(a *Attempt, took time.Duration) {
	m.algorithm.Observe(took.Seconds())
	if len(a.Victims) > 0 {
		m.preemptions.WithLabelValues().Inc()
		m.victims.Observe(float64(len(a.Victims)))
		m.violations.WithLabelValues(preemptor).Add(float64(a.Violations))
	}
	m.timings.attempted(a.Cycle.Timing.Spans, a.Pod.Object.Spec.SchedulerName)
	if a.Outcome != Scheduled && a.Outcome != Waiting {
		m.ended(a, took)
	}
}

// ended counts an attempt that is over.
func (m *metrics) ended(a *Attempt, took time.Duration) {
	result, profile := results[a.Outcome], a.Pod.Object.Spec.SchedulerName
	m.attempts.WithLabelValues(result, profile).Inc()
	m.duration.WithLabelValues(result, profile).Observe(took.Seconds())
}

func (m *metrics) scheduled(f *flight, now time.Time) {
	m.ended(f.Attempt, time.Since(f.begin))
	m.tries.Observe(float64(f.Number))
	attempts := strconv.Itoa(f.Number)
	if f.Number >= 15 {
		attempts = "15+"
	}
	m.sli.WithLabelValues(attempts).Observe(now.Sub(f.Added).Seconds())
}

func (m *metrics) permit(result string, took time.Duration) {
	m.permits.WithLabelValues(result).Observe(took.Seconds())
}

// collector asks the loop for what it alone knows.
type collector struct{ *Loop }

// patience is how long a collector waits for a loop that is busy, or over.
const patience = time.Second

var (
	pendingPods  = prometheus.NewDesc("scheduler_pending_pods", "Pods without a node, by where the queue keeps them.", []string{"queue"}, nil)
	incomingPods = prometheus.NewDesc("scheduler_queue_incoming_pods_total", "Pods that came into a part of the queue, by what brought them.", []string{"event", "queue"}, nil)
	blamedPods   = prometheus.NewDesc("scheduler_unschedulable_pods", "Pods that a plugin keeps from having a node.", []string{"plugin", "profile"}, nil)
	cacheSize    = prometheus.NewDesc("scheduler_cache_size", "Nodes, pods and assumed pods that the scheduler counts with.", []string{"type"}, nil)
	inFlight     = prometheus.NewDesc("scheduler_inflight_events", "Events kept for the pods that are being tried.", []string{"event"}, nil)
	goroutines   = prometheus.NewDesc("scheduler_goroutines", "Goroutines by what they do.", []string{"operation"}, nil)
)

// Describe names the metrics of Collect.
func (collector) Describe(descs chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{pendingPods, incomingPods, blamedPods, cacheSize, inFlight, goroutines} {
		descs <- d
	}
}

// Collect sends nothing where the loop does not answer.
func (c collector) Collect(into chan<- prometheus.Metric) {
	answer := make(chan []prometheus.Metric, 1)
	c.Do(func() { answer <- c.snapshot() })
	timeout := time.NewTimer(patience)
	defer timeout.Stop()
	select {
	case all := <-answer:
		for _, m := range all {
			into <- m
		}
	case <-timeout.C:
	}
}

func (c collector) snapshot() (all []prometheus.Metric) {
	add := func(d *prometheus.Desc, kind prometheus.ValueType, value int, labels ...string) {
		all = append(all, prometheus.MustNewConstMetric(d, kind, float64(value), labels...))
	}
	for _, place := range []queue.Place{queue.Active, queue.Backoff, queue.Unschedulable, queue.Gated} {
		add(pendingPods, prometheus.GaugeValue, c.Queue.Depth(place), place.String())
	}
	for arrival, n := range c.Queue.Arrivals() {
		add(incomingPods, prometheus.CounterValue, n, arrival.By.String(), arrival.To.String())
	}
	for _, blame := range c.Queue.Blames() {
		add(blamedPods, prometheus.GaugeValue, blame.Pods, blame.Plugin, blame.Profile)
	}
	add(cacheSize, prometheus.GaugeValue, c.Table.Len(), "nodes")
	add(cacheSize, prometheus.GaugeValue, c.Table.PodCount(), "pods")
	add(cacheSize, prometheus.GaugeValue, len(c.assumed), "assumed_pods")
	for event, n := range c.Queue.InFlightEvents() {
		add(inFlight, prometheus.GaugeValue, n, event.String())
	}
	add(goroutines, prometheus.GaugeValue, c.Bindings(), "binding")
	return all
}
