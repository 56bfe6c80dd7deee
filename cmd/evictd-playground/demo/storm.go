package demo

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"syscall"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evictd/evictd/cmd/evictd-playground/console"
)

// stormLasts is for how long replacements are counted at least, from the condition on.
const stormLasts = 4 * time.Second

// storm is what becomes of the workers beside a cache that grows.
type storm struct {
	what      string // places them
	scheduler string // its name as a profile
	suffix    string // of the names of its workloads
	returns   bool   // it lasts until a replacement that came back is evicted

	workers int  // before the cache grew
	beside  bool // it, all of them
	began   time.Time
	tally
}

// tally is of the workers that there have been since.
type tally struct {
	evicted, replacements int
	back, away            int // of the replacements: on the node of the cache, elsewhere
	settled               int // of those elsewhere, that run
}

// gatherClouds starts the cluster, and makes what storms are of.
func (s *script) gatherClouds(ctx context.Context) error {
	err := s.comeUp(ctx)
	if err == nil {
		s.sets, err = open(ctx, s.client, "storm")
	}
	return err
}

// rage is a storm from its beginning.
func (s *script) rage(one *storm) func(context.Context) error {
	return func(ctx context.Context) error {
		cache, err := s.gather(ctx, one)
		if err != nil {
			return err
		}
		return s.blow(ctx, one, cache)
	}
}

// settle waits for all workers to run on other nodes.
func (s *script) settle(one *storm) func(context.Context) error {
	return func(ctx context.Context) error {
		return s.await(ctx, "all workers to run on other nodes", func() bool {
			one.tally = s.count(one)
			return one.settled == one.workers
		})
	}
}

// gather has the scheduler place a cache and its workers.
func (s *script) gather(ctx context.Context, one *storm) (*pod, error) {
	s.Print(time.Now(), console.Bold, "profile", "%s", one.what)
	caches, err := s.begin(ctx, one, s.sets[0])
	if err != nil {
		return nil, err
	}
	s.pressed = s.nodes[slices.IndexFunc(s.nodes, func(n *node) bool { return n.name == caches[0].Spec.NodeName })]
	s.pressed.forget()
	workers, err := s.begin(ctx, one, s.sets[1])
	one.workers = len(workers)
	one.beside = !slices.ContainsFunc(workers, func(p *pod) bool { return p.Spec.NodeName != s.pressed.name })
	s.Print(time.Now(), console.Blue, "scheduler", "placed %v and %d workers, which prefer to be beside it, on %s", caches[0], one.workers, s.pressed.name)
	return caches[0], err
}

// begin creates a workload, and waits until its pods run.
func (s *script) begin(ctx context.Context, one *storm, set *appsv1.ReplicaSet) ([]*pod, error) {
	set = set.DeepCopy()
	set.Name += one.suffix
	set.Spec.Template.Spec.SchedulerName = one.scheduler
	if _, err := s.client.AppsV1().ReplicaSets(set.Namespace).Create(ctx, set, metav1.CreateOptions{}); err != nil {
		return nil, err
	}
	err := s.await(ctx, "all pods of "+set.Name+" to run", func() bool { return s.runs(set.Name) == int(*set.Spec.Replicas) })
	return s.podsOf(set.Name), err
}

// blow lets the cache grow, and counts.
func (s *script) blow(ctx context.Context, one *storm, cache *pod) error {
	one.began = time.Now()
	if err := s.pressed.signal(cache, syscall.SIGUSR1); err != nil {
		return fmt.Errorf("let the cache grow: %w", err)
	}
	s.Print(one.began, console.Bold, "cache", "%v grows, and is not to be evicted: it is %s", cache, cache.Spec.PriorityClassName)
	err := s.await(ctx, "the condition", func() bool { return !s.pressed.raised.IsZero() })
	for lasted := time.Duration(0); err == nil && (lasted < stormLasts || one.returns && !one.cameBack() && lasted < console.Patience); lasted += time.Second {
		if err = s.pass(ctx, time.Second); err != nil {
			return err
		}
		one.tally = s.count(one)
		s.Print(time.Now(), console.Red, "workers", "%d evicted; of %d replacements %d came back to %s, %d went elsewhere", one.evicted, one.replacements, one.back, s.pressed.name, one.away)
	}
	return err
}

// cameBack says whether a replacement came back to the node and was evicted there.
func (o *storm) cameBack() bool { return o.back > 0 && o.evicted > o.workers }

// runs is how many pods of a workload run.
func (s *script) runs(workload string) (n int) {
	for _, p := range s.podsOf(workload) {
		if !p.running.IsZero() {
			n++
		}
	}
	return n
}

// count looks at all workers there have been.
func (s *script) count(one *storm) (t tally) {
	for _, p := range s.pods {
		if p.owner() != "worker"+one.suffix {
			continue
		}
		if !p.failed.IsZero() && p.Status.Reason == "Evicted" {
			t.evicted++
		}
		if p.created.Before(one.began) {
			continue
		}
		t.replacements++
		switch p.Spec.NodeName {
		case "":
		case s.pressed.name:
			t.back++
		default:
			t.away++
			if !p.running.IsZero() && p.failed.IsZero() {
				t.settled++
			}
		}
	}
	return t
}

// calmDown takes a storm's pods away, and waits until its node has recovered.
func (s *script) calmDown(one *storm) func(context.Context) error {
	return func(ctx context.Context) error {
		s.Print(time.Now(), console.Bold, "playground", "takes the cache and the workers away, and waits until %s has recovered", s.pressed.name)
		for _, set := range s.sets {
			patch := []byte(`{"spec":{"replicas":0}}`)
			if _, err := s.client.AppsV1().ReplicaSets(set.Namespace).Patch(ctx, set.Name+one.suffix, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
				return err
			}
		}
		if err := s.pressed.endConditions(transition); err != nil {
			return err
		}
		return s.await(ctx, s.pressed.name+" to recover", func() bool {
			for _, p := range s.pods {
				if p.gone.IsZero() && p.failed.IsZero() {
					return false
				}
			}
			return s.pressed.recovered()
		})
	}
}

// sumUpStorms writes the figures of both and judges what must hold.
func (s *script) sumUpStorms() error {
	s.Print(time.Now(), console.Bold, "summary", "in at least %v of shortage", stormLasts)
	rows := [][]string{{"PROFILE", "EVICTED", "REPLACEMENTS", "CAME BACK", "WENT ELSEWHERE"}}
	beside := len(s.storms) > 0
	for _, one := range s.storms {
		rows = append(rows, []string{one.what, strconv.Itoa(one.evicted), strconv.Itoa(one.replacements), strconv.Itoa(one.back), strconv.Itoa(one.away)})
		beside = beside && one.beside
	}
	s.Table(rows)
	off, on := &storm{}, &storm{}
	if len(s.storms) == 2 {
		off, on = s.storms[0], s.storms[1]
	}
	return s.Judge([]console.Claim{
		{Text: "all workers were beside the cache before it grew", Held: beside},
		{Text: "without NodePressure replacements came back, to be evicted again", Held: off.cameBack()},
		{Text: "with it each worker was evicted once, and no replacement came back", Held: on.back == 0 && on.evicted == on.workers && on.workers > 0},
		{Text: "and all of them run on other nodes", Held: on.settled == on.workers && on.workers > 0},
		{Text: "evictd left the cache alone", Held: s.unharmed("cache")},
		{Text: "the kernel killed no process for lack of memory", Held: s.spared()},
	})
}

// unharmed says that no pod of a workload has failed.
func (s *script) unharmed(app string) bool {
	for _, p := range s.pods {
		if p.Labels["app"] == app && !p.failed.IsZero() {
			return false
		}
	}
	return true
}
