package kube

import (
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"
)

// waiting are binding cycles by the names of the objects that they wait for. Any
// goroutine may call its methods.
type waiting struct {
	mu sync.Mutex
	on map[types.NamespacedName][]*waiter
}

// waiter is a binding cycle that waits.
type waiter struct {
	changed chan struct{} // has room for a signal
	names   []types.NamespacedName
}

func newWaiter() *waiter { return &waiter{changed: make(chan struct{}, 1)} }

// add makes a waiter wait for an object. The caller reads the object afterwards, so that
// no change is missed.
func (w *waiting) add(by *waiter, name types.NamespacedName) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if slices.Contains(by.names, name) {
		return
	}
	if w.on == nil {
		w.on = map[types.NamespacedName][]*waiter{}
	}
	by.names = append(by.names, name)
	w.on[name] = append(w.on[name], by)
}

// remove removes a waiter.
func (w *waiting) remove(by *waiter) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, name := range by.names {
		left := slices.DeleteFunc(w.on[name], func(other *waiter) bool { return other == by })
		if w.on[name] = left; len(left) == 0 {
			delete(w.on, name)
		}
	}
}

// wake wakes the waiters for an object.
func (w *waiting) wake(name types.NamespacedName) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, by := range w.on[name] {
		select {
		case by.changed <- struct{}{}:
		default: // it has a signal
		}
	}
}
