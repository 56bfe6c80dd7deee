package cluster

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"syscall"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evictd/evictd/cmd/evictd-playground/stage"
)

// stormLasts is for how long replacements are counted, from the condition on.
const stormLasts = 4 * time.Second

// storm is what becomes of the workers beside a cache that grows.
type storm struct {
	scheduler string // the profile that places them
	what      string // that is
	suffix    string // of the names of its workloads

	beside                            bool // all workers, before the cache grew
	evicted                           int
	replacements, back, away, settled int // back on the node; elsewhere; running elsewhere at the end
	workers                           int
	began                             time.Time // the growth
}

// storm has the same happen twice: without NodePressure, and with it.
func (s *story) storm(ctx context.Context) error {
	sets, err := open(ctx, s.client, "storm")
	if err != nil {
		return err
	}
	s.storms = []*storm{
		{scheduler: "without-node-pressure", what: "kube-scheduler's, as it is", suffix: "-1"},
		{scheduler: v1.DefaultSchedulerName, what: "with NodePressure", suffix: "-2"},
	}
	for i, one := range s.storms {
		if i > 0 {
			if err := s.calmDown(ctx, s.storms[i-1], sets); err != nil {
				return err
			}
		}
		if err := s.blow(ctx, one, sets[0], sets[1]); err != nil {
			return err
		}
	}
	return nil
}

// blow lets the cache grow beside its workers, and counts.
func (s *story) blow(ctx context.Context, one *storm, cache, worker *appsv1.ReplicaSet) error {
	s.Tell(time.Now(), stage.Bold, "profile", "%s", one.what)
	held, err := s.begin(ctx, one, cache)
	if err != nil {
		return err
	}
	grower := held[0]
	i := slices.IndexFunc(s.nodes, func(n *node) bool { return n.name == grower.Spec.NodeName })
	s.pressed = s.nodes[i]
	s.pressed.forget()
	workers, err := s.begin(ctx, one, worker)
	if err != nil {
		return err
	}
	one.workers = len(workers)
	one.beside = !slices.ContainsFunc(workers, func(p *pod) bool { return p.Spec.NodeName != s.pressed.name })
	s.Tell(time.Now(), stage.Blue, "scheduler", "placed %v and, beside it, %d workers on %s", grower, one.workers, s.pressed.name)
	one.began = time.Now()
	if err := s.pressed.runner.Signal(grower.UID, syscall.SIGUSR1); err != nil {
		return fmt.Errorf("start the growth: %w", err)
	}
	s.Tell(time.Now(), stage.Bold, "cache", "%v grows, and must not be evicted: %s", grower, grower.Spec.PriorityClassName)
	if err := s.await(ctx, "the condition", soon, func() bool { return !s.pressed.raised.IsZero() }); err != nil {
		return err
	}
	for range stormLasts / time.Second {
		if err := s.pass(ctx, time.Second); err != nil {
			return err
		}
		s.count(one)
		s.Tell(time.Now(), stage.Red, "workers", "%d evicted; of %d replacements %d came back to %s, %d went elsewhere", one.evicted, one.replacements, one.back, s.pressed.name, one.away)
	}
	return nil
}

// begin creates a set for a storm, and waits until its pods run.
func (s *story) begin(ctx context.Context, one *storm, set *appsv1.ReplicaSet) ([]*pod, error) {
	set = set.DeepCopy()
	set.Name += one.suffix
	set.Spec.Template.Spec.SchedulerName = one.scheduler
	if _, err := s.client.AppsV1().ReplicaSets(set.Namespace).Create(ctx, set, metav1.CreateOptions{}); err != nil {
		return nil, err
	}
	err := s.await(ctx, "all pods of "+set.Name+" to run", soon, func() bool { return s.runs(set.Name) == int(*set.Spec.Replicas) })
	return s.podsOf(set.Name), err
}

// runs is how many pods of a workload run.
func (s *story) runs(workload string) (n int) {
	for _, p := range s.podsOf(workload) {
		if !p.running.IsZero() {
			n++
		}
	}
	return n
}

// count looks at all workers there have been.
func (s *story) count(one *storm) {
	one.evicted, one.replacements, one.back, one.away, one.settled = 0, 0, 0, 0, 0
	for _, p := range s.pods {
		if p.owner() != "worker"+one.suffix {
			continue
		}
		if !p.failed.IsZero() && p.Status.Reason == "Evicted" {
			one.evicted++
		}
		if p.created.Before(one.began) {
			continue
		}
		one.replacements++
		switch p.Spec.NodeName {
		case "":
		case s.pressed.name:
			one.back++
		default:
			one.away++
			if !p.running.IsZero() && p.failed.IsZero() {
				one.settled++
			}
		}
	}
}

// calmDown takes a storm's pods away, and waits until its node has recovered.
func (s *story) calmDown(ctx context.Context, one *storm, sets []*appsv1.ReplicaSet) error {
	s.Tell(time.Now(), stage.Bold, "playground", "takes the cache and the workers away, and waits until %s has recovered", s.pressed.name)
	for _, set := range sets {
		patch := []byte(`{"spec":{"replicas":0}}`)
		if _, err := s.client.AppsV1().ReplicaSets(set.Namespace).Patch(ctx, set.Name+one.suffix, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
			return err
		}
	}
	return s.await(ctx, s.pressed.name+" to recover", transition+soon, func() bool {
		for _, p := range s.pods {
			if p.gone.IsZero() && p.failed.IsZero() {
				return false
			}
		}
		return !s.pressed.cleared.IsZero() && !s.pressed.untainted.IsZero()
	})
}

// sumUpStorms writes the figures of both and judges what must hold.
func (s *story) sumUpStorms() error {
	s.Tell(time.Now(), stage.Bold, "summary", "in %v of shortage", stormLasts)
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
	return s.Judge([]stage.Claim{
		{Text: "all workers were beside the cache before it grew", Held: beside},
		{Text: "without NodePressure replacements came back, to be evicted again", Held: off.back > 0 && off.evicted > off.workers},
		{Text: "with it each worker was evicted once, and no replacement came back", Held: on.back == 0 && on.evicted == on.workers && on.workers > 0},
		{Text: "and all of them run on other nodes", Held: on.settled == on.workers && on.workers > 0},
		{Text: "evictd left the cache alone", Held: s.unharmed("cache")},
		{Text: "the kernel killed nobody for want of memory", Held: s.spared()},
	})
}

// unharmed says that no pod of a workload has failed.
func (s *story) unharmed(app string) bool {
	for _, p := range s.pods {
		if p.Labels["app"] == app && !p.failed.IsZero() {
			return false
		}
	}
	return true
}
