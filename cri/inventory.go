package cri

import (
	"context"
	"reflect"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/evictd/evictd/cri/inventory"
	"github.com/evictd/evictd/internal/wire"
)

// inspectors is how many sandboxes and containers are inspected at the same time.
const inspectors = 4

// content is the last reported content of the runtime.
type content struct {
	sandboxes  map[string]inventory.Sandbox
	containers map[string]inventory.Container
	images     map[string]inventory.Image
	layers     map[string]inventory.Layer
	details    map[string]detail // by the id of the sandbox or container
	// sandboxImage is the name of the sandbox image in the runtime's configuration.
	sandboxImage string
}

func newContent() content {
	return content{
		sandboxes: map[string]inventory.Sandbox{}, containers: map[string]inventory.Container{}, images: map[string]inventory.Image{},
		layers: map[string]inventory.Layer{}, details: map[string]detail{},
	}
}

// list lists the runtime's objects and sends what has changed. Images are listed last,
// so that the image of every container is among them.
func (r *Runtime) list(ctx context.Context, c *client) error {
	sandboxes, err := c.ListPodSandbox(ctx, &cri.ListPodSandboxRequest{})
	if err != nil {
		return c.wrap("list sandboxes", err)
	}
	containers, err := c.ListContainers(ctx, &cri.ListContainersRequest{})
	if err != nil {
		return c.wrap("list containers", err)
	}
	if err := r.inspect(ctx, c, sandboxes.Items, containers.Containers); err != nil {
		return c.wrap("inspect containers", err)
	}
	images, err := c.images.ListImages(ctx, &cri.ListImagesRequest{})
	if err != nil {
		return c.wrap("list images", err)
	}
	names := imageNames(images.Images)
	next := newContent()
	for _, s := range sandboxes.Items {
		if s != nil && s.Id != "" {
			next.sandboxes[s.Id] = sandboxOf(s, r.content.details[s.Id], names)
		}
	}
	for _, p := range containers.Containers {
		if p != nil && p.Id != "" {
			next.containers[p.Id] = containerOf(p, r.content.details[p.Id], names)
		}
	}
	for _, i := range images.Images {
		if i != nil && i.Id != "" {
			next.images[i.Id] = imageOf(i, names[r.content.sandboxImage] == i.Id)
		}
	}
	r.sendChanges(&next)
	return nil
}

// inspect reads what the lists do not have: of a sandbox once, of a container whenever
// its state has changed.
func (r *Runtime) inspect(ctx context.Context, c *client, sandboxes []*cri.PodSandbox, containers []*cri.Container) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	jobs := make(chan func() (string, detail, error))
	var mu sync.Mutex
	var running sync.WaitGroup
	for range inspectors {
		running.Go(func() {
			for job := range jobs {
				id, d, err := job()
				switch {
				case unusable(err):
					cancel(err)
				case err == nil:
					mu.Lock()
					r.content.details[id] = d
					mu.Unlock()
				case status.Code(err) != codes.NotFound: // removed since it was listed
					r.log.Debug("could not read the status of a sandbox or container", "id", id, "error", err)
				}
			}
		})
	}
	known := func(id string) (detail, bool) {
		mu.Lock()
		defer mu.Unlock()
		d, known := r.content.details[id]
		return d, known
	}
	for _, s := range sandboxes {
		if _, known := known(s.GetId()); s.GetId() != "" && !known && ctx.Err() == nil {
			jobs <- func() (string, detail, error) {
				d, err := inspectSandbox(ctx, c, s.Id)
				return s.Id, d, err
			}
		}
	}
	for _, p := range containers {
		if d, known := known(p.GetId()); p.GetId() != "" && (!known || d.state != p.State) && ctx.Err() == nil {
			jobs <- func() (string, detail, error) {
				d, err := inspectContainer(ctx, c, p, d)
				return p.Id, d, err
			}
		}
	}
	close(jobs)
	running.Wait()
	return context.Cause(ctx)
}

// sendChanges sends the differences between the last reported inventory and next, and
// stores next.
func (r *Runtime) sendChanges(next *content) {
	was := &r.content
	for id, sandbox := range next.sandboxes {
		if before, known := was.sandboxes[id]; !known || !reflect.DeepEqual(before, sandbox) {
			r.send(wire.FromAgent{Sandbox: &sandbox})
		}
	}
	for id, container := range next.containers {
		if before, known := was.containers[id]; !known || !reflect.DeepEqual(before, container) {
			r.send(wire.FromAgent{Container: &container})
		}
	}
	for id, image := range next.images {
		if before, known := was.images[id]; !known || !reflect.DeepEqual(before, image) {
			r.send(wire.FromAgent{Image: &image})
		}
	}
	drop(r, was.sandboxes, next.sandboxes)
	drop(r, was.containers, next.containers)
	drop(r, was.images, next.images)
	was.sandboxes, was.containers, was.images = next.sandboxes, next.containers, next.images
}

// drop sends the ids that no longer exist.
func drop[T any](r *Runtime, was, is map[string]T) {
	for id := range was {
		if _, there := is[id]; !there {
			r.send(wire.FromAgent{Removed: id})
			delete(r.content.details, id)
			delete(r.content.layers, id)
		}
	}
}

// instant is a time of the CRI, nanoseconds since the epoch; zero is none.
func instant(nanoseconds int64) time.Time {
	if nanoseconds <= 0 {
		return time.Time{}
	}
	return time.Unix(0, nanoseconds)
}
