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
	"github.com/evictd/evictd/nodestatus"
)

const (
	// tellEvery is how often evictd hears of the API server without news.
	tellEvery = 10 * time.Second
	// recheck is how often victims are looked at till they are done with.
	recheck = time.Second
)

// Publisher tells an API server of one node.
type Publisher struct {
	client   kubernetes.Interface
	node     wire.Node
	mode     nodestatus.Mode
	requests *Requests
	say      func(wire.Up)
	log      *slog.Logger

	conditions, taints, lease, nodeLease, victims, asked, events *chore

	mu       sync.Mutex
	standing *wire.Standing
	headroom wire.Headroom
	seen     *v1.Node // as last read or written; nil where there is none
	reported time.Time
	rival    rival
	leased   time.Time // when the Lease was last written
	avoid    time.Time // taints are not tried before
	intents  map[string]*victim
	asks     map[types.UID]wire.Ask
	queue    []event
}

// New makes a Publisher that tells evictd by say, which may be called from any
// goroutine.
func New(client kubernetes.Interface, node wire.Node, mode nodestatus.Mode, requests *Requests, say func(wire.Up), log *slog.Logger) *Publisher {
	p := &Publisher{
		client: client, node: node, mode: mode, requests: requests, say: say, log: log,
		rival: newRival(), intents: map[string]*victim{}, asks: map[types.UID]wire.Ask{},
	}
	p.conditions = newChore("conditions", node.StatusFrequency, p.reportConditions)
	p.taints = newChore("taints", node.StatusFrequency, p.reportTaints)
	p.lease = newChore("lease", renewEvery, p.renewLease)
	p.nodeLease = newChore("node lease", renewEvery, p.renewNodeLease)
	p.victims = newChore("evicted pods", recheck, p.reportVictims)
	p.asked = newChore("eviction requests", recheck, p.requestEvictions)
	p.events = newChore("events", 0, p.reportEvents)
	return p
}

// Handle takes up a message of evictd and never waits.
func (p *Publisher) Handle(m wire.Down) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case !p.node.Publish:
	case m.Standing != nil:
		turned := p.standing == nil || p.standing.Raised != m.Standing.Raised
		p.standing = m.Standing
		if turned {
			p.conditions.due()
			p.taints.due()
			p.lease.due()
			p.nodeLease.due()
		}
	case m.Headroom != nil:
		p.headroom = *m.Headroom
		if m.Headroom.Urgent {
			p.lease.due()
		}
	case m.Intent != nil:
		if !m.Intent.Asked || m.Intent.Override != "" {
			delete(p.asks, m.Intent.UID)
		}
		p.intend(m.Intent)
	case m.Ask != nil:
		p.asks[m.Ask.UID] = *m.Ask
		p.asked.due()
	case m.Event != nil:
		p.enqueue(p.event(m.Event))
	}
}

// Run tells the API server until ctx ends, and returns nil.
func (p *Publisher) Run(ctx context.Context) error {
	var running sync.WaitGroup
	defer running.Wait()
	if p.node.Publish {
		chores := []*chore{p.conditions, p.taints, p.lease, p.victims, p.asked, p.events}
		if p.node.Register {
			chores = append(chores, p.nodeLease)
		}
		for _, c := range chores {
			running.Go(func() { c.run(ctx, p.log) })
		}
		running.Go(func() { p.watchNode(ctx) })
	}
	tick := time.NewTicker(tellEvery)
	defer tick.Stop()
	for {
		p.say(wire.Up{API: p.requests.api()})
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
