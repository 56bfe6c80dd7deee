// Package kube tells the API server what nodestatus says of a node, and what
// became of its pods: conditions, taints, leases, events, the status of victims.
// It decides nothing. Each of these is a chore of its own, so that one that
// fails holds up no other.
package kube

import (
	"context"
	"encoding/json"
	"log/slog"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/evictd/evictd/internal/wire"
)

const (
	// reportInterval is how often evictd hears of the API server without news.
	reportInterval = 10 * time.Second
	// victimInterval is how often victims are looked at till they are done with.
	victimInterval = time.Second
)

// Publisher tells an API server of one node.
type Publisher struct {
	client   kubernetes.Interface
	node     wire.Node
	requests *Requests
	send     func(wire.Up)
	log      *slog.Logger

	conditions, taints, lease, nodeLease, victims, evictions, events *reconciler

	mu                sync.Mutex
	state             *wire.Standing
	headroom          wire.Headroom
	seen              *v1.Node // as last read or written; nil where there is none
	conditionsWritten time.Time
	conflicts         conflictDetector
	leaseWritten      time.Time // when the Lease was last written
	taintsRetryAt     time.Time // taints are not tried before
	intents           map[string]*victim
	evictionRequests  map[types.UID]wire.Ask
	queue             []event
}

// New makes a Publisher that tells evictd by say, which may be called from any
// goroutine.
func New(client kubernetes.Interface, node wire.Node, requests *Requests, say func(wire.Up), log *slog.Logger) *Publisher {
	p := &Publisher{
		client: client, node: node, requests: requests, send: say, log: log,
		conflicts: newConflictDetector(), intents: map[string]*victim{}, evictionRequests: map[types.UID]wire.Ask{},
	}
	p.conditions = newReconciler("conditions", node.StatusFrequency, p.reportConditions)
	p.taints = newReconciler("taints", node.StatusFrequency, p.reportTaints)
	p.lease = newReconciler("lease", renewInterval, p.renewLease)
	p.nodeLease = newReconciler("node lease", renewInterval, p.renewNodeLease)
	p.victims = newReconciler("evicted pods", victimInterval, p.reportVictims)
	p.evictions = newReconciler("eviction requests", victimInterval, p.requestEvictions)
	p.events = newReconciler("events", 0, p.reportEvents)
	return p
}

// Handle takes up a message of evictd and never waits.
func (p *Publisher) Handle(m wire.Down) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case !p.node.Publish:
	case m.Standing != nil:
		turned := p.state == nil || p.state.Raised != m.Standing.Raised
		p.state = m.Standing
		if turned {
			p.conditions.trigger()
			p.taints.trigger()
			p.lease.trigger()
			p.nodeLease.trigger()
		}
	case m.Headroom != nil:
		p.headroom = *m.Headroom
		if m.Headroom.Urgent {
			p.lease.trigger()
		}
	case m.Intent != nil:
		if !m.Intent.Asked || m.Intent.Override != "" {
			delete(p.evictionRequests, m.Intent.UID)
		}
		p.addIntent(m.Intent)
	case m.Ask != nil:
		p.evictionRequests[m.Ask.UID] = *m.Ask
		p.evictions.trigger()
	case m.Event != nil:
		p.enqueue(p.event(m.Event))
	}
}

// Run tells the API server until ctx ends, and returns nil.
func (p *Publisher) Run(ctx context.Context) error {
	var running sync.WaitGroup
	defer running.Wait()
	if p.node.Publish {
		chores := []*reconciler{p.conditions, p.taints, p.lease, p.victims, p.evictions, p.events}
		if p.node.Register {
			chores = append(chores, p.nodeLease)
		}
		for _, c := range chores {
			running.Go(func() { c.run(ctx, p.log) })
		}
		running.Go(func() { p.watchNode(ctx) })
	}
	tick := time.NewTicker(reportInterval)
	defer tick.Stop()
	for {
		p.send(wire.Up{API: p.requests.api()})
		select {
		case <-ctx.Done():
			return nil
		case <-p.requests.changed:
		case <-tick.C:
		}
	}
}

// patch is a patch as the API server reads it.
func patch(body any) []byte {
	text, _ := json.Marshal(body) // of maps, strings and API types
	return text
}

type object = map[string]any
