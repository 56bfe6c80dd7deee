package kube

import (
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/rest"

	"github.com/evictd/evictd/internal/metric"
)

// MeasureRequests adds the metrics of requests to the API server. A duration ends
// when the headers of the response arrive.
func MeasureRequests(set *metric.Set, restConfig *rest.Config) {
	alpha := set.Of(metric.Client, metric.Alpha)
	requests := alpha.Counter("rest_client_requests_total", "Requests to the API server, by status code; <error>: no response.", "code", "method", "host")
	duration := alpha.Histogram("rest_client_request_duration_seconds", "Duration from a request to the headers of its response.",
		[]float64{0.005, 0.025, 0.1, 0.25, 0.5, 1, 2, 4, 8, 15, 30, 60}, "verb", "host")
	restConfig.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTrip(func(request *http.Request) (*http.Response, error) {
			begin, code := time.Now(), "<error>"
			response, err := next.RoundTrip(request)
			if err == nil {
				code = strconv.Itoa(response.StatusCode)
			}
			requests.WithLabelValues(code, request.Method, request.URL.Host).Inc()
			duration.WithLabelValues(request.Method, request.URL.Host).Observe(time.Since(begin).Seconds())
			return response, err
		})
	})
}

type roundTrip func(*http.Request) (*http.Response, error)

func (t roundTrip) RoundTrip(request *http.Request) (*http.Response, error) { return t(request) }

// NewLeaderGauge adds leader_election_master_status, by name of the Lease.
func NewLeaderGauge(set *metric.Set) *prometheus.GaugeVec {
	return set.Of(metric.Client, metric.Alpha).Gauge("leader_election_master_status", "1 while this process holds the Lease, 0 while it does not; absent without leader election.", "name")
}
