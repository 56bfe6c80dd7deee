package cycle

import (
	"context"
	"slices"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/evictd/evictd/internal/metric"
	"github.com/evictd/evictd/scheduleradapter/queue"
)

// metrics have the names and buckets of kube-scheduler's metrics.
type metrics struct {
	attempts, preemptions *prometheus.CounterVec
	duration              *prometheus.HistogramVec
	permitWaits, sli      *prometheus.HistogramVec
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
		duration:    stable.Histogram("scheduler_scheduling_attempt_duration_seconds", "Duration of attempts, including the binding.", milliseconds, "result", "profile"),
		algorithm:   beta.Histogram("scheduler_scheduling_algorithm_duration_seconds", "Duration of selecting a node.", milliseconds).WithLabelValues(),
		sli:         beta.Histogram("scheduler_pod_scheduling_sli_duration_seconds", "Duration from the arrival of a pod in the queue to its binding, by attempts.", prometheus.ExponentialBuckets(0.01, 2, 20), "attempts"),
		tries:       stable.Histogram("scheduler_pod_scheduling_attempts", "Attempts it took to schedule a pod.", prometheus.ExponentialBuckets(1, 2, 5)).WithLabelValues(),
		permitWaits: beta.Histogram("scheduler_permit_wait_duration_seconds", "Duration of waits for Permit.", milliseconds, "result"),
		preemptions: stable.Counter("scheduler_preemption_attempts_total", "Attempts to preempt pods."),
		violations:  alpha.Counter("scheduler_preemption_pdb_violations_total", "Victims that a disruption budget protects.", "preemptor"),
		timings:     newTimings(stable, beta, alpha),
		victims:     stable.Histogram("scheduler_preemption_victims", "Victims of an attempt.", prometheus.ExponentialBuckets(1, 2, 7)).WithLabelValues(),
		loops: set.Of(metric.Own, metric.Alpha).Counter("evictd_scheduler_preemption_loops_total",
			"Preemptions on a node where the pod had preempted before and other pods used the resources.").WithLabelValues(),
	}
	addQueue(set, l)
	return m
}

// results are the label values of kube-scheduler by outcome.
var results = map[Outcome]string{Scheduled: "scheduled", Unschedulable: "unschedulable", Nominated: "unschedulable", Failed: "error"}

func (m *metrics) attempted(a *Attempt, took time.Duration) {
	m.algorithm.Observe(took.Seconds())
	if slices.ContainsFunc(a.Cycle.Timing.Spans, isPostFilter) {
		m.preemptions.WithLabelValues().Inc()
	}
	if len(a.Victims) > 0 {
		m.victims.Observe(float64(len(a.Victims)))
		m.violations.WithLabelValues(preemptor).Add(float64(a.Violations))
	}
	m.timings.attempted(a.Cycle.Timing.Spans, a.Pod.Object.Spec.SchedulerName)
	if a.Outcome != Scheduled && a.Outcome != Waiting {
		m.attemptDone(a, took)
	}
}

func (m *metrics) attemptDone(a *Attempt, took time.Duration) {
	result, profile := results[a.Outcome], a.Pod.Object.Spec.SchedulerName
	m.attempts.WithLabelValues(result, profile).Inc()
	m.duration.WithLabelValues(result, profile).Observe(took.Seconds())
}

func (m *metrics) podScheduled(p *assumedPod, now time.Time) {
	m.attemptDone(p.Attempt, time.Since(p.begin))
	m.tries.Observe(float64(p.Number))
	attempts := strconv.Itoa(p.Number)
	if p.Number >= 15 {
		attempts = "15+"
	}
	m.sli.WithLabelValues(attempts).Observe(now.Sub(p.Added).Seconds())
}

func (m *metrics) permitWait(result string, took time.Duration) {
	m.permitWaits.WithLabelValues(result).Observe(took.Seconds())
}

// gatherTimeout bounds how long the metrics page waits for the loop's goroutine.
const gatherTimeout = time.Second

// addQueue adds the metrics that are read on the loop's goroutine. They are left out
// if the loop does not answer within gatherTimeout.
func addQueue(set *metric.Set, l *Loop) {
	stable, beta, alpha := set.Of(metric.Scheduler, metric.Stable), set.Of(metric.Scheduler, metric.Beta), set.Of(metric.Scheduler, metric.Alpha)
	pending := stable.AskedGauge("scheduler_pending_pods", "Pods without a node, by queue.", "queue")
	incoming := stable.AskedCounter("scheduler_queue_incoming_pods_total", "Pods that were added to a queue, by event.", "event", "queue")
	unschedulable := beta.AskedGauge("scheduler_unschedulable_pods", "Pods that a plugin rejected in their last attempt.", "plugin", "profile")
	cache := alpha.AskedGauge("scheduler_cache_size", "Nodes, pods and assumed pods in the scheduler cache.", "type")
	inFlight := alpha.AskedGauge("scheduler_inflight_events", "Events kept for the pods in flight.", "event")
	goroutines := beta.AskedGauge("scheduler_goroutines", "Goroutines by operation.", "operation")
	look := func() (all []prometheus.Metric) {
		for _, place := range []queue.Place{queue.Active, queue.Backoff, queue.Unschedulable, queue.Gated} {
			all = append(all, pending.Is(float64(l.Queue.Depth(place)), place.String()))
		}
		for arrival, n := range l.Queue.Arrivals() {
			all = append(all, incoming.Is(float64(n), arrival.By.String(), arrival.To.String()))
		}
		for _, r := range l.Queue.UnschedulablePods() {
			all = append(all, unschedulable.Is(float64(r.Pods), r.Plugin, r.Profile))
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
		ctx, cancel := context.WithTimeout(context.Background(), gatherTimeout)
		defer cancel()
		all, _ := Ask(ctx, l, look)
		for _, m := range all {
			into <- m
		}
	}, pending, incoming, unschedulable, cache, inFlight, goroutines)
}
