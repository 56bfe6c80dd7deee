package framework

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/evictd/evictd/scheduleradapter/nodetable"
)

// question is a request with a name.
type question struct {
	name     string
	answered chan struct{}
}

func (q *question) Answered() <-chan struct{} { return q.answered }

// run asks for the names in order until a request is not answered.
func run(c *Cycle, names ...string) (sent []string, err error) {
	c.beginRun()
	for _, name := range names {
		request := c.Ask(func(r Request) bool { return r.(*question).name == name }, func(context.Context) Request {
			sent = append(sent, name)
			return &question{name, make(chan struct{})}
		})
		if err = c.Await(request); err != nil {
			break
		}
	}
	return sent, err
}

// A further run of an attempt finds the requests of earlier ones in their order, sends others in
// place of those that it cannot use, and has the context of the first run.
func TestASuspendedAttemptFindsItsRequests(t *testing.T) {
	c := &Cycle{Suspends: true, Pod: nodetable.NewPod(&v1.Pod{})}
	var begun context.Context
	for i, step := range []struct{ ask, sent []string }{
		{[]string{"filter", "score"}, []string{"filter"}},
		{[]string{"filter", "score"}, []string{"score"}},
		{[]string{"filter", "score", "preempt"}, []string{"preempt"}},
		{[]string{"filter", "preempt"}, []string{"preempt"}}, // in place of score
		{[]string{"filter", "preempt"}, nil},
	} {
		sent, err := run(c, step.ask...)
		if i == 0 {
			begun = c.Context()
		}
		if len(sent) != len(step.sent) || len(sent) > 0 && sent[0] != step.sent[0] || c.Context() != begun {
			t.Fatalf("run %d sent %v, expected %v in the context of the first run", i, sent, step.sent)
		}
		answered, suspended := c.Suspended()
		if suspended != (len(sent) > 0) || suspended != errors.Is(err, ErrSuspended) {
			t.Fatalf("run %d: suspended %v, %v", i, suspended, err)
		}
		if suspended {
			p := c.ofPod()
			close(p.sent[len(p.sent)-1].(*question).answered)
			answered()
			c.Resume()
		}
	}
	c.beginRun()
	if begun.Err() == nil || c.Context() == begun {
		t.Error("the next attempt has the context of the one before")
	}
}

// A run for a PodGroup waits for responses at most as long as it has computed, all waits taken together.
// Time is that of the bubble of synctest: a sleep stands for computation.
func TestARunForAPodGroupWaitsAsLongAsItHasComputed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		c := &Cycle{Suspends: true, Pod: nodetable.NewPod(&v1.Pod{})}
		c.Timing.Clock = func() time.Duration { return time.Since(begin) }
		// after is answered after that time.
		after := func(d time.Duration) error {
			q := &question{"", make(chan struct{})}
			time.AfterFunc(d, func() { close(q.answered) })
			return c.Await(q)
		}
		c.BeginPodGroup()
		time.Sleep(10 * time.Second)
		if err := after(6 * time.Second); err != nil {
			t.Error("it did not wait 6 of 10 seconds:", err)
		}
		if err := after(5 * time.Second); !errors.Is(err, ErrSuspended) || time.Since(begin) != 20*time.Second {
			t.Errorf("it waited until %v: %v", time.Since(begin), err)
		}
		c.EndPodGroup()
		time.Sleep(10 * time.Second)
		if err := after(time.Second); !errors.Is(err, ErrSuspended) || time.Since(begin) != 30*time.Second {
			t.Errorf("a run for a pod waited: %v", err)
		}
	})
}
