package loop

import (
	"slices"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/evictd/evictd/internal/metric"
	"github.com/evictd/evictd/scheduleradapter/queue"
)

// metrics are kube-scheduler's, by its names and with its buckets.
type metrics struct {
	attempts, preemptions *prometheus.CounterVec
	duration              *prometheus.HistogramVec
	permits, sli          *prometheus.HistogramVec
	violations            *prometheus.CounterVec
	timings
	algorithm, tries prometheus.Observer
	victims          prometheus.Observer
	loops            prometheus.Counter
}

func newMetrics(set *metric.Set, l *Loop) *metrics {
	stable, beta, alpha := set.Of(metric.Scheduler, metric.Stable), set.Of(metric.Scheduler, metric.Beta), set.Of(metric.Scheduler, metric.Alpha)
	milliseconds := prometheus.ExponentialBuckets(0.001, 2, 15)
	m := &metrics{
		attempts:    stable.Counter("scheduler_schedule_attempts_total", "Attempts to schedule pods, by result.", "result", "profile"),
		duration:    stable.Histogram("scheduler_scheduling_attempt_duration_seconds", "Duration of attempts, the binding included.", milliseconds, "result", "profile"),
		algorithm:   beta.Histogram("scheduler_scheduling_algorithm_duration_seconds", "Duration of finding a node.", milliseconds).WithLabelValues(),
		sli:         beta.Histogram("scheduler_pod_scheduling_sli_duration_seconds", "From a pod's coming into the queue to its being bound, by attempts.", prometheus.ExponentialBuckets(0.01, 2, 20), "attempts"),
		tries:       stable.Histogram("scheduler_pod_scheduling_attempts", "Attempts it took to schedule a pod.", prometheus.ExponentialBuckets(1, 2, 5)).WithLabelValues(),
		permits:     beta.Histogram("scheduler_permit_wait_duration_seconds", "How long pods waited for permission.", milliseconds, "result"),
		preemptions: stable.Counter("scheduler_preemption_attempts_total", "Attempts to make room for a pod, in vain or not."),
		violations:  alpha.Counter("scheduler_preemption_pdb_violations_total", "Victims that a disruption budget protects.", "preemptor"),
		timings:     newTimings(stable, beta, alpha),
		victims:     stable.Histogram("scheduler_preemption_victims", "Victims of an attempt.", prometheus.ExponentialBuckets(1, 2, 7)).WithLabelValues(),
		loops: set.Of(metric.Own, metric.Alpha).Counter("evictd_scheduler_preemption_loops_total",
			"Preemptions by pods that had preempted on the same node before, while others took the room.").WithLabelValues(),
	}
	addQueue(set, l)
	return m
}

// results are kube-scheduler's names of outcomes.
var results = map[Outcome]string{Scheduled: "scheduled", Unschedulable: "unschedulable", Nominated: "unschedulable", Failed: "error"}

func (m *metrics) attempted(a *Attempt, took time.Duration) {
	m.algorithm.Observe(took.Seconds())
	if slices.ContainsFunc(a.Cycle.Timing.Spans, makesRoom) {
		m.preemptions.WithLabelValues().Inc()
	}
	if len(a.Victims) > 0 {
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

// patience is how long the page waits for a loop that is busy, or over.
const patience = time.Second

// addQueue adds what the loop alone knows. Where it does not answer nothing is told.
func addQueue(set *metric.Set, l *Loop) {
	stable, beta, alpha := set.Of(metric.Scheduler, metric.Stable), set.Of(metric.Scheduler, metric.Beta), set.Of(metric.Scheduler, metric.Alpha)
	pending := stable.AskedGauge("scheduler_pending_pods", "Pods without a node, by where the queue keeps them.", "queue")
	incoming := stable.AskedCounter("scheduler_queue_incoming_pods_total", "Pods that came into a part of the queue, by what brought them.", "event", "queue")
	blamed := beta.AskedGauge("scheduler_unschedulable_pods", "Pods that a plugin keeps from having a node.", "plugin", "profile")
	cache := alpha.AskedGauge("scheduler_cache_size", "Nodes, pods and assumed pods that the scheduler counts with.", "type")
	inFlight := alpha.AskedGauge("scheduler_inflight_events", "Events kept for the pods that are being tried.", "event")
	goroutines := beta.AskedGauge("scheduler_goroutines", "Goroutines by what they do.", "operation")
	look := func() (all []prometheus.Metric) {
		for _, place := range []queue.Place{queue.Active, queue.Backoff, queue.Unschedulable, queue.Gated} {
			all = append(all, pending.Is(float64(l.Queue.Depth(place)), place.String()))
		}
		for arrival, n := range l.Queue.Arrivals() {
			all = append(all, incoming.Is(float64(n), arrival.By.String(), arrival.To.String()))
		}
		for _, blame := range l.Queue.Blames() {
			all = append(all, blamed.Is(float64(blame.Pods), blame.Plugin, blame.Profile))
		}
		for kind, n := range map[string]int{"nodes": l.Table.Len(), "pods": l.Table.PodCount(), "assumed_pods": len(l.assumed)} {
			all = append(all, cache.Is(float64(n), kind))
		}
		for event, n := range l.Queue.InFlightEvents() {
			all = append(all, inFlight.Is(float64(n), event.String()))
		}
		return append(all, goroutines.Is(float64(l.Bindings()), "binding"))
	}
	set.Ask(func(into chan<- prometheus.Metric) {
		answer := make(chan []prometheus.Metric, 1)
		l.Do(func() { answer <- look() })
		timeout := time.NewTimer(patience)
		defer timeout.Stop()
		select {
		case all := <-answer:
			for _, m := range all {
				into <- m
			}
		case <-timeout.C:
		}
	}, pending, incoming, blamed, cache, inFlight, goroutines)
}
