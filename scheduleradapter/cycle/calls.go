package cycle

import "sync"

// calls is the queue of functions that other goroutines post to the loop's. Adding
// never blocks, so that informers are not delayed.
type calls struct {
	mu     sync.Mutex
	posted []func()
	spare  []func()
	signal chan struct{} // holds one token while functions are posted
}

func newCalls() *calls { return &calls{signal: make(chan struct{}, 1)} }

func (c *calls) add(f func()) {
	c.mu.Lock()
	c.posted = append(c.posted, f)
	c.mu.Unlock()
	select {
	case c.signal <- struct{}{}:
	default:
	}
}

// run calls the posted functions in order and reports whether there were any.
func (c *calls) run() bool {
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
