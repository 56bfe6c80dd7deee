package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/evictd/evictd/nodestatus"
)

// longest is when the story ends, whatever has happened by then.
const longest = 45 * time.Second

// story is one run of the playground. The goroutine of run owns it; the others
// send what they saw.
type story struct {
	*teller
	options
	self   string // path of this program
	node   *node
	pods   []*pod
	leaker *pod
	daemon *daemon

	seen      chan func()  // tells what happened, in its order; nobody waits to send
	left      atomic.Int64 // bytes available now
	least     atomic.Int64 // since the start
	leaking   bool
	evictions []nodestatus.Eviction // as evictd tells of them
	broken    error                 // ends the story

	// When what happened: in this order, if all goes well.
	crossed, raised, died, back, cleared time.Time
}

func newStory(t *teller, self string, o options) *story {
	s := &story{teller: t, options: o, self: self, node: &node{}, pods: newPods(), seen: make(chan func(), 64)}
	s.leaker = s.pods[slices.IndexFunc(s.pods, func(p *pod) bool { return p.leaks })]
	s.least.Store(nodeMemory)
	return s
}

// run plays the story, removes what it made and sums up. The error is nil only
// where everything held.
func (s *story) run(interrupt context.Context) error {
	ctx, cancel := context.WithTimeout(interrupt, longest)
	defer cancel()
	err := s.setUp(ctx)
	if err == nil {
		err = s.follow(ctx)
	}
	if interrupt.Err() != nil {
		s.tell(time.Now(), yellow, "playground", "interrupted: cleaning up")
		_, cleaned := s.cleanUp()
		return errors.Join(errInterrupted, cleaned)
	}
	var claims []claim
	if err == nil {
		claims = s.claims(ctx)
	}
	log, cleaned := s.cleanUp()
	if err == nil {
		claims = append(claims,
			claim{"evictd stopped in order", s.daemon.state.Success()},
			claim{"nothing is left behind", cleaned == nil})
		if err = s.sumUp(claims); err == nil {
			return nil
		}
	}
	if log != "" {
		s.tell(time.Now(), red, "evictd", "wrote:\n%s", log)
	}
	return errors.Join(err, cleaned)
}

// setUp makes the node, its pods and their protector.
func (s *story) setUp(ctx context.Context) error {
	s.makeNode()
	for _, p := range s.pods {
		if err := s.startPod(ctx, p); err != nil {
			return err
		}
	}
	var err error
	if s.daemon, err = newDaemon(s.pods); err != nil {
		return fmt.Errorf("write manifests: %w", err)
	}
	order, err := s.daemon.start(ctx, s.evictd, s.node, len(s.pods))
	if err != nil {
		return err
	}
	s.tell(time.Now(), blue, "evictd", "runs as process %d, evicts where %s<%s, and would do so in this order:", s.daemon.pid, memoryAvailable, size(threshold))
	s.show(order)
	return nil
}

// makeNode is content with a virtual node where there can be no real one.
func (s *story) makeNode() {
	if !s.procfs {
		made, err := newNode()
		if err == nil {
			s.node = made
		} else {
			s.tell(time.Now(), yellow, "playground", "no cgroup can be made here (%v), so the node is a virtual one", err)
		}
	}
	s.tell(time.Now(), blue, "node", "%v", s.node)
}

func (s *story) startPod(ctx context.Context, p *pod) error {
	if err := p.start(ctx, s.self); err != nil {
		return err
	}
	if err := s.node.place(p); err != nil {
		return fmt.Errorf("place pod %v: %w", p, err)
	}
	return p.fill()
}

// show shows the pods in the order of their eviction, why the first is it, and why
// the biggest is not.
func (s *story) show(order []nodestatus.Ranked) {
	rows := [][]string{{"#", "POD", "CLASS", "REQUEST", "USING"}}
	for i, r := range order {
		rows = append(rows, []string{fmt.Sprint(i + 1), r.Pod, string(r.QOSClass), r.Request, size(amount(r.Usage))})
	}
	s.table(rows)
	s.more("%s is first: %s", order[0].Pod, order[0].Because)
	biggest := slices.MaxFunc(order, func(a, b nodestatus.Ranked) int { return cmp.Compare(amount(a.Usage), amount(b.Usage)) })
	if biggest.Pod != order[0].Pod && !biggest.Exceeds {
		s.more("%s uses most, but no more than it requested", biggest.Pod)
	}
}

// amount reads a quantity of evictd's, bytes; zero where it was not measured.
func amount(quantity string) int64 {
	q, _ := resource.ParseQuantity(quantity)
	return q.Value()
}

// cleanUp ends every process, removes everything that was made, and returns what
// evictd wrote.
func (s *story) cleanUp() (log string, err error) {
	if s.daemon != nil && s.daemon.process != nil {
		s.daemon.end()
		log = s.daemon.log()
	}
	for _, p := range s.pods {
		if p.process != nil {
			p.end()
		}
	}
	err = s.node.remove()
	if s.daemon != nil {
		err = errors.Join(err, s.daemon.remove())
	}
	return log, err
}

// claim is something that must hold for the story to be true.
type claim struct {
	text string
	held bool
}

// claims are judged while the node is still there.
func (s *story) claims(ctx context.Context) []claim {
	s.confirm(ctx)
	evicted := len(s.evictions) == 1 && s.evictions[0].Pod == s.leaker.String() && !s.evictions[0].Gone.IsZero()
	others := true
	for _, p := range s.pods {
		others = others && (p == s.leaker || p.running())
	}
	claims := []claim{
		{"memory fell below the threshold, and is above it again", !s.crossed.IsZero() && !s.back.IsZero()},
		{fmt.Sprintf("evictd evicted %v, and that was enough", s.leaker), evicted && !s.died.IsZero()},
		{"nobody else died", others},
		{"the Node had MemoryPressure and its taint, and lost both", !s.raised.IsZero() && !s.cleared.IsZero()},
	}
	if s.node.cgroups != nil {
		kills, err := s.node.kernelKills(s.pods)
		claims = append(claims, claim{"the kernel killed nobody for want of memory", err == nil && kills == 0})
	}
	return claims
}

// sumUp writes the figures and the claims. It is errNotHeld where one did not
// hold.
func (s *story) sumUp(claims []claim) (err error) {
	s.tell(time.Now(), bold, "summary", "")
	if len(s.evictions) > 0 && !s.died.IsZero() {
		s.measures()
	}
	for _, c := range claims {
		mark := s.paint(green, "yes")
		if !c.held {
			mark, err = s.paint(red, "NO "), errNotHeld
		}
		s.more("%s  %s", mark, c.text)
	}
	return err
}

// measures are by the playground's own clock, beside evictd's.
func (s *story) measures() {
	e := s.evictions[0]
	from := s.crossing()
	since := func(t time.Time) string { return milliseconds(t.Sub(from)) }
	s.table([][]string{
		{"AFTER THE CROSSING", "", "BY"},
		{"evictd saw it", since(e.Crossed.Time), "evictd"},
		{"evictd decided", since(e.Decided.Time), "evictd"},
		{"first signal", since(e.Signalled.Time), "evictd"},
		{"no process left", since(e.Gone.Time), "evictd"},
		{"its death was seen", since(s.died), "the playground"},
		{"the threshold was kept again", since(s.back), "the playground"},
	})
	s.more("at the worst %dKi below the threshold; freed %s", max(0, threshold-s.least.Load())/1024, cmp.Or(e.Freed, "an amount that was not measured"))
}

// crossing is when the threshold was crossed, as the first of the two saw it.
// The playground may see nothing where the machine is busy and evictd quick.
func (s *story) crossing() time.Time {
	if seen := s.evictions[0].Crossed.Time; s.crossed.IsZero() || seen.Before(s.crossed) {
		return seen
	}
	return s.crossed
}
