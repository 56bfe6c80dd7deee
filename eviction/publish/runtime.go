package publish

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/evictd/evictd/internal/metric"
	"github.com/evictd/evictd/nodestatus"
)

// addRuntime adds the state of the connection to the container runtime.
func addRuntime(set *metric.Set, state func() nodestatus.Runtime) {
	own := set.Of(metric.Own, metric.Alpha)
	connected := own.AskedGauge("evictd_runtime_connected", "1 while the container runtime answers.")
	objects := own.AskedGauge("evictd_runtime_objects", "Objects of the container runtime, by kind.", "kind")
	duration := own.AskedSummary("evictd_runtime_call_duration_seconds", "Calls of the container runtime by CRI method, since the agent's start.", "method")
	failures := own.AskedCounter("evictd_runtime_call_errors_total", "Calls of the container runtime that failed, by CRI method and gRPC code.", "method", "code")
	set.Ask(func(into chan<- prometheus.Metric) {
		s := state()
		into <- connected.Is(gaugeValue(s.Connected))
		for kind, n := range map[string]int{"sandbox": s.Sandboxes, "container": s.Containers, "image": s.Images} {
			into <- objects.Is(float64(n), kind)
		}
		for method, calls := range s.Calls {
			into <- duration.Sums(calls.Count, calls.Seconds, method)
			for code, n := range calls.Errors {
				into <- failures.Is(float64(n), method, code)
			}
		}
	}, connected, objects, duration, failures)
}
