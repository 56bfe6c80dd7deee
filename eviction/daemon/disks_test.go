package daemon

import (
	"testing"
	"time"

	"github.com/evictd/evictd/cri/inventory"
	"github.com/evictd/evictd/eviction"
	"github.com/evictd/evictd/eviction/pods"
	"github.com/evictd/evictd/stats"
	"github.com/evictd/evictd/stats/collect"
)

func TestTheRuntimesFirstFilesystemsAreTheNodes(t *testing.T) {
	of := func(paths ...string) (all []inventory.Filesystem) {
		for _, path := range paths {
			all = append(all, inventory.Filesystem{Mountpoint: path})
		}
		return all
	}
	for _, test := range []struct {
		runtime inventory.Runtime
		want    collect.Paths
	}{
		{inventory.Runtime{ImageFs: of("/images", "/more"), ContainerFs: of("/layers")}, collect.Paths{ImageFs: "/images", ContainerFs: "/layers"}},
		{inventory.Runtime{ImageFs: of("/images")}, collect.Paths{ImageFs: "/images"}},
	} {
		if got := runtimePaths(&test.runtime); got != test.want {
			t.Errorf("got %v, want %v", got, test.want)
		}
	}
}

func TestTheRuntimesNewestContainersAreReported(t *testing.T) {
	at, bytes, inodes := time.Unix(1, 0), int64(4096), int64(3)
	of := func(name, log string, layer inventory.Layer) *inventory.Container {
		return &inventory.Container{Name: name, LogPath: log, Layer: layer}
	}
	r := &pods.RuntimePod{Containers: []*inventory.Container{
		of("app", "/logs/ns_p_u/app/1.log", inventory.Layer{Bytes: &bytes, Inodes: &inodes, At: at}),
		of("app", "/logs/ns_p_u/app/0.log", inventory.Layer{}),
		of("loose", "/tmp/loose.log", inventory.Layer{Bytes: &bytes, At: at}),
		of("silent", "", inventory.Layer{}),
	}}
	got := runtimeFigures([]eviction.Container{{Name: "absent"}, {Name: "app"}, {Name: "loose"}, {Name: "silent"}}, r)
	layers := []stats.Volume{{}, {Time: at, Used: stats.Known(4096), Inodes: stats.Known(3)}, {Time: at, Used: stats.Known(4096)}, {}}
	logs := []collect.PodPath{{}, {Root: "/logs/ns_p_u", Below: "app"}, {}, {}}
	for i := range layers {
		if got.Layers[i] != layers[i] || got.Logs[i] != logs[i] {
			t.Errorf("container %d: got %v, %v", i, got.Layers[i], got.Logs[i])
		}
	}
}
