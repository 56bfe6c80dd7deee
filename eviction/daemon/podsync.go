package daemon

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evictd/evictd/cri/inventory"
	"github.com/evictd/evictd/eviction"
	"github.com/evictd/evictd/eviction/control"
	"github.com/evictd/evictd/eviction/kill"
	"github.com/evictd/evictd/internal/serve"
	"github.com/evictd/evictd/internal/tick"
	"github.com/evictd/evictd/nodestatus"
	"github.com/evictd/evictd/oom"
	"github.com/evictd/evictd/stats"
)

// syncPods hands the pods to the loop as they change, writes their oom_score_adj and holds
// pidfds of those that would be evicted first.
func (d *Daemon) syncPods(ctx context.Context) {
	var filesChanged, clusterChanged <-chan struct{}
	if d.manifests != nil {
		var watching sync.WaitGroup
		defer watching.Wait()
		watching.Go(func() { d.manifests.Run(ctx) })
		filesChanged = d.manifests.Changed()
	}
	d.updatePods()
	if d.cluster != nil {
		clusterChanged = d.cluster.agent.Changed()
	}
	annotations := d.newAnnotations()
	defer annotations.close()
	again := time.NewTimer(tick.Until(d.cfg.HousekeepingInterval))
	defer again.Stop()
	waited := time.NewTimer(firstList)
	defer waited.Stop()
	for changed, ticks := true, 0; ; {
		last := d.recent(ctx)
		all := changed || ticks%rescore == 0
		d.score(last.Candidates, all)
		d.prepare(&last, all)
		annotations.follow(d.tracker.pods())
		var look <-chan time.Time
		if g := d.tracker.podsGroup; g != nil && g.missing() || d.tracker.outside.finds || d.tracker.outside.awaits() {
			look = time.After(podsCgroupInterval)
		}
		for waits := true; waits; {
			waits = false
			select {
			case <-ctx.Done():
				return
			case <-again.C:
				again.Reset(tick.Until(d.cfg.HousekeepingInterval))
				ticks++
				changed = d.findGroups() && d.updatePods()
			case paths := <-d.outside:
				d.tracker.outside.paths = paths
				changed = d.tracker.outside.look() && d.updatePods()
			case <-look:
				changed = d.findGroups() && d.updatePods()
			case <-filesChanged:
				changed = d.updatePods()
			case <-clusterChanged:
				changed = d.updatePods()
			case <-d.restartDue():
				d.findRestarted()
				waits = true
			case <-waited.C:
				d.unlisted = true
				changed = d.updatePods()
				if d.tracker.estimates.Unlisted && d.cluster.speaksToRuntime() {
					d.log.Warn("the API server has not listed the pods of this node: until it has, those of kube-system that only the container runtime has are protected")
				}
			}
		}
	}
}

// findGroups looks for the pods' cgroup and for the cgroups outside of it, and reports whether any has changed. When a
// container runtime answers, evictd takes the containers from it and does not look for them by cgroup any more.
func (d *Daemon) findGroups() bool {
	moved := d.findPodsCgroup()
	d.tracker.outside.finds = d.tracker.outside.finds && d.tracker.podsGroup.missing() && !d.hasPods()
	other := d.tracker.outside.look()
	return moved || other
}

// podsCgroupInterval is how often a cgroup is looked for while it is missing; one
// that exists is looked for at each housekeeping interval.
const podsCgroupInterval = time.Second

// updatePods hands the present pods to the loop, and says whether any has changed.
func (d *Daemon) updatePods() (changed bool) {
	var fromFiles, fromCluster []*v1.Pod
	var runtime *inventory.Snapshot
	var bare []inventory.RuncContainer
	if d.manifests != nil {
		fromFiles = d.manifests.Pods()
	}
	if d.cluster != nil {
		fromCluster = d.cluster.agent.Pods()
		if d.cluster.agent.Synced() {
			d.priorities.keep(fromCluster)
		}
		d.tracker.estimates.Priorities = d.priorities.kept
		d.tracker.estimates.Unlisted = d.cluster.speaksToAPI() && !d.cluster.agent.Synced()
		if d.unlisted || !d.tracker.estimates.Unlisted {
			runtime, bare = d.cluster.agent.Runtime(), d.cluster.agent.RuncContainers()
		}
	}
	if runtime != nil && len(runtime.ImageFs) > 0 {
		d.node.collect.Disks.SetRuntimePaths(runtimePaths(&runtime.Runtime))
	}
	first := d.tracker.current == nil
	d.tracker.arrives = func(uid types.UID) bool {
		return d.node.mode == nodestatus.Native && !first && !(d.cluster.speaksToAPI() && d.cluster.agent.WasFirst(uid))
	}
	pods, changed := d.tracker.update(fromFiles, fromCluster, runtime, bare)
	if changed {
		d.loop.SetPods(pods)
	}
	return changed
}

// recent returns the loop's last snapshot, without pods if the loop has ended. Once
// the loop has received the last pods, what is open for others is closed, except for pods that are
// being killed.
func (d *Daemon) recent(ctx context.Context) control.Snapshot {
	ctx, cancel := context.WithTimeout(ctx, serve.Timeout)
	defer cancel()
	last, err := d.loop.Recent(ctx)
	if err != nil {
		return control.Snapshot{}
	}
	if !d.loop.HasReceived(&last) {
		return last
	}
	d.tracker.closeRemoved(func(uid types.UID) bool {
		return d.killer.Kills(uid) || last.State.Victim(uid) != nil
	})
	return last
}

// rescore is the number of ticks between writes of the scores of all pods: a pod whose
// number of tasks is the same can have other processes.
const rescore = 60

// score writes the oom_score_adj of containers' processes that still have the one from the
// runtime: of all pods, or of those whose number of tasks has changed. A process inherits the
// value of its parent.
func (d *Daemon) score(measured []eviction.Candidate, all bool) {
	capacity, known := d.node.first.Memory.Limit.Get()
	if d.scores == nil || !known {
		return
	}
	tasks := make(map[types.UID]stats.Amount, len(measured))
	for _, c := range measured {
		if c.Usage != nil {
			tasks[c.Pod.UID] = c.Usage.Threads
		}
	}
	for _, p := range d.tracker.pods() {
		if p.runc.Load() != nil {
			continue // its score is in its OCI configuration
		}
		if !all && tasks[p.UID] == p.scored {
			continue
		}
		p.scored = tasks[p.UID]
		if _, err := d.scores.Apply(oom.Scores(p.manifest, capacity), p, p.inits); err != nil {
			d.log.Warn("could not set oom_score_adj", "pod", p.String(), "error", err)
		}
	}
}

// prepare opens pidfds of the pods that would be evicted first for memory.available, so that
// none is opened when memory is short: of all of these, or of those whose number of tasks
// has changed.
func (d *Daemon) prepare(last *control.Snapshot, all bool) {
	if d.dryRun || d.node.cgroups == nil {
		return
	}
	by := map[types.UID]*trackedPod{}
	for _, p := range d.tracker.pods() {
		if p.group != nil && p.Protection == "" {
			by[p.UID] = p
		}
	}
	candidates := slices.DeleteFunc(slices.Clone(last.Candidates), func(c eviction.Candidate) bool { return by[c.Pod.UID] == nil })
	var next []kill.Victim
	pods := 0
	for _, r := range eviction.Rank(last.Eviction, eviction.MemoryAvailable, candidates, nil) {
		p := by[r.Pod.UID]
		v := kill.Victim{UID: p.UID, Target: p.Target, Usage: p.Usage}
		if u := r.Candidate.Usage; u != nil && !all {
			v.Tasks = u.Threads
		}
		next = append(next, v)
		if i := restarts(last.Eviction, &r); i >= 0 && p.restartable != nil {
			v.Target, v.Usage = p.restartable.current(i)
			next = append(next, v)
		}
		if pods++; pods == prepared {
			break
		}
	}
	d.killer.Prepare(next)
}

// restarts is the container that would be restarted in place of a pod by what was last measured; negative without
// one.
func restarts(cfg *eviction.Config, r *eviction.Ranked) int {
	if cfg.Restarts.BackOff == 0 || !r.Exceeds || r.Pod.Estimated {
		return -1
	}
	return r.Restartable()
}

const (
	// restartInterval is how often the processes of evicted pods are looked for while the API
	// server does not have an eviction: until the kubelet knows of it, it starts the containers again.
	restartInterval = 100 * time.Millisecond
	// restartPause is how often such an eviction is looked for.
	restartPause = time.Second
	// forbiddenPatience is how long an API server that has just started may forbid reports.
	forbiddenPatience = time.Minute
)

// restartDue is when findRestarted is due; nil where it never is.
func (d *Daemon) restartDue() <-chan time.Time {
	switch {
	case d.dryRun || !d.cluster.speaksToAPI():
		return nil
	case len(d.keeper.Unreported()) > 0:
		return time.After(restartInterval)
	}
	return time.After(restartPause)
}

// findRestarted sends the loop the pods that have processes again while the API server does not have
// their eviction.
func (d *Daemon) findRestarted() {
	now := time.Now()
	if d.cluster.agent.API().Refused["pod status"] == "" {
		d.reportable = now
	}
	forbidden := now.Sub(d.reportable) > forbiddenPatience
	ended := d.keeper.Ended()
	if forbidden {
		d.tracker.ban.end()
	} else {
		d.tracker.ban.follow(now, ended, len(d.keeper.Unreported()))
	}
	if len(ended) == 0 {
		return
	}
	var restarted []eviction.Restarted
	for _, p := range d.tracker.pods() {
		if !slices.Contains(ended, p.UID) || p.Target == nil || d.killer.Kills(p.UID) {
			continue
		}
		if p.group != nil && !forbidden {
			p.group.ForbidStarts()
		}
		if runs, err := p.Target.Populated(); err == nil && runs {
			restarted = append(restarted, eviction.Restarted{UID: p.UID, Forbidden: forbidden})
		}
	}
	if len(restarted) > 0 {
		d.loop.SetRestarted(restarted)
	}
}

// enforceAllocatable limits the memory of the pods' cgroup to what is allocatable, in native
// mode only: in the others the kubelet does that. A lower limit that another program
// has set stays, and is logged in every mode. It retries while the pods use more, and while the
// cgroup does not exist.
func (d *Daemon) enforceAllocatable(ctx context.Context) {
	limit, known := d.node.podsLimit.Get()
	if d.node.cgroups == nil || !known {
		return
	}
	sets := !d.dryRun && d.node.mode == nodestatus.Native
	for {
		before, err := d.limitPods(limit, sets)
		switch {
		case before.IsKnown():
			d.log.Info("the pods' cgroup has a lower memory limit than what is allocatable; it stays", "cgroup", d.tracker.podsGroup.Path(), "limit", before.Or(0), "allocatable", limit)
			return
		case err == nil && sets:
			d.log.Info("the pods' cgroup is limited to what is allocatable", "cgroup", d.tracker.podsGroup.Path(), "memory", limit)
			return
		case err == nil:
			return
		case sets:
			d.log.Warn("the pods' cgroup cannot be limited to what is allocatable yet", "cgroup", d.tracker.podsGroup.Path(), "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(enforceRetry):
		}
	}
}

// limitPods sets the memory limit of the pods' cgroup where it may, unless that has a lower one,
// which is returned. A limit below the usage is an error: memory.max of v2 would have the kernel kill
// processes at once, and memory.limit_in_bytes of v1 refuses it.
func (d *Daemon) limitPods(limit int64, sets bool) (lower stats.Amount, err error) {
	group, err := d.node.cgroups.Open(d.tracker.podsGroup.Path())
	if err != nil {
		return lower, err
	}
	defer group.Close()
	var memory stats.Memory
	if err := group.Memory(&memory); err != nil {
		return lower, err
	}
	if is, known := memory.Limit.Get(); known && is < limit {
		return memory.Limit, nil
	}
	if !sets {
		return lower, nil
	}
	if used := memory.WorkingSet().Or(0); used > limit {
		return lower, fmt.Errorf("the pods use %d bytes, more than %d", used, limit)
	}
	return lower, group.SetMemoryLimit(stats.Known(limit))
}
