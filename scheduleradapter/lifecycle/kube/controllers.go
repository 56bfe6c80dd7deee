// Package kube carries out on an API what lifecycle says should happen: it follows
// nodes, pods and Leases through informers, and writes conditions, taints and
// deletions. It decides nothing. It is for clusters and hosts where no controller
// manager does the same.
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
	workers      = 8                // requests under way
	requestLimit = 30 * time.Second // of each
	retryAfter   = 5 * time.Second  // a request that failed
)

// Namespaces of the Leases that kubelets and evictds renew; those of evictd have
// its name before the node's.
const (
	agentNamespace = "evictd-system"
	agentPrefix    = "evictd-"
)

// Config says which controllers run; at least one does.
type Config struct {
	// TaintEviction deletes the pods that do not tolerate a NoExecute taint.
	TaintEviction bool
	// NodeLifecycle turns the conditions of silent nodes Unknown and keeps the taints that follow
	// from conditions.
	NodeLifecycle bool
}

// Controllers act on an API.
type Controllers struct {
	Config
	client      kubernetes.Interface
	recorder    events.EventRecorder
	log         *slog.Logger
	metrics     *metrics
	nodes, pods cache.SharedIndexInformer
}

// New makes controllers that use the factory's informers of nodes and pods, which
// may leave out what nobody here reads: of pods all but metadata, tolerations,
// spec.nodeName and from the status phase, startTime and conditions; of nodes all
// but metadata, taints, spec.unschedulable and conditions with their heartbeats.
func New(client kubernetes.Interface, factory informers.SharedInformerFactory, recorder events.EventRecorder, set *metric.Set, log *slog.Logger, cfg Config) *Controllers {
	return &Controllers{
		Config: cfg, client: client, recorder: recorder, log: log, metrics: newMetrics(set, cfg),
		nodes: factory.Core().V1().Nodes().Informer(), pods: factory.Core().V1().Pods().Informer(),
	}
}

// Run acts until the context ends, and then waits for the requests under way. It
// runs where leadership is held, on a factory that is started, and may run again.
func (c *Controllers) Run(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	var wait sync.WaitGroup
	defer wait.Wait()
	defer stop()
	o := &owner{
		Controllers: c, wait: &wait, mail: newMailbox(), done: make(chan func(), workers),
		seen: map[string]*v1.Node{}, writes: map[string]write{}, leases: map[string]cache.SharedIndexInformer{},
		monitor: lifecycle.NewMonitor(), departures: lifecycle.NewDepartures(),
	}
	synced, unfollow, err := o.follow(ctx)
	defer unfollow()
	if err != nil {
		return err
	}
	if !cache.WaitForCacheSync(ctx.Done(), synced...) {
		return nil
	}
	o.loop(ctx)
	return nil
}
