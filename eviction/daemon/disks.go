package daemon

import (
	"path/filepath"
	"strings"

	"github.com/evictd/evictd/cri/inventory"
	"github.com/evictd/evictd/eviction"
	"github.com/evictd/evictd/eviction/pods"
	"github.com/evictd/evictd/stats"
	"github.com/evictd/evictd/stats/collect"
)

// runtimePaths are the filesystems of images and writable layers: the first that the runtime
// names for each (kubelet).
func runtimePaths(runtime *inventory.Runtime) collect.Paths {
	var paths collect.Paths
	if len(runtime.ImageFs) > 0 {
		paths.ImageFs = runtime.ImageFs[0].Mountpoint
	}
	if len(runtime.ContainerFs) > 0 {
		paths.ContainerFs = runtime.ContainerFs[0].Mountpoint
	}
	return paths
}

// runtimeFigures are the runtime's figures of the newest container of each name.
func runtimeFigures(containers []eviction.Container, runtime *pods.RuntimePod) collect.RuntimeFigures {
	t := collect.RuntimeFigures{Layers: make([]stats.Volume, len(containers)), Logs: make([]collect.PodPath, len(containers))}
	for i := range containers {
		c := runtime.Current(containers[i].Name)
		if c == nil {
			continue
		}
		t.Layers[i] = stats.Volume{Time: c.Layer.At, Used: amount(c.Layer.Bytes), Inodes: amount(c.Layer.Inodes)}
		// Only a directory of the container's name holds no files of others.
		if dir := filepath.Dir(c.LogPath); filepath.IsAbs(dir) && filepath.Base(dir) == c.Name {
			t.Logs[i] = collect.PodPath{Root: filepath.Dir(dir), Below: c.Name}
		}
	}
	return t
}

// sourceOf is the source of a signal's measurements.
func sourceOf(s eviction.Signal) string {
	switch s {
	case eviction.MemoryAvailable:
		return "memory"
	case eviction.PIDAvailable:
		return "tasks"
	case eviction.SwapAvailable:
		return "swap"
	case eviction.MemoryStall:
		return "memory pressure"
	}
	filesystem, _, _ := strings.Cut(s.String(), ".")
	return filesystem
}

func amount(n *int64) stats.Amount {
	if n == nil {
		return stats.Amount{}
	}
	return stats.Known(*n)
}
