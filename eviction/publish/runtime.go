package publish

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/evictd/evictd/nodestatus"
)

// runtimeCollector tells how we stand to the container runtime when it is asked.
type runtimeCollector struct{ state func() nodestatus.Runtime }

var (
	runtimeConnected = prometheus.NewDesc("evictd_runtime_connected", "1 while the container runtime answers.", nil, nil)
	runtimeObjects   = prometheus.NewDesc("evictd_runtime_objects", "What the container runtime has, by kind.", []string{"kind"}, nil)
	runtimeCalls     = prometheus.NewDesc("evictd_runtime_call_duration_seconds", "Calls of the container runtime by CRI method, since the agent's start.", []string{"method"}, nil)
	runtimeErrors    = prometheus.NewDesc("evictd_runtime_call_errors_total", "Calls of the container runtime that failed, by CRI method and gRPC code.", []string{"method", "code"}, nil)
)

func (c runtimeCollector) Describe(descs chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{runtimeConnected, runtimeObjects, runtimeCalls, runtimeErrors} {
		descs <- d
	}
}

func (c runtimeCollector) Collect(metrics chan<- prometheus.Metric) {
	s := c.state()
	metrics <- prometheus.MustNewConstMetric(runtimeConnected, prometheus.GaugeValue, map[bool]float64{true: 1}[s.Connected])
	for kind, n := range map[string]int{"sandbox": s.Sandboxes, "container": s.Containers, "image": s.Images} {
		metrics <- prometheus.MustNewConstMetric(runtimeObjects, prometheus.GaugeValue, float64(n), kind)
	}
	for method, calls := range s.Calls {
		metrics <- prometheus.MustNewConstSummary(runtimeCalls, calls.Count, calls.Seconds, nil, method)
		for code, n := range calls.Errors {
			metrics <- prometheus.MustNewConstMetric(runtimeErrors, prometheus.CounterValue, float64(n), method, code)
		}
	}
}
