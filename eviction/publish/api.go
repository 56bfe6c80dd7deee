package publish

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/evictd/evictd/nodestatus"
)

// apiCollector tells how we stand to the API server when it is asked.
type apiCollector struct{ state func() nodestatus.API }

var (
	apiConnected = prometheus.NewDesc("evictd_api_connected", "1 while the API server answers.", nil, nil)
	apiConflict  = prometheus.NewDesc("evictd_api_conflict", "1 while the node's conditions are left to somebody else who writes them.", nil, nil)
	apiRequests  = prometheus.NewDesc("evictd_api_requests_total", "Requests to the API server by status code; 0 got no answer.", []string{"code"}, nil)
	apiRefused   = prometheus.NewDesc("evictd_api_refused", "1 for what the API server does not let evictd do.", []string{"what"}, nil)
	apiRestarts  = prometheus.NewDesc("evictd_agent_restarts_total", "Times that the agent ended and was started again.", nil, nil)
	apiUntold    = prometheus.NewDesc("evictd_evictions_untold", "Evictions that the API server does not know all of.", nil, nil)
)

func (c apiCollector) Describe(descs chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{apiConnected, apiConflict, apiRequests, apiRefused, apiRestarts, apiUntold} {
		descs <- d
	}
}

func (c apiCollector) Collect(metrics chan<- prometheus.Metric) {
	s := c.state()
	truth := map[bool]float64{true: 1}
	add := func(desc *prometheus.Desc, kind prometheus.ValueType, value float64, labels ...string) {
		metrics <- prometheus.MustNewConstMetric(desc, kind, value, labels...)
	}
	add(apiConnected, prometheus.GaugeValue, truth[s.Connected])
	add(apiConflict, prometheus.GaugeValue, truth[s.Conflict != ""])
	for code, n := range s.Requests {
		add(apiRequests, prometheus.CounterValue, float64(n), code)
	}
	for what := range s.Refused {
		add(apiRefused, prometheus.GaugeValue, 1, what)
	}
	add(apiRestarts, prometheus.CounterValue, float64(s.Restarts))
	add(apiUntold, prometheus.GaugeValue, float64(s.Untold))
}
