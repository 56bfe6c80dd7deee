package agent

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/evictd/evictd/internal/wire"
)

// maxOrders bounds the orders that are not answered yet.
const maxOrders = 256

// ErrManyOrders is why an order is not given. Callers do without the runtime then.
var ErrManyOrders = errors.New("the container runtime has not answered too many orders")

// stock is what an agent has said of the runtime.
type stock struct {
	sandboxes  map[string]wire.Sandbox
	containers map[string]wire.Container
	layers     map[string]wire.Layer
	images     map[string]wire.Image
}

func newStock() *stock {
	return &stock{
		map[string]wire.Sandbox{}, map[string]wire.Container{}, map[string]wire.Layer{}, map[string]wire.Image{},
	}
}

// hear takes up a message, and says whether it was about the stock.
func (s *stock) hear(m *wire.Up) bool {
	switch {
	case m.Sandbox != nil:
		s.sandboxes[m.Sandbox.ID] = *m.Sandbox
	case m.Container != nil:
		s.containers[m.Container.ID] = *m.Container
	case m.Image != nil:
		s.images[m.Image.ID] = *m.Image
	case m.Layers != nil:
		for _, layer := range m.Layers {
			if _, known := s.containers[layer.Container]; known {
				s.layers[layer.Container] = layer
			}
		}
	case m.Dropped != "":
		delete(s.sandboxes, m.Dropped)
		delete(s.containers, m.Dropped)
		delete(s.layers, m.Dropped)
		delete(s.images, m.Dropped)
	default:
		return false
	}
	return true
}

// inventory lists the stock.
func (s *stock) inventory(runtime *wire.Runtime) *wire.Inventory {
	i := &wire.Inventory{Runtime: *runtime}
	for _, sandbox := range s.sandboxes {
		i.Sandboxes = append(i.Sandboxes, sandbox)
	}
	slices.SortFunc(i.Sandboxes, func(a, b wire.Sandbox) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.UID, b.UID), cmp.Compare(a.Attempt, b.Attempt), cmp.Compare(a.ID, b.ID))
	})
	for id, container := range s.containers {
		i.Containers = append(i.Containers, wire.ContainerLayer{Container: container, Layer: s.layers[id]})
	}
	slices.SortFunc(i.Containers, func(a, b wire.ContainerLayer) int {
		return cmp.Or(cmp.Compare(a.Sandbox, b.Sandbox), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Attempt, b.Attempt), cmp.Compare(a.ID, b.ID))
	})
	for _, id := range slices.Sorted(maps.Keys(s.images)) {
		i.Images = append(i.Images, s.images[id])
	}
	return i
}

// hearRuntime takes up what an agent says of the runtime. It is called with the
// lock held.
func (a *Agent) hearRuntime(m *wire.Up) {
	switch {
	case m.Runtime != nil:
		a.runtime = m.Runtime
	case m.Listed:
		if a.arriving != nil {
			a.stock, a.arriving = a.arriving, nil
		}
	case a.arriving != nil:
		a.arriving.hear(m)
		return
	case !a.stock.hear(m):
		return
	}
	a.inventory = nil
	a.signal()
}

// Runtime is the container runtime as last heard of; nil before that, and where
// there is none to hear of. What it has stays known while it does not answer.
func (a *Agent) Runtime() *wire.Inventory {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.inventory == nil && a.runtime != nil {
		a.inventory = a.stock.inventory(a.runtime)
	}
	return a.inventory
}

// Answers says whether there is a container runtime that answers.
func (a *Agent) Answers() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.answersNow()
}

func (a *Agent) answersNow() bool { return a.running && a.runtime != nil && a.runtime.Connected }

// Look asks the runtime for figures younger than now. They come with a later
// Changed; Inventory.Surveyed tells.
func (a *Agent) Look() { a.tell(func(o *outbox) { o.look = true }) }

// Order lets the runtime do something; the id is chosen here. Without an error
// done is called once, with what became of it: when the runtime answers, when the
// order's deadline has passed, or when the agent is lost. It must not wait. The
// error is ErrManyOrders or, as that of done may be, wire.ErrAway.
func (a *Agent) Order(o wire.Order, done func(error)) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case !a.answersNow():
		return fmt.Errorf("%s %s: %w", o.Kind, o.Target, wire.ErrAway)
	case len(a.orders) == maxOrders:
		return fmt.Errorf("%s %s: %w", o.Kind, o.Target, ErrManyOrders)
	}
	a.lastOrder++
	o.ID = a.lastOrder
	a.orders[o.ID] = done
	a.out.orders = append(a.out.orders, o)
	a.nudge()
	return nil
}

// ordered tells whoever gave an order what became of it.
func (a *Agent) ordered(d *wire.Done) {
	a.mu.Lock()
	done := a.orders[d.ID]
	delete(a.orders, d.ID)
	a.mu.Unlock()
	if done == nil {
		return
	}
	switch {
	case d.Away:
		done(fmt.Errorf("%w: %s", wire.ErrAway, d.Error))
	case d.Error != "":
		done(errors.New(d.Error))
	default:
		done(nil)
	}
}

// abandon ends the orders of an agent that is lost.
func (a *Agent) abandon(why error) {
	a.mu.Lock()
	orders := a.orders
	a.orders, a.out.orders, a.running = map[uint64]func(error){}, nil, false
	a.mu.Unlock()
	for _, id := range slices.Sorted(maps.Keys(orders)) {
		orders[id](fmt.Errorf("%w: the agent has ended: %w", wire.ErrAway, why))
	}
}
