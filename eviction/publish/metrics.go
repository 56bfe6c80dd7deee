package publish

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/evictd/evictd/eviction"
	"github.com/evictd/evictd/eviction/control"
	"github.com/evictd/evictd/internal/metric"
	"github.com/evictd/evictd/stats"
)

// metrics are the kubelet's, by its names, and our own.
type metrics struct {
	kubeletEvictions, evictions    *prometheus.CounterVec
	kubeletAge, relief             *prometheus.HistogramVec
	available, capacity, threshold *prometheus.GaugeVec
	condition, memory              *prometheus.GaugeVec
	until, growth                  *prometheus.GaugeVec
	passes, kernelKills            *prometheus.CounterVec
	thresholds                     *eviction.Config // whose amounts threshold holds
	measured                       *prometheus.GaugeVec
	freed, lost                    prometheus.Counter
	lostBefore                     uint64
	inFlight, lastPass             prometheus.Gauge
}

func newMetrics(set *metric.Set) *metrics {
	own, kubelet := set.Of(metric.Own, metric.Alpha), set.Of(metric.Kubelet, metric.Alpha)
	counter, gauge, histogram := own.Counter, own.Gauge, own.Histogram
	m := &metrics{
		kubeletEvictions: kubelet.Counter("kubelet_evictions", "Pods evicted and gone, by signal.", "eviction_signal"),
		kubeletAge: kubelet.Histogram("kubelet_eviction_stats_age_seconds", "Age of the observation that a threshold acted on, by signal.",
			prometheus.DefBuckets, "eviction_signal"),
		evictions: counter("evictd_evictions_total", "Evictions by signal, kind of threshold and outcome: gone, failed or dry-run.", "signal", "kind", "outcome"),
		relief: histogram("evictd_eviction_duration_seconds", "From the crossing of the threshold as first seen to the end of the victim.",
			prometheus.ExponentialBuckets(0.005, 2, 14), "signal"),
		available:   gauge("evictd_signal_available", "What is available of the signal, bytes or counts.", "signal"),
		capacity:    gauge("evictd_signal_capacity", "Capacity of the signal, bytes or counts.", "signal"),
		threshold:   gauge("evictd_threshold", "Resolved amount of the threshold, bytes or counts.", "signal", "kind"),
		until:       gauge("evictd_threshold_seconds", "How long the threshold is away at the present rate; none where the signal does not fall.", "signal", "kind"),
		growth:      gauge("evictd_pod_growth_bytes_per_second", "Growth of the memory of the pod that grows fastest.", "namespace", "pod"),
		condition:   gauge("evictd_node_condition", "1 while the condition is reported.", "condition"),
		memory:      gauge("evictd_memory_available_bytes", "Available memory of the node as each model counts it.", "model"),
		passes:      counter("evictd_passes_total", "Passes that were reported, by what woke the loop.", "source"),
		freed:       counter("evictd_eviction_freed_bytes_total", "Memory that victims held before and not after.").WithLabelValues(),
		measured:    gauge("evictd_signal_measured", "1 where a signal with a threshold was measured, 0 where it could not be: nothing is evicted for it.", "signal"),
		lost:        counter("evictd_reports_lost_total", "Reports of the loop that nobody took in time.").WithLabelValues(),
		lastPass:    gauge("evictd_last_pass_timestamp_seconds", "When the loop last reported a pass.").WithLabelValues(),
		inFlight:    gauge("evictd_victims_in_flight", "Victims whose end is not confirmed.").WithLabelValues(),
		kernelKills: counter("evictd_kernel_oom_kills_total", "Processes that the kernel has killed for want of memory, by whose limit was reached: of the node, pods, pod, other or unknown.", "limit"),
	}
	for limit := range reached {
		m.kernelKills.WithLabelValues(string(limit)) // so that the first increase is one
	}
	return m
}

// begin has what is counted for a threshold begin at zero, so that the first
// increase is one.
func (m *metrics) begin(r *control.Report) {
	outcomes := []string{"gone", "failed"}
	if r.DryRun {
		outcomes = []string{"dry-run"}
	}
	for i := range r.Eviction.Thresholds {
		t := &r.Eviction.Thresholds[i]
		m.kubeletEvictions.WithLabelValues(t.Signal.String())
		for _, outcome := range outcomes {
			m.evictions.WithLabelValues(t.Signal.String(), t.Kind(), outcome)
		}
	}
}

// lose takes up how many reports were lost since the start.
func (m *metrics) lose(total uint64) {
	m.lost.Add(float64(total - m.lostBefore))
	m.lostBefore = total
}

// observe takes up what a pass saw. What was not measured has no value.
func (m *metrics) observe(r *control.Report) {
	m.lastPass.Set(float64(r.At.UnixMilli()) / 1e3)
	m.passes.WithLabelValues(string(r.Source)).Inc()
	m.inFlight.Set(float64(len(r.State.InFlight)))
	for s, o := range r.Observations {
		name := eviction.Signal(s).String()
		set(m.available, o.Available, name)
		set(m.capacity, o.Capacity, name)
	}
	if m.thresholds != r.Eviction {
		m.threshold.Reset()
		m.until.Reset()
		m.measured.Reset()
		m.thresholds = r.Eviction
		m.begin(r)
	}
	for i := range r.Eviction.Thresholds {
		t := &r.Eviction.Thresholds[i]
		o := r.Observations[t.Signal]
		m.measured.WithLabelValues(t.Signal.String()).Set(truth(o.Available.IsKnown()))
		var amount stats.Amount
		if required, known := t.Value.Of(o); known && o.Available.IsKnown() {
			amount = stats.Known(required)
		}
		set(m.threshold, amount, t.Signal.String(), t.Kind())
		if i < len(r.Forecast.Until) && r.Forecast.Until[i] >= 0 {
			m.until.WithLabelValues(t.Signal.String(), t.Kind()).Set(r.Forecast.Until[i].Seconds())
		} else {
			m.until.DeleteLabelValues(t.Signal.String(), t.Kind())
		}
	}
	m.growth.Reset()
	if pod := r.Forecast.Grower; pod != nil {
		m.growth.WithLabelValues(pod.Namespace, pod.Name).Set(float64(r.Forecast.Growth))
	}
	for _, model := range []stats.MemoryModel{stats.WorkingSetModel, stats.AvailableModel} {
		set(m.memory, r.Node.Memory.Available(model, false), model.String())
	}
	for _, d := range r.Decisions {
		for _, met := range d.Met {
			m.kubeletAge.WithLabelValues(met.Signal.String()).Observe(r.At.Sub(r.Observations[met.Signal].Time).Seconds())
		}
	}
}

func set(v *prometheus.GaugeVec, amount stats.Amount, labels ...string) {
	if n, known := amount.Get(); known {
		v.WithLabelValues(labels...).Set(float64(n))
	} else {
		v.DeleteLabelValues(labels...)
	}
}
