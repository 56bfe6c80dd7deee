package publish

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/evictd/evictd/eviction"
	"github.com/evictd/evictd/eviction/control"
	"github.com/evictd/evictd/internal/metric"
	"github.com/evictd/evictd/stats"
)

// metrics are the kubelet's metrics and those of evictd.
type metrics struct {
	kubeletEvictions, evictions    *prometheus.CounterVec
	kubeletAge, relief             *prometheus.HistogramVec
	available, capacity, threshold *prometheus.GaugeVec
	condition, memory, outside     *prometheus.GaugeVec
	until, growth                  *prometheus.GaugeVec
	passes, kernelKills, steps     *prometheus.CounterVec
	restarts                       *prometheus.CounterVec
	thresholds                     *eviction.Config // whose amounts threshold holds
	measured                       *prometheus.GaugeVec
	freed, lost, reclaimed         prometheus.Counter
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
		evictions: counter("evictd_evictions_total", "Evictions by signal, kind of threshold and outcome: gone, failed, withdrawn or dry-run, which counts a candidate once for a time in which its threshold is met.", "signal", "kind", "outcome"),
		relief: histogram("evictd_eviction_duration_seconds", "Time from the first observation below the threshold to the end of the victim.",
			prometheus.ExponentialBuckets(0.005, 2, 14), "signal"),
		available:   gauge("evictd_signal_available", "Available amount of the signal, bytes or counts.", "signal"),
		capacity:    gauge("evictd_signal_capacity", "Capacity of the signal, bytes or counts.", "signal"),
		threshold:   gauge("evictd_threshold", "Resolved amount of the threshold, bytes or counts.", "signal", "kind"),
		until:       gauge("evictd_threshold_seconds", "Time until the threshold is crossed at the present rate; no value where the signal does not fall.", "signal", "kind"),
		growth:      gauge("evictd_pod_growth_bytes_per_second", "Growth of the memory of the pod that grows fastest.", "namespace", "pod"),
		condition:   gauge("evictd_node_condition", "1 while the condition is reported; 0 in a dry run, which reports none.", "condition"),
		outside:     gauge("evictd_usage_outside_pods", "1 while the shortage of a condition's resource is not that of pods that may be evicted: they are evicted ten seconds apart.", "condition"),
		memory:      gauge("evictd_memory_available_bytes", "Available memory of the node as each model counts it.", "model"),
		passes:      counter("evictd_passes_total", "Passes, by what triggered them, up to the last that was reported.", "source"),
		freed:       counter("evictd_eviction_freed_bytes_total", "Memory of victims before the kill, less what was left after.").WithLabelValues(),
		measured:    gauge("evictd_signal_measured", "1 where a signal with a threshold was measured, 0 where it could not be: nothing is evicted for it.", "signal"),
		lost:        counter("evictd_reports_lost_total", "Reports of the loop that were dropped because the queue was full.").WithLabelValues(),
		lastPass:    gauge("evictd_last_pass_timestamp_seconds", "When the loop last reported a pass.").WithLabelValues(),
		reclaimed:   counter("evictd_memory_reclaimed_bytes_total", "Memory that was reclaimed from pods above their request (memory.reclaim).").WithLabelValues(),
		steps:       counter("evictd_steps_total", "Steps before evictions by step, cause (soft, hard or limit, as far as it has one) and outcome: taken, over, failed or dry-run.", "step", "cause", "outcome"),
		restarts:    counter("evictd_container_restarts_total", "Containers that were ended in place of their pods, for a kubelet to start them again, by signal, kind of threshold and outcome: ended, failed or dry-run.", "signal", "kind", "outcome"),
		inFlight:    gauge("evictd_victims_in_flight", "Victims whose end is not confirmed.").WithLabelValues(),
		kernelKills: counter("evictd_kernel_oom_kills_total", "Processes that the kernel's OOM killer has killed, by the limit reached: node, pods, pod, other or unknown.", "limit"),
	}
	for limit := range limitText {
		m.kernelKills.WithLabelValues(string(limit)) // starts at 0
	}
	return m
}

// initCounters creates the counters of each threshold at zero.
func (m *metrics) initCounters(r *control.Report) {
	outcomes := []string{"gone", "failed"}
	if r.Eviction.WithdrawsSoft {
		outcomes = append(outcomes, "withdrawn")
	}
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

// setLost sets how many reports were lost since the start.
func (m *metrics) setLost(total uint64) {
	m.lost.Add(float64(total - m.lostBefore))
	m.lostBefore = total
}

// observe sets the metrics of a pass. A value that was not measured has no series.
func (m *metrics) observe(r *control.Report) {
	m.lastPass.Set(float64(r.At.UnixMilli()) / 1e3)
	for source, passes := range r.Passes {
		m.passes.WithLabelValues(string(source)).Add(float64(passes))
	}
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
		m.initCounters(r)
	}
	for i := range r.Eviction.Thresholds {
		t := &r.Eviction.Thresholds[i]
		o := r.Observations[t.Signal]
		m.measured.WithLabelValues(t.Signal.String()).Set(gaugeValue(o.Available.IsKnown()))
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
