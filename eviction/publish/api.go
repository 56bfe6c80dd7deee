package publish

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/evictd/evictd/internal/metric"
	"github.com/evictd/evictd/nodestatus"
)

// addAPI adds how we stand to the API server when it is asked.
func addAPI(set *metric.Set, state func() nodestatus.API) {
	own := set.Of(metric.Own, metric.Alpha)
	connected := own.AskedGauge("evictd_api_connected", "1 while the API server answers.")
	conflict := own.AskedGauge("evictd_api_conflict", "1 while the node's conditions are left to somebody else who writes them.")
	requests := own.AskedCounter("evictd_api_requests_total", "Requests to the API server by status code; 0 got no answer.", "code")
	refused := own.AskedGauge("evictd_api_refused", "1 for what the API server does not let evictd do.", "what")
	restarts := own.AskedCounter("evictd_agent_restarts_total", "Times that the agent ended and was started again.")
	untold := own.AskedGauge("evictd_evictions_untold", "Evictions that the API server does not know all of.")
	set.Ask(func(into chan<- prometheus.Metric) {
		s := state()
		into <- connected.Is(truth(s.Connected))
		into <- conflict.Is(truth(s.Conflict != ""))
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

func truth(is bool) float64 {
	if is {
		return 1
	}
	return 0
}
