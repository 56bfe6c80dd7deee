package publish

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/evictd/evictd/internal/metric"
	"github.com/evictd/evictd/nodestatus"
)

// addAPI adds the state of the connection to the API server.
func addAPI(set *metric.Set, state func() nodestatus.API) {
	own := set.Of(metric.Own, metric.Alpha)
	connected := own.AskedGauge("evictd_api_connected", "1 while the API server answers.")
	conflict := own.AskedGauge("evictd_api_conflict", "1 while evictd does not write the node's conditions because another program does.")
	requests := own.AskedCounter("evictd_api_requests_total", "Requests to the API server by status code; 0 is without an answer.", "code")
	refused := own.AskedGauge("evictd_api_refused", "1 for each kind of request that the API server forbids.", "what")
	restarts := own.AskedCounter("evictd_agent_restarts_total", "Restarts of the agent.")
	untold := own.AskedGauge("evictd_evictions_untold", "Evictions that are not fully written to the API server.")
	set.Ask(func(into chan<- prometheus.Metric) {
		s := state()
		into <- connected.Is(gaugeValue(s.Connected))
		into <- conflict.Is(gaugeValue(s.Conflict != ""))
		for code, n := range s.Requests {
			into <- requests.Is(float64(n), code)
		}
		for what := range s.Refused {
			into <- refused.Is(1, what)
		}
		into <- restarts.Is(float64(s.Restarts))
		into <- untold.Is(float64(s.Untold))
	}, connected, conflict, requests, refused, restarts, untold)
}

func gaugeValue(is bool) float64 {
	if is {
		return 1
	}
	return 0
}
