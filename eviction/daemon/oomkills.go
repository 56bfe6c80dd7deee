package daemon

import (
	"context"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/evictd/evictd/cri/inventory"
	"github.com/evictd/evictd/internal/wire"
	"github.com/evictd/evictd/oom/watch"
)

// heldLog is what the unit calls the kernel's log (OpenFile=, systemd 253).
const heldLog = "kmsg"

// watchKernel tells what the kernel kills for want of memory.
func (d *Daemon) watchKernel(ctx context.Context) {
	if d.node.cgroups == nil {
		return
	}
	cfg := watch.Config{Log: watch.Log, OpenLog: d.kernelLog, Cgroups: d.node.cgroups, Root: d.node.root, Pods: d.groups}
	_ = watch.New(cfg, func(k watch.Kill) { d.publisher.KernelKilled(k, d.tracker.named(k.Pod)) }, d.log).Run(ctx)
}

// groups are those of the pods, and of containers that runc alone runs outside them.
func (d *Daemon) groups() []watch.Pod {
	if d.cluster == nil {
		return d.tracker.groups(nil)
	}
	return d.tracker.groups(d.cluster.agent.RuncContainers())
}

func (t *podTracker) groups(bare []inventory.RuncContainer) []watch.Pod {
	var ofPods, outside []watch.Pod
	for _, p := range t.pods() {
		if p.group != nil {
			ofPods = append(ofPods, watch.Pod{UID: p.UID, Cgroup: p.group.path})
		}
	}
	for i := range bare {
		group, seen := strings.CutPrefix(bare[i].Cgroup, t.cgroups.Mount("memory"))
		inPod := func(p watch.Pod) bool { return strings.HasPrefix(group+"/", p.Cgroup+"/") }
		holdsPods := strings.HasPrefix(t.podsGroup.Path()+"/", group+"/")
		if seen && bare[i].Sandbox == "" && !holdsPods && !slices.ContainsFunc(ofPods, inPod) {
			outside = append(outside, watch.Pod{Cgroup: group})
		}
	}
	return append(ofPods, outside...)
}

// named is what events call a pod; zero where there is none of that uid.
func (t *podTracker) named(uid types.UID) wire.PodName {
	for _, p := range t.pods() {
		if p.UID == uid {
			return wire.PodName{UID: p.UID, Namespace: p.Namespace, Name: p.Name}
		}
	}
	return wire.PodName{}
}
