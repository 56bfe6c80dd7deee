package agent

import (
	"k8s.io/apimachinery/pkg/types"

	"github.com/evictd/evictd/internal/wire"
)

// outbox holds the messages for the agent: states, of which only the newest is sent,
// requests for evictions, events, and orders for the runtime.
type outbox struct {
	nodeSent, conditionsSent, headroomSent bool

	conditions *wire.NodeConditions
	headroom   *wire.Headroom
	requests   map[types.UID]*request
	events     []wire.Event
	resizes    []wire.Resize
	orders     []wire.Order
	look       bool
	leftover   bool
}

// request is the request to evict a soft victim by the Eviction API.
type request struct {
	wire.EvictionRequest
	sent bool
}

// resend marks everything as not sent, for an agent that has just started.
func (o *outbox) resend() {
	o.nodeSent, o.conditionsSent, o.headroomSent = false, false, false
	for _, r := range o.requests {
		r.sent = false
	}
}

// take returns what is not sent, evictions among it, and marks it as sent. Conditions are
// before evictions: the node has its taint before a pod is replaced.
func (o *outbox) take(node *wire.Node, intents []wire.Intent) (messages []wire.ToAgent) {
	add := func(m wire.ToAgent) { messages = append(messages, m) }
	if !o.nodeSent {
		add(wire.ToAgent{Node: node})
	}
	if o.conditions != nil && !o.conditionsSent {
		add(wire.ToAgent{Conditions: o.conditions})
	}
	for i := range intents {
		add(wire.ToAgent{Intent: &intents[i]})
	}
	for _, r := range o.requests {
		if !r.sent {
			r.sent = true
			sent := r.EvictionRequest
			add(wire.ToAgent{EvictionRequest: &sent})
		}
	}
	if o.headroom != nil && !o.headroomSent {
		add(wire.ToAgent{Headroom: o.headroom})
	}
	for _, e := range o.events {
		add(wire.ToAgent{Event: &e})
	}
	for _, r := range o.resizes {
		add(wire.ToAgent{Resize: &r})
	}
	for _, order := range o.orders {
		add(wire.ToAgent{Order: &order})
	}
	if o.leftover {
		add(wire.ToAgent{RemoveLeftover: true})
	}
	if o.look {
		add(wire.ToAgent{Refresh: true})
	}
	o.nodeSent, o.conditionsSent, o.headroomSent = true, true, true
	o.events, o.resizes, o.orders, o.look, o.leftover = nil, nil, nil, false, false
	return messages
}
