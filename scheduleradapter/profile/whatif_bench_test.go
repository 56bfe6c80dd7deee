package profile

import (
	"fmt"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/evictd/evictd/scheduleradapter/cycle"
)

// BenchmarkWhatIf measures an answer for pods that fit, and for pods that preempt, with the
// default profile, 5,000 nodes and four pods on each.
func BenchmarkWhatIf(b *testing.B) {
	c := newCrowd(b, 5_000, 0)
	template := func(priority int32, name v1.ResourceName, amount string) *v1.Pod {
		return crowded(b, "template", priority, func(p *v1.Pod) {
			p.UID = ""
			p.Spec.Containers[0].Resources.Requests = v1.ResourceList{name: resource.MustParse(amount)}
		}).Object
	}
	for what, pod := range map[string]*v1.Pod{"fit": template(0, v1.ResourceMemory, "1Gi"), "preempt": template(10, v1.ResourceCPU, "1")} {
		for _, count := range []int{1, 100, 1_000} {
			b.Run(fmt.Sprintf("%s/%d", what, count), func(b *testing.B) {
				begin := processorTime(b)
				for b.Loop() {
					if x := c.WhatIf(time.Time{}, cycle.About(pod, count)); x.Unschedulable+x.Untried > 0 {
						b.Fatalf("%d of %d pods: %s", x.Scheduled+x.Nominated, count, x.Message)
					}
				}
				b.ReportMetric(float64((processorTime(b)-begin).Microseconds())/float64(b.N*count), "CPU-µs/pod")
			})
		}
	}
}
