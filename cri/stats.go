package cri

import (
	"context"
	"reflect"
	"slices"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/evictd/evictd/cri/inventory"
	"github.com/evictd/evictd/internal/wire"
)

// maxLayers bounds the layers in one message.
const maxLayers = 256

// measure reads writable layers and filesystems, sends what has changed, and when it
// was read. A value that cannot be read stays as it was.
func (r *Runtime) measure(ctx context.Context, c *client) error {
	start := time.Now()
	all, err := r.stats(ctx, c)
	if unusable(err) {
		return c.wrap("measure containers", err)
	}
	complete := err == nil
	var changed []inventory.Layer
	for _, s := range all {
		layer, known := layerOf(s)
		if !known || r.content.containers[layer.Container].ID == "" || reflect.DeepEqual(r.content.layers[layer.Container], layer) {
			continue
		}
		r.content.layers[layer.Container] = layer
		changed = append(changed, layer)
	}
	for layers := range slices.Chunk(changed, maxLayers) {
		r.send(wire.FromAgent{Layers: layers})
	}
	disks, err := c.images.ImageFsInfo(ctx, &cri.ImageFsInfoRequest{})
	if unusable(err) {
		return c.wrap("measure the runtime's filesystems", err)
	}
	if err == nil {
		r.status.ImageFs, r.status.ContainerFs = filesystems(disks.GetImageFilesystems()), filesystems(disks.GetContainerFilesystems())
	}
	if complete {
		r.status.Surveyed = start
	}
	r.sendStatus()
	return nil
}

// stats measures all containers: with one call, by sandbox where the runtime does not
// support that, or each container by itself where one container fails the list.
func (r *Runtime) stats(ctx context.Context, c *client) (all []*cri.ContainerStats, err error) {
	answer, err := c.ListContainerStats(ctx, &cri.ListContainerStatsRequest{})
	if err == nil || unusable(err) {
		return answer.GetStats(), err
	}
	bySandbox, err := c.ListPodSandboxStats(ctx, &cri.ListPodSandboxStatsRequest{})
	if unusable(err) {
		return nil, err
	}
	if err == nil {
		for _, s := range bySandbox.GetStats() {
			all = append(all, s.GetLinux().GetContainers()...)
		}
		return all, nil
	}
	var failed error
	for id := range r.content.containers {
		one, err := c.ContainerStats(ctx, &cri.ContainerStatsRequest{ContainerId: id})
		switch {
		case unusable(err):
			return nil, err
		case err != nil: // probably exited
			failed = err
		default:
			all = append(all, one.GetStats())
		}
	}
	if len(all) == 0 {
		return nil, failed
	}
	return all, nil
}

func layerOf(s *cri.ContainerStats) (layer inventory.Layer, known bool) {
	w := s.GetWritableLayer()
	if w == nil || s.GetAttributes().GetId() == "" {
		return layer, false
	}
	return inventory.Layer{Container: s.Attributes.Id, Bytes: amount(w.UsedBytes), Inodes: amount(w.InodesUsed), At: instant(w.Timestamp)}, true
}

func filesystems(all []*cri.FilesystemUsage) (known []inventory.Filesystem) {
	for _, f := range all {
		if at := f.GetFsId().GetMountpoint(); at != "" {
			known = append(known, inventory.Filesystem{Mountpoint: at, Bytes: amount(f.UsedBytes), Inodes: amount(f.InodesUsed), At: instant(f.Timestamp)})
		}
	}
	return known
}

func amount(v *cri.UInt64Value) *int64 {
	if v == nil {
		return nil
	}
	n := int64(v.Value)
	return &n
}
