package agent

import (
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/evictd/evictd/internal/wire"
)

// outbox is what the agent is to be told: states, of which the newest counts,
// evictions until they are done with, events, and orders for the runtime.
type outbox struct {
	nodeTold, standingTold, headroomTold bool

	standing *wire.Standing
	headroom *wire.Headroom
	intents  []*told // oldest first
	asks     map[types.UID]*asking
	events   []wire.Event
	orders   []wire.Order
	look     bool
}

// told is an intent, and whether the agent has it as it is now.
type told struct {
	wire.Intent
	told bool
}

// asking is a soft victim that the Eviction API is asked for. It is kept until
// the pod is over.
type asking struct {
	wire.Ask
	told, settled bool
	override      string
}

func (o *outbox) intent(id string) *told {
	if at := slices.IndexFunc(o.intents, func(t *told) bool { return t.ID == id }); at >= 0 {
		return o.intents[at]
	}
	return nil
}

// evict takes up an eviction as far as it has come; what was known of it and is
// not said again stays, and whether the Eviction API was asked. It returns the ids of those that it takes the place of:
// the pod's last one, and the oldest of too many.
func (o *outbox) evict(i wire.Intent) (replaced []string) {
	if a := o.asks[i.UID]; a != nil {
		i.Asked, i.Override = true, a.override
		if !i.Over.IsZero() {
			delete(o.asks, i.UID)
		}
	}
	if t := o.intent(i.ID); t != nil {
		i.Asked = i.Asked || t.Asked
		if i.Override == "" {
			i.Override = t.Override
		}
		t.Intent, t.told = i, false
		return nil
	}
	o.intents = slices.DeleteFunc(o.intents, func(t *told) bool {
		same := t.UID == i.UID
		if same {
			replaced = append(replaced, t.ID)
		}
		return same
	})
	o.intents = append(o.intents, &told{Intent: i})
	for len(o.intents) > maxIntents {
		replaced = append(replaced, o.intents[0].ID)
		o.intents = o.intents[1:]
	}
	return replaced
}

// again makes everything untold, for an agent that has just started.
func (o *outbox) again() {
	o.nodeTold, o.standingTold, o.headroomTold = false, false, false
	for _, a := range o.asks {
		a.told = false
	}
	for _, t := range o.intents {
		t.told = false
	}
}

// take returns what is untold, and counts it as told.
func (o *outbox) take(node *wire.Node) (messages []wire.Down) {
	add := func(m wire.Down) { messages = append(messages, m) }
	if !o.nodeTold {
		add(wire.Down{Node: node})
	}
	for _, t := range o.intents {
		if !t.told {
			t.told = true
			intent := t.Intent
			add(wire.Down{Intent: &intent})
		}
	}
	if o.standing != nil && !o.standingTold {
		add(wire.Down{Standing: o.standing})
	}
	for _, a := range o.asks {
		if !a.told && !a.settled {
			a.told = true
			ask := a.Ask
			add(wire.Down{Ask: &ask})
		}
	}
	if o.headroom != nil && !o.headroomTold {
		add(wire.Down{Headroom: o.headroom})
	}
	for _, e := range o.events {
		add(wire.Down{Event: &e})
	}
	for _, order := range o.orders {
		add(wire.Down{Order: &order})
	}
	if o.look {
		add(wire.Down{Look: true})
	}
	o.nodeTold, o.standingTold, o.headroomTold = true, true, true
	o.events, o.orders, o.look = nil, nil, false
	return messages
}

// forget leaves out an eviction that is done with.
func (o *outbox) forget(id string) {
	o.intents = slices.DeleteFunc(o.intents, func(t *told) bool { return t.ID == id })
}
