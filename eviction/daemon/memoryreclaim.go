package daemon

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/evictd/evictd/cgroup"
	"github.com/evictd/evictd/eviction"
	"github.com/evictd/evictd/internal/osprocess"
)

// reclaimWatch is how long pods are watched for refaults and stalls, before the first attempt and after
// each.
const reclaimWatch = 250 * time.Millisecond

// memoryReclaimer writes memory.reclaim of pods, and measures them for that, one request at a time in a
// goroutine of its own: the write returns when the kernel has reclaimed.
type memoryReclaimer struct {
	cgroups  *cgroup.System
	groupOf  func(types.UID) string // "" for a pod without a cgroup
	pods     func() []types.UID
	log      *slog.Logger
	requests chan *eviction.StepAction
	outcomes chan<- eviction.StepOutcome
}

// withoutMemoryReclaim says why the kernel has no memory.reclaim; "" if it has.
func (d *Daemon) withoutMemoryReclaim() string {
	switch {
	case d.node.cgroups == nil || d.node.cgroups.Version() != cgroup.V2:
		return "only cgroup v2 has memory.reclaim"
	case !osprocess.KernelIsAtLeast(5, 19):
		return "memory.reclaim needs Linux 5.19, and this is " + osprocess.KernelRelease()
	}
	return ""
}

func (d *Daemon) newMemoryReclaimer(outcomes chan<- eviction.StepOutcome) *memoryReclaimer {
	return &memoryReclaimer{
		cgroups: d.node.cgroups, groupOf: d.tracker.groupOf, pods: d.tracker.uids, log: d.log,
		requests: make(chan *eviction.StepAction, 1), outcomes: outcomes,
	}
}

// take implements stepTaker. A request that waits is dropped: the loop makes a second one only after a change of its
// configuration, and then ignores the outcome of the first.
func (r *memoryReclaimer) take(request *eviction.StepAction) {
	if request.Over { // nothing is in effect between two requests
		return
	}
	select {
	case <-r.requests:
	default:
	}
	r.requests <- request
}

// run carries out requests until ctx ends.
func (r *memoryReclaimer) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case request := <-r.requests:
			take := r.reclaim
			if request.Pod == nil {
				take = r.measure
			}
			select {
			case r.outcomes <- take(ctx, request):
			case <-ctx.Done():
				return
			}
		}
	}
}

// measure measures all pods twice, reclaimWatch apart. Those that cannot be measured are left out.
func (r *memoryReclaimer) measure(ctx context.Context, _ *eviction.StepAction) eviction.StepOutcome {
	result := eviction.StepOutcome{Step: eviction.ReclaimMemory}
	before := map[types.UID]reading{}
	for _, uid := range r.pods() {
		if m, err := r.read(uid); err == nil {
			before[uid] = m
		}
	}
	if !wait(ctx, reclaimWatch) {
		return result
	}
	for uid, first := range before {
		if last, err := r.read(uid); err == nil {
			result.Pods = append(result.Pods, last.since(&first, uid))
		}
	}
	return result
}

// reclaim writes memory.reclaim of one pod, and watches it. What is asked for is never more than the pod has
// above its request by then.
func (r *memoryReclaimer) reclaim(ctx context.Context, request *eviction.StepAction) eviction.StepOutcome {
	uid := request.Pod.UID
	result := eviction.StepOutcome{Step: eviction.ReclaimMemory, UID: uid}
	before, err := r.read(uid)
	if err != nil {
		return result
	}
	bytes := min(request.Bytes, before.WorkingSet.Or(0)-request.Pod.MemoryRequest, before.PageCache.Or(0))
	if result.Less = bytes < request.Bytes; bytes >= pageSize {
		switch err = r.cgroups.ReclaimMemory(r.groupOf(uid), bytes); {
		case err == nil:
			result.Bytes = bytes
		case errors.Is(err, cgroup.ErrGone):
			return result
		default:
			if result.Less = true; !errors.Is(err, cgroup.ErrReclaimedLess) {
				r.log.Warn("memory of a pod could not be reclaimed", "pod", request.Pod.String(), "error", err)
			}
		}
	}
	if after, err := r.read(uid); err == nil && result.Less {
		result.Bytes = min(bytes, before.Usage.Minus(after.Usage).Or(0))
	}
	wait(ctx, reclaimWatch)
	if after, err := r.read(uid); err == nil {
		result.Pods = []eviction.PodMemory{after.since(&before, uid)}
	}
	return result
}

// reading is the memory of a pod at a time.
type reading struct {
	cgroup.ReclaimState
	at time.Time
}

func (r *memoryReclaimer) read(uid types.UID) (m reading, err error) {
	group := r.groupOf(uid)
	if group == "" {
		return m, cgroup.ErrGone
	}
	m.ReclaimState, err = r.cgroups.ReclaimState(group)
	m.at = time.Now()
	return m, err
}

// since is what has become of a pod since an earlier reading.
func (m *reading) since(before *reading, uid types.UID) eviction.PodMemory {
	return eviction.PodMemory{
		UID: uid, WorkingSet: m.WorkingSet.Or(0), PageCache: m.PageCache.Or(0), Over: m.at.Sub(before.at),
		Refaulted: m.Refaulted.Minus(before.Refaulted).Or(0), Stalled: max(0, m.Stall.Some-before.Stall.Some),
	}
}

// wait waits, and says whether ctx has not ended.
func wait(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// groupOf is the path of a pod's cgroup; "" for a pod without one, and one that has left. Any goroutine may call
// it.
func (t *podTracker) groupOf(uid types.UID) string {
	for _, p := range t.pods() {
		if p.UID == uid && p.group != nil {
			return p.group.path
		}
	}
	return ""
}

// uids are those of the pods. Any goroutine may call it.
func (t *podTracker) uids() []types.UID {
	var all []types.UID
	for _, p := range t.pods() {
		all = append(all, p.UID)
	}
	return all
}
