package main

import (
	"context"

	"k8s.io/apimachinery/pkg/types"

	"github.com/evictd/evictd/internal/wire"
	"github.com/evictd/evictd/oom/watch"
)

// heldLog is what the unit calls the kernel's log (OpenFile=, systemd 253).
const heldLog = "kmsg"

// watchKernel tells what the kernel kills for want of memory.
func (d *daemon) watchKernel(ctx context.Context) {
	if d.node.cgroups == nil {
		return
	}
	cfg := watch.Config{Log: watch.Log, Held: d.kernelLog, Cgroups: d.node.cgroups, Root: d.node.root, Pods: d.tracker.groups}
	_ = watch.New(cfg, func(k watch.Kill) { d.publisher.KernelKilled(k, d.tracker.named(k.Pod)) }, d.log).Run(ctx)
}

// groups are those of the pods of the last call of track.
func (t *tracker) groups() []watch.Pod {
	var all []watch.Pod
	for _, p := range t.tracked() {
		if p.group != nil {
			all = append(all, watch.Pod{UID: p.UID, Cgroup: p.group.path})
		}
	}
	return all
}

// named is what events call a pod; zero where there is none of that uid.
func (t *tracker) named(uid types.UID) wire.PodName {
	for _, p := range t.tracked() {
		if p.UID == uid {
			return wire.PodName{UID: p.UID, Namespace: p.Namespace, Name: p.Name}
		}
	}
	return wire.PodName{}
}
