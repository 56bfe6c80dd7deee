package agent

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/evictd/evictd/cri/inventory"
	"github.com/evictd/evictd/internal/wire"
)

// maxOrders bounds the orders without an answer.
const maxOrders = 256

// ErrManyOrders means that maxOrders orders are not answered.
var ErrManyOrders = errors.New("the container runtime has not answered too many orders")

// inventoryCache is what an agent has reported of the runtime, by id.
type inventoryCache struct {
	sandboxes  map[string]inventory.Sandbox
	containers map[string]inventory.Container
	images     map[string]inventory.Image
}

func newInventoryCache() *inventoryCache {
	return &inventoryCache{map[string]inventory.Sandbox{}, map[string]inventory.Container{}, map[string]inventory.Image{}}
}

// apply applies a message, and says whether it was about the inventory.
func (s *inventoryCache) apply(m *wire.FromAgent) bool {
	switch {
	case m.Sandbox != nil:
		s.sandboxes[m.Sandbox.ID] = *m.Sandbox
	case m.Container != nil:
		container := *m.Container
		container.Layer = s.containers[container.ID].Layer
		s.containers[container.ID] = container
	case m.Image != nil:
		s.images[m.Image.ID] = *m.Image
	case m.Layers != nil:
		for _, layer := range m.Layers {
			if container, known := s.containers[layer.Container]; known {
				container.Layer = layer
				s.containers[container.ID] = container
			}
		}
	case m.Removed != "":
		delete(s.sandboxes, m.Removed)
		delete(s.containers, m.Removed)
		delete(s.images, m.Removed)
	default:
		return false
	}
	return true
}

// snapshot lists the cache.
func (s *inventoryCache) snapshot(runtime *inventory.Runtime) *inventory.Snapshot {
	i := &inventory.Snapshot{Runtime: *runtime}
	for _, sandbox := range s.sandboxes {
		i.Sandboxes = append(i.Sandboxes, sandbox)
	}
	slices.SortFunc(i.Sandboxes, func(a, b inventory.Sandbox) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.UID, b.UID), cmp.Compare(a.Attempt, b.Attempt), cmp.Compare(a.ID, b.ID))
	})
	for _, container := range s.containers {
		i.Containers = append(i.Containers, container)
	}
	slices.SortFunc(i.Containers, func(a, b inventory.Container) int {
		return cmp.Or(cmp.Compare(a.Sandbox, b.Sandbox), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Attempt, b.Attempt), cmp.Compare(a.ID, b.ID))
	})
	for _, id := range slices.Sorted(maps.Keys(s.images)) {
		i.Images = append(i.Images, s.images[id])
	}
	return i
}

// handleRuntime handles a message about the runtime. a.mu is held.
func (a *Agent) handleRuntime(m *wire.FromAgent) {
	switch {
	case m.Runtime != nil:
		a.runtime = m.Runtime
	case m.Listed:
		if a.arriving != nil {
			a.cache, a.arriving = a.arriving, nil
		}
	case a.arriving != nil:
		a.arriving.apply(m)
		return
	case !a.cache.apply(m):
		return
	}
	a.snapshot = nil
	a.signal()
}

// Runtime is the container runtime as last reported; nil before the first report. The
// inventory stays while the runtime does not answer.
func (a *Agent) Runtime() *inventory.Snapshot {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.snapshot == nil && a.runtime != nil {
		a.snapshot = a.cache.snapshot(a.runtime)
	}
	return a.snapshot
}

// RuncContainers are the containers that runc runs, as last reported. The slice does not
// change later.
func (a *Agent) RuncContainers() []inventory.RuncContainer {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.runc
}

// Answers says whether there is a container runtime that answers.
func (a *Agent) Answers() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.answersNow()
}

func (a *Agent) answersNow() bool { return a.running && a.runtime != nil && a.runtime.Connected }

// Look requests figures younger than now from the runtime. Changed receives when they
// arrive; Surveyed has their time.
func (a *Agent) Look() { a.update(func(o *outbox) { o.look = true }) }

// Order sends an order to the runtime; the agent chooses its id. If Order returns nil, done
// is called once: with nil or the runtime's error, after the deadline, or when the agent
// has ended. done must not block. The error is ErrManyOrders or wire.ErrAway, which done
// can get too.
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
	a.notify()
	return nil
}

// finishOrder calls the callback of an order.
func (a *Agent) finishOrder(d *wire.Done) {
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

// abandon fails the orders of an agent that has ended.
func (a *Agent) abandon(why error) {
	a.mu.Lock()
	orders := a.orders
	a.orders, a.out.orders, a.running = map[uint64]func(error){}, nil, false
	a.mu.Unlock()
	for _, id := range slices.Sorted(maps.Keys(orders)) {
		orders[id](fmt.Errorf("%w: the agent has ended: %w", wire.ErrAway, why))
	}
}
