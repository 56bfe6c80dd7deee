package framework

import (
	"context"
	"errors"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// AttemptTimeout bounds the calls for a pod of an attempt to extenders and out-of-tree plugins
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
	pods      map[types.UID]*podRequests // of a PodGroup several
	suspended bool
	awaited   *podRequests // for which the latest run was suspended
	resumed   bool         // the next run is a further one
	// began is the begin of the run by Timing.Clock, waited how long it has waited.
	began, waited time.Duration
}

// podRequests are those for a pod of the attempt.
type podRequests struct {
	ctx  context.Context
	end  context.CancelFunc
	sent []Request // in order
	next int       // index of the next request of the run
	// drawn is the result of Draw; nil: none.
	drawn *int
	// late: the pod has waited for its own requests until the context ended.
	late bool
}

func (c *Cycle) attempt() *requests {
	if c.requests == nil {
		c.requests = &requests{pods: map[types.UID]*podRequests{}}
	}
	return c.requests
}

// ofPod are the requests for the pod of the cycle.
func (c *Cycle) ofPod() *podRequests {
	r := c.attempt()
	p := r.pods[c.Pod.UID]
	if p == nil {
		p = &podRequests{}
		p.begin(c.Work)
		r.pods[c.Pod.UID] = p
	}
	return p
}

func (p *podRequests) begin(work context.Context) {
	if work == nil {
		work = context.Background()
	}
	p.ctx, p.end = context.WithTimeout(work, AttemptTimeout)
}

// Context ends with the attempt, after AttemptTimeout, or with Work. Calls to other
// programs and to out-of-tree plugins use it.
func (c *Cycle) Context() context.Context { return c.ofPod().ctx }

// Ask returns the request that an earlier run of the attempt sent at this point, if it is
// usable: the table may have changed since. Otherwise it sends one.
func (c *Cycle) Ask(usable func(Request) bool, send func(context.Context) Request) Request {
	p := c.ofPod()
	if p.next == len(p.sent) || !usable(p.sent[p.next]) {
		p.sent = append(p.sent[:p.next], send(p.ctx))
	}
	p.next++
	return p.sent[p.next-1]
}

// Draw calls a function once in an attempt: further runs get its result.
func (c *Cycle) Draw(number func() int) int {
	p := c.ofPod()
	if p.drawn == nil {
		p.drawn = new(number())
	}
	return *p.drawn
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
	}
	if c.joint && c.waitsFor(request) {
		return nil
	}
	r := c.attempt()
	r.suspended, r.awaited = true, c.ofPod()
	return ErrSuspended
}

// waitsFor waits for a response. A run for a PodGroup repeats all pods before, so it waits
// together as long as it has computed: a fast extender then does not cost a run for each pod.
func (c *Cycle) waitsFor(request Request) bool {
	r, now := c.attempt(), c.clock()
	patience, end := context.WithTimeout(context.Background(), now-r.began-2*r.waited)
	defer end()
	p := c.ofPod()
	defer func() { r.waited, p.late = r.waited+c.clock()-now, p.late || p.ctx.Err() != nil }()
	select {
	case <-request.Answered():
		return true
	case <-patience.Done():
		return false
	}
}

// clock is the time since any instant; 0 without Timing.Clock.
func (c *Cycle) clock() time.Duration {
	if c.Timing.Clock == nil {
		return 0
	}
	return c.Timing.Clock()
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
	for _, p := range r.pods {
		for _, request := range p.sent {
			<-request.Answered()
		}
	}
}

// Resume makes the next Begin, or BeginPodGroup, a further run of the attempt.
func (c *Cycle) Resume() { c.attempt().resumed = true }

// EndAttempt cancels the requests of the attempt and waits for their ends.
func (c *Cycle) EndAttempt() {
	if c.requests != nil {
		for _, p := range c.requests.pods {
			p.end()
		}
		c.requests.wait()
		c.requests = nil
	}
}

// BeginPodGroup begins the attempt of a PodGroup, or a further run of it. All cycles until
// EndPodGroup belong to it. A pod whose time has passed while another one waited gets it
// again: out-of-tree plugins are called again.
func (c *Cycle) BeginPodGroup() {
	c.beginRun()
	c.joint = true
	r := c.attempt()
	r.began, r.waited = c.clock(), 0
	for _, p := range r.pods {
		if p.ctx.Err() == nil {
			continue
		}
		if p.late = p.late || p == r.awaited; !p.late { // all requests are answered
			p.end()
			p.begin(c.Work)
		}
	}
	r.awaited = nil
}

// EndPodGroup ends the run for a PodGroup.
func (c *Cycle) EndPodGroup() { c.joint = false }

// beginRun ends the attempt before, or begins a further run of the same attempt.
func (c *Cycle) beginRun() {
	r := c.requests
	if r == nil || !r.resumed {
		c.EndAttempt()
		return
	}
	r.suspended, r.resumed = false, false
	for _, p := range r.pods {
		p.next = 0
	}
}
