// Package nocgroups plays the demo script of a single node on a host without cgroups: the node
// is an amount of memory, and its four pods are measured through procfs, which an unprivileged
// user may do. A pod leaks, and evictd evicts the first in the order of eviction.
package nocgroups

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/evictd/evictd/cmd/evictd-playground/console"
	"github.com/evictd/evictd/nodestatus"
	"github.com/evictd/evictd/nodestatus/render"
)

// Programs are paths.
type Programs struct {
	Evictd string
	Pod    string // what pods run, as the command pod of evictd-playground
}

// script is one run of the playground. The goroutine of run owns it; the others
// send what they saw.
type script struct {
	*console.Printer
	programs Programs
	node     *node
	pods     []*pod
	leaker   *pod
	daemon   *protector

	seen      chan func()  // shows what happened, in its order; no sender waits
	left      atomic.Int64 // bytes available now
	least     atomic.Int64 // since the start
	leaking   bool
	strayed   bool                  // another pod than the leaking one has ended
	shortened bool                  // the transition period
	evictions []nodestatus.Eviction // as evictd reports them
	broken    error                 // ends the script

	// When what happened: in this order, if all goes well.
	crossed, raised, died, back, cleared time.Time
}

// Play plays the script, removes what it made and sums up. The error is nil only
// where everything held, console.ErrNotHeld where something did not, and
// console.ErrInterrupted where ctx ended before the script.
func Play(ctx context.Context, t *console.Printer, programs Programs) error {
	s := newScript(t, programs)
	return s.run(ctx)
}

func newScript(t *console.Printer, programs Programs) *script {
	s := &script{Printer: t, programs: programs, node: &node{}, pods: newPods(), seen: make(chan func(), 64)}
	s.leaker = s.pods[slices.IndexFunc(s.pods, func(p *pod) bool { return p.leaks })]
	s.least.Store(nodeMemory)
	return s
}

func (s *script) run(ctx context.Context) error {
	s.showStep()
	err := s.setUp(ctx)
	if err == nil {
		err = s.follow(ctx)
	}
	s.Done()
	if ctx.Err() != nil {
		s.Print(time.Now(), console.Yellow, "playground", "interrupted: cleaning up")
		_, cleaned := s.cleanUp()
		return errors.Join(console.ErrInterrupted, cleaned)
	}
	var claims []console.Claim
	if err == nil {
		claims = s.claims(ctx)
	}
	log, cleaned := s.cleanUp()
	if err == nil {
		_, stopped := s.daemon.End()
		claims = append(claims,
			console.Claim{Text: "evictd stopped in order", Held: stopped.Success()},
			console.Claim{Text: "nothing is left behind", Held: cleaned == nil})
		if err = s.sumUp(claims); err == nil {
			return nil
		}
	}
	if log != "" {
		s.Print(time.Now(), console.Red, "evictd", "wrote:\n%s", log)
	}
	return errors.Join(err, cleaned)
}

// setUp makes the node, its pods and their protector.
func (s *script) setUp(ctx context.Context) error {
	s.Print(time.Now(), console.Blue, "node", "virtual: %s, used by its pods alone, which are measured through procfs", console.Size(nodeMemory))
	for _, p := range s.pods {
		if err := s.startPod(p); err != nil {
			return err
		}
	}
	var err error
	if s.daemon, err = newProtector(s.pods); err != nil {
		return fmt.Errorf("write manifests: %w", err)
	}
	order, err := s.daemon.start(ctx, s.programs.Evictd, len(s.pods))
	if err != nil {
		return err
	}
	s.Print(time.Now(), console.Blue, "evictd", "runs as process %d, evicts where %s<%s, and would do so in this order:", s.daemon.PID(), memoryAvailable, console.Size(threshold))
	s.show(order)
	s.Print(time.Now(), console.Bold, "browser", "this page shows what follows, live: http://%s", s.daemon.Page)
	return nil
}

func (s *script) startPod(p *pod) error {
	err := p.start(s.programs.Pod)
	if err == nil {
		err = s.node.place(p)
	}
	if err == nil {
		err = p.Fill()
	}
	return err
}

// show shows the pods in the order of their eviction, why the first is it, and why
// the biggest is not.
func (s *script) show(order []nodestatus.Ranked) {
	rows := [][]string{{"#", "POD", "CLASS", "REQUEST", "USING"}}
	for i, r := range order {
		rows = append(rows, []string{fmt.Sprint(i + 1), r.Pod, string(r.QOSClass), r.Request, console.Size(amount(r.Usage))})
	}
	s.Table(rows)
	s.More("%s is first: %s", order[0].Pod, order[0].Because)
	biggest := slices.MaxFunc(order, func(a, b nodestatus.Ranked) int { return cmp.Compare(amount(a.Usage), amount(b.Usage)) })
	if biggest.Pod != order[0].Pod && !biggest.Exceeds {
		s.More("%s uses most, but no more than it requested", biggest.Pod)
	}
}

// amount reads a quantity of evictd's, bytes; zero where it was not measured.
func amount(quantity string) int64 {
	q, _ := resource.ParseQuantity(quantity)
	return q.Value()
}

// cleanUp ends every process, removes everything that was made, and returns what
// evictd wrote.
func (s *script) cleanUp() (log string, err error) {
	if s.daemon != nil && s.daemon.Service != nil {
		stopping, cancel := context.WithTimeout(context.Background(), console.Patience)
		defer cancel()
		_ = s.daemon.Stop(stopping) // a claim says whether it ended in order
		log = s.daemon.Log()
	}
	for _, p := range s.pods {
		if p.Process != nil {
			p.Kill()
		}
	}
	s.node.close()
	if s.daemon != nil {
		err = os.RemoveAll(s.daemon.dir)
	}
	return log, err
}

// claims are judged while the node is still there.
func (s *script) claims(ctx context.Context) []console.Claim {
	s.confirm(ctx)
	evicted := len(s.evictions) == 1 && s.evictions[0].Pod == s.leaker.String() && !s.evictions[0].Gone.IsZero()
	others := true
	for _, p := range s.pods {
		others = others && (p == s.leaker || p.Running())
	}
	return []console.Claim{
		{Text: "memory fell below the threshold, and is above it again", Held: !s.crossed.IsZero() && !s.back.IsZero()},
		{Text: fmt.Sprintf("evictd evicted %v, and that was enough", s.leaker), Held: evicted && !s.died.IsZero()},
		{Text: "no other pod ended", Held: others},
		{Text: "the Node had MemoryPressure and its taint, and lost both", Held: !s.raised.IsZero() && !s.cleared.IsZero()},
	}
}

// sumUp writes the figures and the claims. It is console.ErrNotHeld where one did
// not hold.
func (s *script) sumUp(claims []console.Claim) error {
	s.Print(time.Now(), console.Bold, "summary", "")
	if len(s.evictions) > 0 && !s.died.IsZero() {
		s.measures()
	}
	return s.Judge(claims)
}

// measures are by the playground's own clock, beside evictd's.
func (s *script) measures() {
	e := s.evictions[0]
	from := s.crossing()
	since := func(t time.Time) string { return console.Span(t.Sub(from)) }
	s.Table([][]string{
		{"AFTER THE CROSSING", "", "BY"},
		{"evictd saw it", since(e.Crossed.Time), "evictd"},
		{"evictd decided", since(e.Decided.Time), "evictd"},
		{"first signal", since(e.Signalled.Time), "evictd"},
		{"no process left", since(e.Gone.Time), "evictd"},
		{"its death was seen", since(s.died), "the playground"},
		{"the threshold was kept again", since(s.back), "the playground"},
	})
	s.More("at the worst %dKi below the threshold; freed %s", max(0, threshold-s.least.Load())/1024, cmp.Or(render.Short(memoryAvailable, e.Freed), "an amount that was not measured"))
}

// crossing is when the threshold was crossed, as the first of the two saw it.
// The playground may see nothing where the machine is busy and evictd quick.
func (s *script) crossing() time.Time {
	if seen := s.evictions[0].Crossed.Time; s.crossed.IsZero() || seen.Before(s.crossed) {
		return seen
	}
	return s.crossed
}
