package page

import (
	"slices"
	"sync"
)

// Ring keeps the last values that were added, in memory made beforehand. Any
// goroutine may use it.
type Ring[T any] struct {
	mu   sync.Mutex
	all  []T
	next int // where the oldest is, once all is full
}

// NewRing makes a Ring of so many values.
func NewRing[T any](size int) *Ring[T] { return &Ring[T]{all: make([]T, 0, size)} }

// Add puts a value in the place of the oldest.
func (r *Ring[T]) Add(value T) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.all) < cap(r.all) {
		r.all = append(r.all, value)
		return
	}
	r.all[r.next] = value
	r.next = (r.next + 1) % len(r.all)
}

// All are the values, oldest first.
func (r *Ring[T]) All() []T {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Concat(r.all[r.next:], r.all[:r.next])
}
