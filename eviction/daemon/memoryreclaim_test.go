package daemon

import (
	"context"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/evictd/evictd/eviction"
)

func TestAnAttemptAtAPodMeasuresThatPodAlone(t *testing.T) {
	outcomes := make(chan eviction.StepOutcome)
	r := &memoryReclaimer{
		groupOf:  func(types.UID) string { return "" },
		pods:     func() []types.UID { t.Error("all pods are measured"); return nil },
		requests: make(chan *eviction.StepAction, 1), outcomes: outcomes,
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { r.run(ctx) })
	r.take(&eviction.StepAction{Step: eviction.ReclaimMemory, Pod: &eviction.Pod{UID: "a"}})
	if o := <-outcomes; o.UID != "a" || o.Pods != nil {
		t.Errorf("the outcome of a pod without a cgroup is %+v", o)
	}
	cancel()
	running.Wait()
}
