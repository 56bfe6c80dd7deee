package cri

import (
	"context"
	"maps"
	"math"
	"path"
	"reflect"
	"slices"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/evictd/evictd/cri/inventory"
	"github.com/evictd/evictd/internal/wire"
)

// maxLayers bounds the layers in one message.
const maxLayers = 256

// measureLayers reads the writable layers, sends those that have changed, and when they were
// asked for. A value that cannot be read stays as it was.
func (s *session) measureLayers() func(context.Context) (func(), error) {
	ids := slices.Sorted(maps.Keys(s.content.containers))
	return func(ctx context.Context) (func(), error) {
		start := time.Now()
		all, unlisted, err := s.stats(ctx, ids)
		return func() {
			s.note("ListContainerStats", unlisted)
			var changed []inventory.Layer
			for _, stats := range all {
				layer, known := layerOf(stats)
				if !known || s.content.containers[layer.Container].ID == "" || reflect.DeepEqual(s.content.layers[layer.Container], layer) {
					continue
				}
				s.content.layers[layer.Container] = layer
				changed = append(changed, layer)
			}
			for layers := range slices.Chunk(changed, maxLayers) {
				s.send(wire.FromAgent{Layers: layers})
			}
			if err == nil {
				s.status.Surveyed = start
			}
		}, err
	}
}

// measureDisks reads the filesystems of images and writable layers. They stay as they were if they cannot be read.
func (s *session) measureDisks() func(context.Context) (func(), error) {
	return func(ctx context.Context) (func(), error) {
		answer, err := s.c.images.ImageFsInfo(ctx, &cri.ImageFsInfoRequest{})
		return func() {
			s.note("ImageFsInfo", err)
			if err == nil {
				s.status.ImageFs, s.status.ContainerFs = filesystems(answer.GetImageFilesystems()), filesystems(answer.GetContainerFilesystems())
			}
		}, err
	}
}

// stats measures all containers: with one call, by sandbox, or each container by itself, as the
// runtime supports it and has an answer. unlisted is the error of the one call.
func (s *session) stats(ctx context.Context, ids []string) (all []*cri.ContainerStats, unlisted, err error) {
	answer, unlisted := s.c.ListContainerStats(ctx, &cri.ListContainerStatsRequest{})
	if unlisted == nil {
		return answer.GetStats(), nil, nil
	}
	if bySandbox, err := s.c.ListPodSandboxStats(ctx, &cri.ListPodSandboxStatsRequest{}); err == nil {
		for _, stats := range bySandbox.GetStats() {
			all = append(all, stats.GetLinux().GetContainers()...)
		}
		return all, unlisted, nil
	}
	for _, one := range each(ctx, ids, func(ctx context.Context, id string) (*cri.ContainerStatsResponse, error) {
		return s.c.ContainerStats(ctx, &cri.ContainerStatsRequest{ContainerId: id})
	}) {
		if one.err == nil { // a container that has ended has none
			all = append(all, one.value.GetStats())
		}
	}
	if len(all) == 0 {
		err = unlisted
	}
	return all, unlisted, err
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
		if at := f.GetFsId().GetMountpoint(); path.IsAbs(at) {
			known = append(known, inventory.Filesystem{Mountpoint: at, Bytes: amount(f.UsedBytes), Inodes: amount(f.InodesUsed), At: instant(f.Timestamp)})
		}
	}
	return known
}

func amount(v *cri.UInt64Value) *int64 {
	if v == nil || v.Value > math.MaxInt64 {
		return nil
	}
	return new(int64(v.Value))
}
