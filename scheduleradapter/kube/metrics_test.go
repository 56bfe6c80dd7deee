package kube

import (
	"testing"

	"k8s.io/client-go/rest"

	"github.com/evictd/evictd/internal/golden"
	"github.com/evictd/evictd/internal/metric"
)

func TestTheListOfMetricsHasTheClients(t *testing.T) {
	set := metric.NewSet()
	MeasureRequests(set, &rest.Config{})
	NewLeaderGauge(set)
	newDeviceMetrics(set)
	golden.Section(t, "../../docs/metrics.md", "client", set.Table())
}
