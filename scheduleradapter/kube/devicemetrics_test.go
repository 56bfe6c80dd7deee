package kube

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/evictd/evictd/internal/metric"
	"github.com/evictd/evictd/scheduleradapter/plugins/devices"
)

// TestWaitsForDevicesAreCountedByDriverAndEnd has a claim with a device that must become
// ready, and another of the same driver.
func TestWaitsForDevicesAreCountedByDriverAndEnd(t *testing.T) {
	set := metric.NewSet()
	m := newDeviceMetrics(set)
	claims := []*resourceapi.ResourceClaim{{}, {Status: resourceapi.ResourceClaimStatus{Allocation: &resourceapi.AllocationResult{Devices: resourceapi.DeviceAllocationResult{
		Results: []resourceapi.DeviceRequestAllocationResult{{Driver: "a", BindingConditions: []string{"attached"}}, {Driver: "a"}},
	}}}}}
	for status, err := range map[string]error{
		"success": nil, "failed": fmt.Errorf("claim: %w", devices.ErrFailed), "error": errors.New("lost"),
		"timeout": fmt.Errorf("%w: %w", devices.ErrTimeout, context.DeadlineExceeded),
	} {
		m.waited("default-scheduler", claims, time.Second, err)
		page := httptest.NewRecorder()
		set.Handler().ServeHTTP(page, httptest.NewRequest("GET", "/metrics", nil))
		for _, want := range []string{
			`scheduler_dra_bindingconditions_allocations_total{driver="a",profile="default-scheduler",status="` + status + `"} 1`,
			`scheduler_dra_bindingconditions_wait_duration_seconds_count{driver="a",profile="default-scheduler",status="` + status + `"} 2`,
		} {
			if !strings.Contains(page.Body.String(), want+"\n") {
				t.Errorf("the page has no line %s", want)
			}
		}
	}
}
