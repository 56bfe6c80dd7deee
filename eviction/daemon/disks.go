package daemon

import (
	"path/filepath"

	"github.com/evictd/evictd/cri/inventory"
	"github.com/evictd/evictd/eviction"
	"github.com/evictd/evictd/eviction/pods"
	"github.com/evictd/evictd/stats"
	"github.com/evictd/evictd/stats/collect"
)

// located is where the runtime keeps images and writable layers: the first
// filesystem that it names for each, as in the kubelet.
func located(runtime *inventory.Runtime) collect.Paths {
	var paths collect.Paths
	if len(runtime.ImageFs) > 0 {
		paths.ImageFs = runtime.ImageFs[0].Mountpoint
	}
	if len(runtime.ContainerFs) > 0 {
		paths.ContainerFs = runtime.ContainerFs[0].Mountpoint
	}
	return paths
}

// told is what the runtime says of the newest container of each name.
func told(containers []eviction.Container, runtime *pods.RuntimePod) collect.RuntimeFigures {
	t := collect.RuntimeFigures{Layers: make([]stats.Volume, len(containers)), Logs: make([]collect.PodPath, len(containers))}
	for i := range containers {
		c := runtime.Current(containers[i].Name)
		if c == nil {
			continue
		}
		t.Layers[i] = stats.Volume{Time: c.Layer.At, Used: amount(c.Layer.Bytes), Inodes: amount(c.Layer.Inodes)}
		// A directory of the container's own: another one may hold others' files.
		if dir := filepath.Dir(c.LogPath); filepath.IsAbs(dir) && filepath.Base(dir) == c.Name {
			t.Logs[i] = collect.PodPath{Root: filepath.Dir(dir), Below: c.Name}
		}
	}
	return t
}

func amount(n *int64) stats.Amount {
	if n == nil {
		return stats.Amount{}
	}
	return stats.Known(*n)
}
