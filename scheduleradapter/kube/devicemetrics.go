package kube

import (
	"context"
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	resourceapi "k8s.io/api/resource/v1"

	"github.com/evictd/evictd/internal/metric"
	"github.com/evictd/evictd/scheduleradapter/plugins/devices"
)

// deviceMetrics are of bindings that wait for the conditions of devices.
type deviceMetrics struct {
	allocations *prometheus.CounterVec
	waits       *prometheus.HistogramVec
}

func newDeviceMetrics(set *metric.Set) deviceMetrics {
	alpha := set.Of(metric.Scheduler, metric.Alpha)
	return deviceMetrics{
		allocations: alpha.Counter("scheduler_dra_bindingconditions_allocations_total", "Allocated devices with binding conditions, by the end of the wait for them.", "profile", "driver", "status"),
		waits:       alpha.Histogram("scheduler_dra_bindingconditions_wait_duration_seconds", "Duration of waits for binding conditions, for each allocated device.", prometheus.ExponentialBuckets(0.1, 2, 14), "profile", "driver", "status"),
	}
}

// waited counts the devices of a pod's claims after a wait. Source: kube-scheduler's
// DynamicResources.PreBind.
func (m deviceMetrics) waited(profile string, claims []*resourceapi.ResourceClaim, took time.Duration, err error) {
	status := "error"
	switch {
	case err == nil:
		status = "success"
	case errors.Is(err, devices.ErrTimeout), errors.Is(err, context.DeadlineExceeded):
		status = "timeout"
	case errors.Is(err, devices.ErrFailed):
		status = "failed"
	}
	for _, claim := range claims {
		if claim.Status.Allocation == nil {
			continue
		}
		for _, r := range claim.Status.Allocation.Devices.Results {
			m.waits.WithLabelValues(profile, r.Driver, status).Observe(took.Seconds())
			if len(r.BindingConditions) > 0 {
				m.allocations.WithLabelValues(profile, r.Driver, status).Inc()
			}
		}
	}
}
