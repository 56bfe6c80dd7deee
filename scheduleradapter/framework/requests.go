package framework

import (
	"context"
	"errors"
	"time"
)

// AttemptTimeout bounds the calls of an attempt to extenders and out-of-tree plugins
// together.
const AttemptTimeout = 30 * time.Second

// ErrSuspended ends a run of an attempt that waits for a response of another program.
var ErrSuspended = errors.New("the attempt waits for a response")

// Request is a request of an attempt to another program. It is answered at the latest
// when the context of the attempt ends.
type Request interface {
	Answered() <-chan struct{} // closed when the response, or an error, is there
}

// requests are those of an attempt. An attempt that waits for a response is suspended, so
// that the owner of the table can handle events: its run ends without result, and after
// all responses it runs again and finds them here.
type requests struct {
	ctx       context.Context
	end       context.CancelFunc
	sent      []Request // in order
	next      int       // index of the next request of the run
	suspended bool
	resumed   bool // the next Begin is a further run
}

// attempt are the requests of the running attempt.
func (c *Cycle) attempt() *requests {
	if c.requests == nil {
		work := c.Work
		if work == nil {
			work = context.Background()
		}
		c.requests = &requests{}
		c.requests.ctx, c.requests.end = context.WithTimeout(work, AttemptTimeout)
	}
	return c.requests
}

// Context ends with the attempt, after AttemptTimeout, or with Work. Calls to other
// programs and to out-of-tree plugins use it.
func (c *Cycle) Context() context.Context { return c.attempt().ctx }

// Ask returns the request that an earlier run of the attempt sent at this point, if it is
// usable: the table may have changed since. Otherwise it sends one.
func (c *Cycle) Ask(usable func(Request) bool, send func(context.Context) Request) Request {
	r := c.attempt()
	if r.next == len(r.sent) || !usable(r.sent[r.next]) {
		r.sent = append(r.sent[:r.next], send(r.ctx))
	}
	r.next++
	return r.sent[r.next-1]
}

// Await blocks until a request is answered. With Suspends it returns ErrSuspended instead.
func (c *Cycle) Await(request Request) error {
	if !c.Suspends {
		<-request.Answered()
		return nil
	}
	select {
	case <-request.Answered():
		return nil
	default:
		c.attempt().suspended = true
		return ErrSuspended
	}
}

// Suspended reports whether the attempt waits for a response, so that the results of its
// run are void. answered waits for all responses; any goroutine may call it. Resume or
// EndAttempt follows.
func (c *Cycle) Suspended() (answered func(), suspended bool) {
	if c.requests == nil || !c.requests.suspended {
		return nil, false
	}
	return c.requests.wait, true
}

func (r *requests) wait() {
	for _, request := range r.sent {
		<-request.Answered()
	}
}

// Resume makes the next Begin a further run of the attempt.
func (c *Cycle) Resume() { c.attempt().resumed = true }

// EndAttempt cancels the requests of the attempt and waits for their ends.
func (c *Cycle) EndAttempt() {
	if c.requests != nil {
		c.requests.end()
		c.requests.wait()
		c.requests = nil
	}
}

// beginRun ends the attempt before, or begins a further run of the same attempt.
func (c *Cycle) beginRun() {
	if r := c.requests; r != nil && r.resumed {
		r.next, r.suspended, r.resumed = 0, false, false
		return
	}
	c.EndAttempt()
}
