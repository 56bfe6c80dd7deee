package cycle

import "sync"

// Calls is the queue of functions that other goroutines post to the owner of a Scheduler.
// Adding never blocks, so that informers are not delayed.
type Calls struct {
	mu     sync.Mutex
	posted []func()
	spare  []func()
	// Signal holds one token while functions are posted.
	Signal chan struct{}
}

// NewCalls makes an empty queue.
func NewCalls() *Calls { return &Calls{Signal: make(chan struct{}, 1)} }

// Add posts a function. Any goroutine may call it.
func (c *Calls) Add(f func()) {
	c.mu.Lock()
	c.posted = append(c.posted, f)
	c.mu.Unlock()
	select {
	case c.Signal <- struct{}{}:
	default:
	}
}

// Run calls the posted functions in order and reports whether there were any.
func (c *Calls) Run() bool {
	c.mu.Lock()
	all := c.posted
	c.posted = c.spare[:0]
	c.mu.Unlock()
	for _, f := range all {
		f()
	}
	clear(all)
	c.mu.Lock()
	c.spare = all
	c.mu.Unlock()
	return len(all) > 0
}
