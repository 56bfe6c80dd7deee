// Package kube writes to the API server what nodestatus has of a node, and the state of
// evicted pods: conditions, taints, leases, events, the status of victims. It decides
// nothing. Each of these has a reconciler of its own, so that a failure of one does not
// block another.
package kube

import (
	"context"
	"encoding/json"
	"log/slog"
	"maps"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evictd/evictd/internal/wire"
	"github.com/evictd/evictd/nodestatus"
)

const (
	// reportInterval is how often evictd is sent the state of the connection without a
	// change.
	reportInterval = 10 * time.Second
	// victimInterval is how often unfinished victims are reconciled.
	victimInterval = time.Second
)

// Publisher writes the state of one node to an API server.
type Publisher struct {
	client   Client
	node     wire.Node
	mode     nodestatus.Mode
	bounds   evictedPods
	requests *Requests
	send     func(wire.FromAgent)
	log      *slog.Logger

	conditions, taints, lease, nodeLease, victims, evictions, events, surplus, resizing, leftover *reconciler

	mu                sync.Mutex
	state             *wire.NodeConditions
	headroom          wire.Headroom
	seen              *v1.Node // as last read or written; nil where the Node does not exist
	conditionsWritten time.Time
	conflicts         conflictDetector
	leaseWritten      time.Time // when the Lease was last written
	taintsForbidden   time.Time // since when the API server forbids them; zero where it does not
	taintMissing      time.Time // since when a taint could not be written although the API server answers; zero where none is missing
	intents           map[string]*victim
	evictionRequests  map[types.UID]wire.EvictionRequest
	objects           *bool // whether the API server has EvictionRequests; nil where that is not known
	queue             []event
	resizes           []wire.Resize
	resizeFaults      map[types.UID]string // the last that were reported
}

// New makes a Publisher that reports to evictd with send, from any goroutine.
func New(client Client, node wire.Node, mode nodestatus.Mode, requests *Requests, send func(wire.FromAgent), log *slog.Logger) *Publisher {
	p := &Publisher{
		client: client, node: node, mode: mode, requests: requests, send: send, log: log,
		bounds: evictedPods{nodestatus.EvictedPods{TTL: node.EvictedPodTTL, PerOwner: node.EvictedPodsPerOwner}}, conflicts: newConflictDetector(), intents: map[string]*victim{}, evictionRequests: map[types.UID]wire.EvictionRequest{},
	}
	if !node.Register {
		p.bounds = evictedPods{}
	}
	p.conditions = newReconciler("conditions", node.StatusFrequency, p.reportConditions)
	p.taints = newReconciler("taints", node.StatusFrequency, p.reportTaints)
	p.taints.longestForbidden = longestForbiddenTaints
	p.leftover = newReconciler("what an earlier evictd has written", 0, p.removeLeftover)
	p.leftover.longestForbidden = longestForbiddenTaints
	p.lease = newReconciler("lease", renewInterval, p.renewLease)
	p.nodeLease = newReconciler("node lease", renewInterval, p.renewNodeLease)
	p.victims = newReconciler("evicted pods", victimInterval, p.reportVictims)
	p.victims.timeout, p.victims.longestUnanswered = victimTimeout, unansweredVictims
	p.evictions = newReconciler("eviction requests", victimInterval, p.requestEvictions)
	p.events = newReconciler("events", 0, p.reportEvents)
	p.resizing, p.resizeFaults = newReconciler("resizes", victimInterval, p.requestResizes), map[types.UID]string{}
	p.surplus = newReconciler("surplus of evicted pods", p.bounds.interval(), p.deleteSurplus)
	return p
}

// Handle stores a message of evictd and triggers the reconcilers. It does not block.
func (p *Publisher) Handle(m wire.ToAgent) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case m.RemoveLeftover:
		p.leftover.trigger()
	case !p.node.Publish:
	case m.Conditions != nil:
		turned := p.state == nil || p.state.Raised != m.Conditions.Raised
		p.state = m.Conditions
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
		if request := p.evictionRequests[m.Intent.UID]; !request.Delete && (!m.Intent.Requested || m.Intent.Override != "") {
			delete(p.evictionRequests, m.Intent.UID)
		}
		p.addIntent(m.Intent)
	case m.EvictionRequest != nil:
		if m.EvictionRequest.Withdrawn {
			maps.DeleteFunc(p.intents, func(_ string, v *victim) bool { return v.UID == m.EvictionRequest.UID })
		}
		p.evictionRequests[m.EvictionRequest.UID] = *m.EvictionRequest
		p.evictions.trigger()
	case m.Resize != nil:
		p.resizes = append(p.resizes, *m.Resize)
		p.resizes = p.resizes[max(0, len(p.resizes)-maxResizes):]
		p.resizing.trigger()
	case m.Event != nil:
		p.enqueue(p.event(m.Event))
	}
}

// Run reconciles until ctx ends, and returns nil.
func (p *Publisher) Run(ctx context.Context) error {
	var running sync.WaitGroup
	defer running.Wait()
	if p.node.RemoveLeftover {
		p.leftover.trigger()
		running.Go(func() { p.leftover.run(ctx, p.log) })
	}
	if p.node.Publish {
		reconcilers := []*reconciler{p.conditions, p.taints, p.lease, p.victims, p.evictions, p.events, p.resizing}
		if p.bounds.set() {
			reconcilers = append(reconcilers, p.surplus)
		}
		if p.node.Register {
			reconcilers = append(reconcilers, p.nodeLease)
		}
		for _, c := range reconcilers {
			running.Go(func() { c.run(ctx, p.log) })
		}
		running.Go(func() { p.watchNode(ctx) })
	}
	tick := time.NewTicker(reportInterval)
	defer tick.Stop()
	for {
		p.send(wire.FromAgent{API: p.requests.api()})
		select {
		case <-ctx.Done():
			return nil
		case <-p.requests.changed:
		case <-tick.C:
		}
	}
}

// patch encodes a patch.
func patch(body any) []byte {
	text, _ := json.Marshal(body) // of maps, strings and API types
	return text
}

type object = map[string]any
