package demo

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evictd/evictd/cmd/evictd-playground/console"
	"github.com/evictd/evictd/internal/process"
	"github.com/evictd/evictd/nodestatus"
)

const (
	// calm passes before the leak starts, and between acts.
	calm = time.Second
	// beat is between two lines that show how memory falls.
	beat = 500 * time.Millisecond
	// transition is how long a condition outlives its cause once the script needs it no
	// longer.
	transition = 8 * time.Second
)

// act is a part of a demo script.
type act struct {
	what string // happens
	play func(context.Context) error
}

// run plays the acts one after the other; one that does not come true is the last.
func (s *script) run(ctx context.Context, keep bool, sumUp func() error, acts ...act) error {
	err := s.findAddresses(keep)
	for i, act := range acts {
		if err == nil {
			s.Step(i, len(acts), act.what)
			err = act.play(ctx)
		}
	}
	s.Done()
	if ctx.Err() != nil {
		s.Print(time.Now(), console.Yellow, "playground", "interrupted: cleaning up")
		_, cleaned := s.cleanUp()
		return errors.Join(console.ErrInterrupted, cleaned)
	}
	held := sumUp()
	if keep && err == nil {
		s.keep(ctx)
	}
	logs, cleaned := s.cleanUp()
	held = cmp.Or(held, s.Judge([]console.Claim{
		{Text: "every program stopped in order", Held: s.stopped()},
		{Text: "nothing is left behind", Held: cleaned == nil},
	}))
	if err != nil || held != nil {
		s.Print(time.Now(), console.Red, "logs", "%s", logs)
	}
	return errors.Join(err, held, cleaned)
}

// findAddresses finds one for each status page, and for the API of a cluster that
// is kept.
func (s *script) findAddresses(keep bool) error {
	wanted := []*string{&s.page}
	for _, n := range s.nodes {
		wanted = append(wanted, &n.page)
	}
	if keep {
		wanted = append(wanted, &s.address)
	}
	found, err := process.Addresses(len(wanted))
	for i, address := range found {
		*wanted[i] = address
	}
	return err
}

// showPages says where a browser sees the cluster.
func (s *script) showPages() {
	for _, n := range s.nodes {
		s.More("http://%s  %s", n.page, n.name)
	}
	s.More("http://%s  the scheduler", s.page)
}

// await follows what happens until something holds.
func (s *script) await(ctx context.Context, what string, holds func() bool) error {
	late := time.After(console.Patience)
	bars := time.NewTicker(beat)
	defer bars.Stop()
	for !holds() {
		if s.broken != nil {
			return s.broken
		}
		select {
		case happened := <-s.seen:
			happened()
		case <-ctx.Done():
			return fmt.Errorf("waited for %s: %w", what, ctx.Err())
		case <-late:
			return fmt.Errorf("waited %v for %s", console.Patience, what)
		case <-bars.C:
			if left := s.gauge.left.Load(); s.leaking && s.crossed.IsZero() {
				s.Print(time.Now(), console.Bold, "memory", "%s on %s", s.left(left), s.pressed.name)
			}
		}
	}
	return nil
}

// pass follows what happens for a while.
func (s *script) pass(ctx context.Context, while time.Duration) error {
	over := false
	end := time.AfterFunc(while, func() { s.send(ctx, func() { over = true }) })
	defer end.Stop()
	return s.await(ctx, "time to pass", func() bool { return over })
}

// place opens the shop, a workload after the other.
func (s *script) place(ctx context.Context) error {
	sets, err := open(ctx, s.client, "shop")
	if err != nil {
		return err
	}
	rows := [][]string{{"POD", "NODE", "CLASS", "REQUEST", "WHY THERE"}}
	for _, set := range sets {
		if _, err := s.client.AppsV1().ReplicaSets(set.Namespace).Create(ctx, set, metav1.CreateOptions{}); err != nil {
			return err
		}
		err := s.await(ctx, "all pods of "+set.Name+" to run", func() bool {
			placed := s.podsOf(set.Name)
			return len(placed) == int(*set.Spec.Replicas) && !slices.ContainsFunc(placed, func(p *pod) bool { return p.running.IsZero() })
		})
		if err != nil {
			return err
		}
		for _, p := range s.podsOf(set.Name) {
			request := p.Spec.Containers[0].Resources.Requests.Memory()
			rows = append(rows, []string{p.String(), p.Spec.NodeName, string(p.Status.QOSClass), request.String(), set.Annotations[why]})
		}
	}
	s.Print(time.Now(), console.Blue, "scheduler", "placed %d pods, and their processes run in cgroups of their own:", len(rows)-1)
	s.Table(rows)
	s.open, s.placed = true, s.asAsked()
	return nil
}

// asAsked says whether the web is on every node, and the pods that prefer the database's
// node are there.
func (s *script) asAsked() bool {
	on := map[string]bool{}
	for _, p := range s.podsOf("web") {
		on[p.Spec.NodeName] = true
	}
	with := s.one("database").Spec.NodeName
	return len(on) == len(s.nodes) && s.one("worker").Spec.NodeName == with && s.one("crawler").Spec.NodeName == with
}

// one is the first pod of a workload; without any, one that is nowhere.
func (s *script) one(workload string) *pod {
	if found := s.podsOf(workload); len(found) > 0 {
		return found[0]
	}
	return &pod{Pod: &v1.Pod{}}
}

// leak has the worker leak, until its node is out of danger and another pod
// does the work.
func (s *script) leak(ctx context.Context) error {
	worker := s.one("worker")
	i := slices.IndexFunc(s.nodes, func(n *node) bool { return n.name == worker.Spec.NodeName })
	if i < 0 {
		return errors.New("the worker is gone before it could leak")
	}
	s.replacing, s.pressed = "worker", s.nodes[i]
	watching, stop := context.WithCancel(ctx)
	defer stop()
	err := s.beginLeak(ctx, watching, worker)
	if err == nil {
		err = s.relieve(ctx)
	}
	if err != nil {
		return err
	}
	return s.await(ctx, "the replacement to run", func() bool { return s.replacement() != nil && !s.replacement().running.IsZero() })
}

// beginLeak has a pod of the node under pressure leak, and watches the node's memory
// until watching ends.
func (s *script) beginLeak(ctx, watching context.Context, worker *pod) error {
	s.leaker = worker.UID
	if err := s.showRanking(ctx); err != nil {
		return err
	}
	s.help(watching, func(ctx context.Context) error { return s.watchMemory(ctx, s.pressed) })
	if err := s.pass(ctx, calm); err != nil {
		return err
	}
	if err := s.pressed.signal(worker, syscall.SIGUSR1); err != nil {
		return fmt.Errorf("start the leak: %w", err)
	}
	s.leaking = true
	args := worker.Spec.Containers[0].Args
	s.Print(time.Now(), console.Bold, "leak", "%v takes more and more memory of %s: %s a second", worker, s.pressed.name, args[slices.Index(args, "--leak")+1])
	s.More("in a browser: http://%s", s.pressed.page)
	return nil
}

// relieve waits until evictd has evicted the pod and the node is out of danger.
func (s *script) relieve(ctx context.Context) error {
	if err := s.await(ctx, "evictd to evict a pod", func() bool { return s.asked(ctx) }); err != nil {
		return err
	}
	s.Print(time.Now(), console.Red, "evictd", "evicted %s: %s", s.eviction.Pod, strings.TrimSpace(s.eviction.Message))
	s.More("why this one: %s", s.eviction.Because)
	if s.crossed.IsZero() { // all was over before the playground looked again
		s.crossed, s.back = s.eviction.Crossed.Time, s.eviction.Gone.Time
	}
	return s.await(ctx, "memory, the condition, the taint and the pod's end in "+s.published, func() bool {
		return !s.back.IsZero() && !s.pressed.raised.IsZero() && !s.pressed.tainted.IsZero() && s.pod(s.leaker).ended()
	})
}

// asked asks the node's evictd for the eviction, and says whether it is complete.
func (s *script) asked(ctx context.Context) bool {
	document, err := s.pressed.status(ctx)
	if err != nil || len(document.Evictions) == 0 {
		return false
	}
	s.eviction, s.evictions = document.Evictions[0], len(document.Evictions)
	return !s.eviction.Gone.IsZero()
}

// replacement is the worker's, nil while there is none.
func (s *script) replacement() *pod {
	if found := s.podsOf("worker"); len(found) == 1 && found[0].UID != s.leaker {
		return found[0]
	}
	return nil
}

// showRanking shows the pods of the node in the order of their eviction, why the
// first is it, and why the biggest is not.
func (s *script) showRanking(ctx context.Context) error {
	var order []nodestatus.Ranked
	err := s.await(ctx, s.pressed.name+" to rank its pods", func() bool {
		document, err := s.pressed.status(ctx)
		if err == nil {
			order = document.Ranking[memoryAvailable]
		}
		return len(order) == 4 && !slices.ContainsFunc(order, func(r nodestatus.Ranked) bool { return amount(r.Usage) == 0 })
	})
	if err != nil {
		return err
	}
	s.Print(time.Now(), console.Blue, s.pressed.name, "would evict in this order, if it had to:")
	rows := [][]string{{"#", "POD", "CLASS", "REQUEST", "USING"}}
	for i, r := range order {
		rows = append(rows, []string{fmt.Sprint(i + 1), r.Pod, string(r.QOSClass), r.Request, console.Size(amount(r.Usage))})
	}
	s.Table(rows)
	s.biggest = slices.MaxFunc(order, func(a, b nodestatus.Ranked) int { return cmp.Compare(amount(a.Usage), amount(b.Usage)) }).Pod
	s.More("%s is first: %s", order[0].Pod, order[0].Because)
	s.More("%s uses most, but no more than it requested", s.biggest)
	return nil
}

// amount reads a quantity of evictd's, bytes; zero where it was not measured.
func amount(quantity string) int64 {
	q, _ := resource.ParseQuantity(quantity)
	return q.Value()
}

// arrive creates a pod of a file, after a while.
func (s *script) arrive(ctx context.Context, name, node string) (types.UID, error) {
	if err := s.pass(ctx, calm); err != nil {
		return "", err
	}
	wanted, err := readPod(name, node)
	if err != nil {
		return "", err
	}
	created, err := s.client.CoreV1().Pods(wanted.Namespace).Create(ctx, wanted, metav1.CreateOptions{})
	if err != nil {
		return "", err
	}
	s.Print(time.Now(), console.Bold, "arrives", "%s/%s, %s%s", created.Namespace, name, created.Status.QOSClass, map[bool]string{true: ", for " + node}[node != ""])
	return created.UID, nil
}

// keepAway has a BestEffort pod ask for the tainted node.
func (s *script) keepAway(ctx context.Context) (err error) {
	if s.newcomer, err = s.arrive(ctx, "newcomer", s.pressed.name); err != nil {
		return err
	}
	return s.await(ctx, "the scheduler's word on the newcomer", func() bool {
		return s.pod(s.newcomer).refused != "" || !s.pod(s.newcomer).bound.IsZero()
	})
}

// letIn has one come that tolerates the taint.
func (s *script) letIn(ctx context.Context) (err error) {
	if s.tolerant, err = s.arrive(ctx, "tolerant", s.pressed.name); err != nil {
		return err
	}
	err = s.await(ctx, "the tolerant pod to run", func() bool { return !s.pod(s.tolerant).running.IsZero() })
	s.waited = s.pod(s.newcomer).bound.IsZero() && s.pressed.untainted.IsZero()
	return err
}

// preempt has a pod come that fits nowhere, and is more important than others.
func (s *script) preempt(ctx context.Context) (err error) {
	s.replacing = "report"
	if s.urgent, err = s.arrive(ctx, "urgent", ""); err != nil {
		return err
	}
	err = s.await(ctx, "the urgent pod to run", func() bool { return !s.pod(s.urgent).running.IsZero() })
	for uid, p := range s.pods {
		if p.disrupted() == v1.PodReasonPreemptionByScheduler {
			s.victims = append(s.victims, uid)
		}
	}
	return err
}

// heal waits until the node takes pods again.
func (s *script) heal(ctx context.Context) error {
	if err := s.endConditions(); err != nil {
		return err
	}
	return s.await(ctx, "the newcomer to run on the healed node", func() bool {
		return s.pressed.recovered() && !s.pod(s.newcomer).running.IsZero()
	})
}

func (s *script) endConditions() error {
	for _, n := range s.nodes {
		if err := n.endConditions(transition); err != nil {
			return err
		}
	}
	s.Print(time.Now(), console.Bold, "playground", "conditions outlive their cause by %v from now on: every evictd reloads its configuration", transition)
	return nil
}

// keep leaves the cluster running, and says what may be done with it.
func (s *script) keep(ctx context.Context) {
	s.Print(time.Now(), console.Bold, "keep", "the cluster runs until ^C:")
	s.showPages()
	s.More("kubectl --server http://%s get nodes,pods -A -o wide", s.address)
	s.More("kubectl --server http://%s -n %s run more --image=%s -- --hold 20Mi --leak 20Mi --cap 200Mi", s.address, namespace, image)
	s.More("a pod's containerID names its process: kill -USR1 PID starts its leak")
	s.More("%s status --status-address unix:%s", s.programs.Evictd, s.pressed.socket())
	s.kept, s.crossed, s.back = true, time.Time{}, time.Time{}
	for _, n := range s.nodes {
		n.forget()
	}
	for {
		select {
		case happened := <-s.seen:
			happened()
			if s.broken != nil {
				s.Print(time.Now(), console.Red, "playground", "%v", s.broken)
				s.broken = nil
			}
		case <-ctx.Done():
			s.Print(time.Now(), console.Bold, "playground", "ends it all")
			return
		}
	}
}
