package cycle

import (
	"cmp"
	"context"
	"iter"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/evictd/evictd/scheduleradapter/framework"
	"github.com/evictd/evictd/scheduleradapter/nodetable"
)

// Binding is what is left to do for a pod that has its node.
type Binding struct {
	framework.Assignment
	runner *framework.Runner
}

// Run prepares and binds. It may take long, knows no table, and may run beside
// other bindings and attempts. After a failure the owner forgets the binding.
func (b Binding) Run(ctx context.Context) framework.Status {
	if s := b.Prepare(ctx); !s.OK() {
		return s
	}
	if s := b.Commit(ctx); !s.OK() {
		return s
	}
	b.Finish(ctx)
	return framework.Status{}
}

// Prepare is the first part of Run, after which the pod can still be kept from
// its node.
func (b Binding) Prepare(ctx context.Context) framework.Status {
	return b.runner.PreBind(ctx, b.Assignment)
}

// Prepares says whether Prepare is known to have something to do.
func (b Binding) Prepares() bool { return b.runner.Prepares(b.Assignment) }

// Commit is the second part of Run: it binds.
func (b Binding) Commit(ctx context.Context) framework.Status {
	return b.runner.Bind(ctx, b.Assignment)
}

// Finish is the last part of Run, where Commit went well.
func (b Binding) Finish(ctx context.Context) { b.runner.PostBind(ctx, b.Assignment) }

// Unreserve takes back what plugins have reserved for a pod that is on another
// node, or on this one through somebody else.
func (b Binding) Unreserve() { b.runner.Unreserve(b.Assignment) }

// waiting is a pod that plugins hold back, each until its deadline.
type waiting struct {
	Binding
	deadlines map[string]time.Time
}

func (s *Scheduler) wait(b Binding, waits map[string]time.Duration, now time.Time) {
	w := &waiting{b, make(map[string]time.Time, len(waits))}
	for plugin, longest := range waits {
		w.deadlines[plugin] = now.Add(longest)
	}
	s.waiting[b.Pod.UID] = w
}

// Waiting says whether a pod waits for permission.
func (s *Scheduler) Waiting(uid types.UID) bool { return s.waiting[uid] != nil }

// Allow is a plugin's permission for a waiting pod. The last one returns the
// binding, which is to be run now.
func (s *Scheduler) Allow(uid types.UID, plugin string) (b Binding, permitted bool) {
	w := s.waiting[uid]
	if w == nil {
		return Binding{}, false
	}
	if delete(w.deadlines, plugin); len(w.deadlines) > 0 {
		return Binding{}, false
	}
	delete(s.waiting, uid)
	return w.Binding, true
}

// WaitingPods are the pods that wait for permission, by uid, with the plugins that
// hold each back, sorted.
func (s *Scheduler) WaitingPods() iter.Seq2[*nodetable.Pod, []string] {
	return func(yield func(*nodetable.Pod, []string) bool) {
		for _, uid := range slices.Sorted(maps.Keys(s.waiting)) {
			w := s.waiting[uid]
			if !yield(w.Pod, slices.Sorted(maps.Keys(w.deadlines))) {
				return
			}
		}
	}
}

// Reject ends the wait of a pod with a plugin's status and takes it off its node;
// false where it did not wait.
func (s *Scheduler) Reject(uid types.UID, status framework.Status) (Result, bool) {
	w := s.waiting[uid]
	if w == nil {
		return Result{}, false
	}
	delete(s.waiting, uid)
	s.Forget(w.Binding)
	return Refused(status), true
}

// Deadline is when the next waiting pod is to be rejected, with the pod and the
// plugin that let it wait; false where none waits.
func (s *Scheduler) Deadline() (at time.Time, uid types.UID, plugin string, any bool) {
	for id, w := range s.waiting {
		for name, deadline := range w.deadlines {
			if !any || cmp.Or(deadline.Compare(at), cmp.Compare(id, uid), cmp.Compare(name, plugin)) < 0 {
				at, uid, plugin, any = deadline, id, name, true
			}
		}
	}
	return at, uid, plugin, any
}
