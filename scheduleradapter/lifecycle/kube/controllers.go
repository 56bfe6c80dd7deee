// Package kube runs the controllers of package lifecycle on an API server: it
// watches nodes, pods and Leases, and writes conditions, taints and deletions. It
// decides nothing. It is for clusters without kube-controller-manager.
package kube

import (
	"context"
	"log/slog"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"

	"github.com/evictd/evictd/internal/metric"
	"github.com/evictd/evictd/scheduleradapter/lifecycle"
)

const (
	workers      = 8                // concurrent requests
	requestLimit = 30 * time.Second // of each
	retryAfter   = 5 * time.Second  // after a failed request
)

// Namespaces of the Leases of kubelets and of evictd. The names of the latter have
// a prefix.
const (
	agentNamespace = "evictd-system"
	agentPrefix    = "evictd-"
)

// Config enables at least one controller.
type Config struct {
	// TaintEviction deletes pods that do not tolerate a NoExecute taint.
	TaintEviction bool
	// NodeLifecycle sets the conditions of nodes without heartbeats to Unknown, and
	// the taints that follow from conditions.
	NodeLifecycle bool
}

// Controllers run on an API server.
type Controllers struct {
	Config
	client      kubernetes.Interface
	recorder    events.EventRecorder
	log         *slog.Logger
	metrics     *metrics
	nodes, pods cache.SharedIndexInformer
}

// New makes controllers with the factory's informers of nodes and pods. They read
// of pods metadata, tolerations, spec.nodeName and status phase, startTime and
// conditions; of nodes metadata, taints, spec.unschedulable and conditions with
// their heartbeats.
func New(client kubernetes.Interface, factory informers.SharedInformerFactory, recorder events.EventRecorder, set *metric.Set, log *slog.Logger, cfg Config) *Controllers {
	return &Controllers{
		Config: cfg, client: client, recorder: recorder, log: log, metrics: newMetrics(set, cfg),
		nodes: factory.Core().V1().Nodes().Informer(), pods: factory.Core().V1().Pods().Informer(),
	}
}

// Run runs the controllers until the context ends, and waits for running requests.
// The caller holds the Lease and has started the factory. It may be called again.
func (c *Controllers) Run(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	var wait sync.WaitGroup
	defer wait.Wait()
	defer stop()
	o := &reconciler{
		Controllers: c, wait: &wait, changes: newChanges(), done: make(chan func(), workers),
		seen: map[string]*v1.Node{}, writes: map[string]write{}, leases: map[string]cache.SharedIndexInformer{},
		monitor: lifecycle.NewMonitor(), taintEvictions: lifecycle.NewTaintEvictions(),
	}
	synced, unwatch, err := o.watch(ctx)
	defer unwatch()
	if err != nil {
		return err
	}
	if !cache.WaitForCacheSync(ctx.Done(), synced...) {
		return nil
	}
	o.loop(ctx)
	return nil
}
