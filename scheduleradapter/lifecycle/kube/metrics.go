package kube

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/node/topology"

	"github.com/evictd/evictd/scheduleradapter/lifecycle"
)

// metrics are kube-controller-manager's, by its names and with its buckets: the
// taint eviction controller's, and the node lifecycle controller's.
type metrics struct {
	deletions               prometheus.Counter
	lateness                prometheus.Histogram
	evictions               *prometheus.CounterVec
	size, health, unhealthy *prometheus.GaugeVec
	passes                  prometheus.Histogram
}

// newMetrics registers those of the controllers that run.
func newMetrics(registerer prometheus.Registerer, cfg Config) *metrics {
	const evictor, monitor = "taint_eviction_controller", "node_collector"
	gauge := func(name, help string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Subsystem: monitor, Name: name, Help: help}, []string{"zone"})
	}
	m := &metrics{
		deletions: prometheus.NewCounter(prometheus.CounterOpts{Subsystem: evictor, Name: "pod_deletions_total", Help: "Pods deleted for a taint."}),
		lateness: prometheus.NewHistogram(prometheus.HistogramOpts{
			Subsystem: evictor, Name: "pod_deletion_duration_seconds", Help: "From when a pod had to leave for a taint to its deletion.",
			Buckets: []float64{0.005, 0.025, 0.1, 0.5, 1, 2.5, 10, 30, 60, 120, 180, 240},
		}),
		evictions: prometheus.NewCounterVec(prometheus.CounterOpts{Subsystem: monitor, Name: "evictions_total", Help: "Nodes that pods were driven off, by zone."}, []string{"zone"}),
		size:      gauge("zone_size", "Nodes of a zone."),
		health:    gauge("zone_health", "Percentage of a zone's nodes that are ready."),
		unhealthy: gauge("unhealthy_nodes_in_zone", "Nodes of a zone that are not ready."),
		passes: prometheus.NewHistogram(prometheus.HistogramOpts{
			Subsystem: monitor, Name: "update_all_nodes_health_duration_seconds", Help: "Duration of judging all nodes.", Buckets: prometheus.ExponentialBuckets(0.01, 4, 8),
		}),
	}
	if cfg.TaintEviction {
		registerer.MustRegister(m.deletions, m.lateness)
	}
	if cfg.NodeLifecycle {
		registerer.MustRegister(m.evictions, m.size, m.health, m.unhealthy, m.passes)
	}
	return m
}

// deleted counts a pod that had to leave since an instant.
func (m *metrics) deleted(since time.Time) {
	m.deletions.Inc()
	m.lateness.Observe(time.Since(since).Seconds())
}

// evicted counts a node.
func (m *metrics) evicted(node *v1.Node) {
	m.evictions.WithLabelValues(topology.GetZoneKey(node)).Inc()
}

// passed takes up a pass over all nodes. A zone without nodes is in good health.
func (m *metrics) passed(monitor *lifecycle.Monitor, took time.Duration) {
	m.passes.Observe(took.Seconds())
	for zone, census := range monitor.Zones() {
		healthy := 100.0
		if census.Nodes > 0 {
			healthy = 100 * float64(census.Nodes-census.Unready) / float64(census.Nodes)
		}
		m.evictions.WithLabelValues(zone) // begins at zero
		m.size.WithLabelValues(zone).Set(float64(census.Nodes))
		m.health.WithLabelValues(zone).Set(healthy)
		m.unhealthy.WithLabelValues(zone).Set(float64(census.Unready))
	}
}
