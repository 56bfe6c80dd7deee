package kube

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/node/topology"

	"github.com/evictd/evictd/internal/metric"
	"github.com/evictd/evictd/scheduleradapter/lifecycle"
)

// metrics have the names and buckets of kube-controller-manager's.
type metrics struct {
	deletions               prometheus.Counter
	lateness                prometheus.Observer
	evictions               *prometheus.CounterVec
	size, health, unhealthy *prometheus.GaugeVec
	passes                  prometheus.Observer
}

func newMetrics(set *metric.Set, cfg Config) *metrics {
	m := &metrics{}
	alpha := set.Of(metric.ControllerManager, metric.Alpha)
	if cfg.TaintEviction {
		m.deletions = alpha.Counter("taint_eviction_controller_pod_deletions_total", "Pods that were deleted for a NoExecute taint.").WithLabelValues()
		m.lateness = alpha.Histogram("taint_eviction_controller_pod_deletion_duration_seconds", "Duration from the deadline of an eviction to the deletion of the pod.",
			[]float64{0.005, 0.025, 0.1, 0.5, 1, 2.5, 10, 30, 60, 120, 180, 240}).WithLabelValues()
	}
	if cfg.NodeLifecycle {
		m.evictions = set.Of(metric.ControllerManager, metric.Stable).Counter("node_collector_evictions_total", "Nodes with a new NoExecute taint, by zone.", "zone")
		m.size = alpha.Gauge("node_collector_zone_size", "Nodes of a zone.", "zone")
		m.health = alpha.Gauge("node_collector_zone_health", "Percentage of a zone's nodes that are ready.", "zone")
		m.unhealthy = alpha.Gauge("node_collector_unhealthy_nodes_in_zone", "Nodes of a zone that are not ready.", "zone")
		m.passes = alpha.Histogram("node_collector_update_all_nodes_health_duration_seconds", "Duration of evaluating all nodes.", prometheus.ExponentialBuckets(0.01, 4, 8)).WithLabelValues()
	}
	return m
}

// deleted counts a pod whose eviction was due since an instant.
func (m *metrics) deleted(since time.Time) {
	m.deletions.Inc()
	m.lateness.Observe(time.Since(since).Seconds())
}

func (m *metrics) evicted(node *v1.Node) {
	m.evictions.WithLabelValues(topology.GetZoneKey(node)).Inc()
}

// passed observes a pass over all nodes. The health of a zone without nodes is 100
// %.
func (m *metrics) passed(monitor *lifecycle.Monitor, took time.Duration) {
	m.passes.Observe(took.Seconds())
	for zone, census := range monitor.Zones() {
		healthy := 100.0
		if census.Nodes > 0 {
			healthy = 100 * float64(census.Nodes-census.Unready) / float64(census.Nodes)
		}
		m.evictions.WithLabelValues(zone) // starts at zero
		m.size.WithLabelValues(zone).Set(float64(census.Nodes))
		m.health.WithLabelValues(zone).Set(healthy)
		m.unhealthy.WithLabelValues(zone).Set(float64(census.Unready))
	}
}
