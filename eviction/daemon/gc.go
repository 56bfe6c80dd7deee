package daemon

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evictd/evictd/cri/inventory"
	"github.com/evictd/evictd/eviction/config"
	"github.com/evictd/evictd/eviction/control"
	"github.com/evictd/evictd/eviction/gc"
	"github.com/evictd/evictd/eviction/reclaim"
	"github.com/evictd/evictd/internal/wire"
	"github.com/evictd/evictd/nodestatus"
)

const (
	// logLinks is the directory of links into the directory of pods' logs (kubelet).
	logLinks = "/var/log/containers"
	// configHash and configMirror have the uid of a static pod at the runtime.
	configHash   = "kubernetes.io/config.hash"
	configMirror = "kubernetes.io/config.mirror"
)

// newCollector makes the garbage collector of containers and images. Periodically it collects
// what no kubelet does: all on a node without a kubelet, images in takeover mode, where the
// kubelet's image collection is off.
func (d *Daemon) newCollector(compiled *config.Config) *gc.Collector {
	alone := d.node.alone()
	cfg := gc.Config{
		Policy: compiled.Reclaim, DryRun: d.dryRun, LogDir: d.tracker.logs, LinkDir: logLinks,
		Periodic: gc.Periodic{Containers: alone, Images: alone || d.node.mode == nodestatus.Takeover},
		OnReport: func(r gc.Report) { d.publisher.Collected(r) },
	}
	ports := gc.Ports{
		Runtime:   awaitedRuntime{d.cluster.agent, d.cluster.runtime, time.Now()},
		ReadDisks: func(ctx context.Context) (control.Snapshot, error) { return d.loop.Glance(ctx) },
		Pods:      d.podsOfNode,
	}
	if d.journal != nil {
		ports.Journal = d.journal
	}
	return gc.New(cfg, ports, d.log)
}

// awaitedRuntime is the container runtime as the collector sees it. If there is a socket, and the runtime has not reported
// its image filesystem since evictd began, the runtime counts as down since then: the collector waits for it, as
// during a restart of the runtime, before a pod is evicted. Before that report evictd does not know which disk has the images.
type awaitedRuntime struct {
	reported gc.Runtime
	endpoint RuntimeEndpoint
	begun    time.Time
}

// Runtime implements gc.Runtime.
func (r awaitedRuntime) Runtime() *inventory.Snapshot {
	has := r.reported.Runtime()
	if has != nil && len(has.ImageFs) > 0 || time.Since(r.begun) > runtimePatience {
		return has
	}
	path := r.endpoint.find()
	if path == "" {
		return has
	}
	return &inventory.Snapshot{Runtime: inventory.Runtime{Endpoint: "unix:" + path, Since: r.begun}}
}

// Order implements gc.Runtime.
func (r awaitedRuntime) Order(o wire.Order, done func(error)) error { return r.reported.Order(o, done) }

// collectEvicted has the collector remove the containers of an evicted pod, by the uids that
// it has at the runtime.
func (d *Daemon) collectEvicted(uid types.UID) {
	d.collector.Evicted(uid)
	for _, p := range d.tracker.pods() {
		if r := p.runtime.Load(); r != nil && p.UID == uid {
			for _, s := range r.Sandboxes {
				d.collector.Evicted(s.UID)
			}
		}
	}
}

// podsOfNode are the pods of manifests and API server by uid, and by the uid that they have at
// the runtime. complete says whether there are no others: only an API server has all.
func (d *Daemon) podsOfNode() (known map[types.UID]reclaim.Pod, complete bool) {
	known = map[types.UID]reclaim.Pod{}
	add := func(pods []*v1.Pod) {
		for _, p := range pods {
			pod := reclaim.Pod{Ended: p.Status.Phase == v1.PodSucceeded || p.Status.Phase == v1.PodFailed, Images: imagesOf(p)}
			for _, uid := range []string{string(p.UID), p.Annotations[configHash], p.Annotations[configMirror]} {
				if uid != "" {
					known[types.UID(uid)] = pod
				}
			}
		}
	}
	if d.manifests != nil {
		add(d.manifests.Pods())
	}
	add(d.cluster.agent.Pods())
	return known, d.cluster.speaksToAPI() && d.cluster.agent.Synced()
}

func imagesOf(p *v1.Pod) (images []string) {
	for _, containers := range [][]v1.Container{p.Spec.InitContainers, p.Spec.Containers} {
		for i := range containers {
			images = append(images, containers[i].Image)
		}
	}
	for i := range p.Spec.EphemeralContainers {
		images = append(images, p.Spec.EphemeralContainers[i].Image)
	}
	for i := range p.Spec.Volumes {
		if volume := p.Spec.Volumes[i].Image; volume != nil {
			images = append(images, volume.Reference)
		}
	}
	return images
}
