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

// heldLog is the name of the kernel's log in the unit (OpenFile=, systemd 253).
const heldLog = "kmsg"

// followOOMKills publishes what the kernel's OOM killer kills.
func (d *Daemon) followOOMKills(ctx context.Context) {
	if d.node.cgroups == nil {
		return
	}
	cfg := watch.Config{Log: watch.Log, OpenLog: d.kernelLog, Cgroups: d.node.cgroups, Root: d.node.root, Pods: d.groups}
	_ = watch.New(cfg, func(k watch.Kill) { d.publisher.KernelKilled(k, d.tracker.named(k.Pod)) }, d.log).Run(ctx)
}

// groups are the cgroups of the pods, and of runc's containers outside them.
func (d *Daemon) groups() []watch.Pod {
	if d.cluster == nil {
		return d.tracker.groups(nil)
	}
	return d.tracker.groups(d.cluster.agent.RuncContainers())
}

func (t *podTracker) groups(runc []inventory.RuncContainer) []watch.Pod {
	var ofPods, outside []watch.Pod
	for _, p := range t.pods() {
		if p.group != nil {
			ofPods = append(ofPods, watch.Pod{UID: p.UID, Cgroup: p.group.path})
		}
	}
	for i := range runc {
		group, seen := strings.CutPrefix(runc[i].Cgroup, t.cgroups.Mount("memory"))
		inPod := func(p watch.Pod) bool { return strings.HasPrefix(group+"/", p.Cgroup+"/") }
		holdsPods := strings.HasPrefix(t.podsGroup.Path()+"/", group+"/")
		if seen && runc[i].Sandbox == "" && !holdsPods && !slices.ContainsFunc(ofPods, inPod) {
			outside = append(outside, watch.Pod{Cgroup: group})
		}
	}
	return append(ofPods, outside...)
}

// named is the name of a pod for events; zero for an unknown uid.
func (t *podTracker) named(uid types.UID) wire.PodName {
	for _, p := range t.pods() {
		if p.UID == uid {
			return wire.PodName{UID: p.UID, Namespace: p.Namespace, Name: p.Name}
		}
	}
	return wire.PodName{}
}
