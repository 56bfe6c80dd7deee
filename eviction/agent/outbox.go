package agent

import (
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/evictd/evictd/internal/wire"
)

// outbox holds the messages for the agent: states, of which only the newest is sent,
// evictions until they are reported, events, and orders for the runtime.
type outbox struct {
	nodeSent, conditionsSent, headroomSent bool

	conditions *wire.NodeConditions
	headroom   *wire.Headroom
	intents    []*report // oldest first
	requests   map[types.UID]*request
	events     []wire.Event
	orders     []wire.Order
	look       bool
}

// report is an eviction to be reported, and whether the agent has its newest state.
type report struct {
	wire.Intent
	sent bool
}

// request is the request to evict a soft victim by the Eviction API. It is kept until the
// pod has ended.
type request struct {
	wire.EvictionRequest
	sent, settled bool
	override      string
}

func (o *outbox) intent(id string) *report {
	if at := slices.IndexFunc(o.intents, func(t *report) bool { return t.ID == id }); at >= 0 {
		return o.intents[at]
	}
	return nil
}

// evict adds an eviction or replaces its state; Asked and Override stay where the new state
// does not set them. It returns the ids of the reports that it removes: an earlier one of
// the pod, and the oldest where there are more than maxIntents.
func (o *outbox) evict(i wire.Intent) (replaced []string) {
	if r := o.requests[i.UID]; r != nil {
		i.Requested, i.Override = true, r.override
		if !i.Ended.IsZero() {
			delete(o.requests, i.UID)
		}
	}
	if t := o.intent(i.ID); t != nil {
		i.Requested = i.Requested || t.Requested
		if i.Override == "" {
			i.Override = t.Override
		}
		t.Intent, t.sent = i, false
		return nil
	}
	o.intents = slices.DeleteFunc(o.intents, func(t *report) bool {
		same := t.UID == i.UID
		if same {
			replaced = append(replaced, t.ID)
		}
		return same
	})
	o.intents = append(o.intents, &report{Intent: i})
	for len(o.intents) > maxIntents {
		replaced = append(replaced, o.intents[0].ID)
		o.intents = o.intents[1:]
	}
	return replaced
}

// resend marks everything as not sent, for an agent that has just started.
func (o *outbox) resend() {
	o.nodeSent, o.conditionsSent, o.headroomSent = false, false, false
	for _, r := range o.requests {
		r.sent = false
	}
	for _, t := range o.intents {
		t.sent = false
	}
}

// take returns what is not sent, and marks it as sent.
func (o *outbox) take(node *wire.Node) (messages []wire.ToAgent) {
	add := func(m wire.ToAgent) { messages = append(messages, m) }
	if !o.nodeSent {
		add(wire.ToAgent{Node: node})
	}
	for _, t := range o.intents {
		if !t.sent {
			t.sent = true
			intent := t.Intent
			add(wire.ToAgent{Intent: &intent})
		}
	}
	if o.conditions != nil && !o.conditionsSent {
		add(wire.ToAgent{Conditions: o.conditions})
	}
	for _, r := range o.requests {
		if !r.sent && !r.settled {
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
	for _, order := range o.orders {
		add(wire.ToAgent{Order: &order})
	}
	if o.look {
		add(wire.ToAgent{Refresh: true})
	}
	o.nodeSent, o.conditionsSent, o.headroomSent = true, true, true
	o.events, o.orders, o.look = nil, nil, false
	return messages
}

// forget removes an eviction that is reported.
func (o *outbox) forget(id string) {
	o.intents = slices.DeleteFunc(o.intents, func(t *report) bool { return t.ID == id })
}
