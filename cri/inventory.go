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

// lookers is how many sandboxes and containers are looked at closely at a time.
const lookers = 4

// stock is what the runtime has, as it was said last.
type stock struct {
	sandboxes  map[string]inventory.Sandbox
	containers map[string]inventory.Container
	images     map[string]inventory.Image
	layers     map[string]inventory.Layer
	details    map[string]detail // by the id of the sandbox or container
	// sandboxImage is by what name the runtime knows the image of sandboxes.
	sandboxImage string
}

func newStock() stock {
	return stock{
		sandboxes: map[string]inventory.Sandbox{}, containers: map[string]inventory.Container{}, images: map[string]inventory.Image{},
		layers: map[string]inventory.Layer{}, details: map[string]detail{},
	}
}

// list asks the runtime what it has and says what has changed. Images come
// last, so that what a container uses is among them.
func (r *Runtime) list(ctx context.Context, c *client) error {
	sandboxes, err := c.ListPodSandbox(ctx, &cri.ListPodSandboxRequest{})
	if err != nil {
		return c.explain("list sandboxes", err)
	}
	containers, err := c.ListContainers(ctx, &cri.ListContainersRequest{})
	if err != nil {
		return c.explain("list containers", err)
	}
	if err := r.lookCloser(ctx, c, sandboxes.Items, containers.Containers); err != nil {
		return c.explain("look at containers", err)
	}
	images, err := c.images.ListImages(ctx, &cri.ListImagesRequest{})
	if err != nil {
		return c.explain("list images", err)
	}
	names := imageNames(images.Images)
	next := newStock()
	for _, s := range sandboxes.Items {
		if s != nil && s.Id != "" {
			next.sandboxes[s.Id] = sandboxOf(s, r.stock.details[s.Id], names)
		}
	}
	for _, p := range containers.Containers {
		if p != nil && p.Id != "" {
			next.containers[p.Id] = containerOf(p, r.stock.details[p.Id], names)
		}
	}
	for _, i := range images.Images {
		if i != nil && i.Id != "" {
			next.images[i.Id] = imageOf(i, names[r.stock.sandboxImage] == i.Id)
		}
	}
	r.sayChanges(&next)
	return nil
}

// lookCloser finds what the lists do not tell: once of a sandbox, and of a
// container whenever its state has changed.
func (r *Runtime) lookCloser(ctx context.Context, c *client, sandboxes []*cri.PodSandbox, containers []*cri.Container) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	looks := make(chan func() (string, detail, error))
	var mu sync.Mutex
	var looking sync.WaitGroup
	for range lookers {
		looking.Go(func() {
			for look := range looks {
				id, d, err := look()
				switch {
				case unusable(err):
					cancel(err)
				case err == nil:
					mu.Lock()
					r.stock.details[id] = d
					mu.Unlock()
				case status.Code(err) != codes.NotFound: // gone since it was listed
					r.log.Debug("the runtime does not say more of one of its own", "id", id, "error", err)
				}
			}
		})
	}
	known := func(id string) (detail, bool) {
		mu.Lock()
		defer mu.Unlock()
		d, known := r.stock.details[id]
		return d, known
	}
	for _, s := range sandboxes {
		if _, known := known(s.GetId()); s.GetId() != "" && !known && ctx.Err() == nil {
			looks <- func() (string, detail, error) {
				d, err := lookAtSandbox(ctx, c, s.Id)
				return s.Id, d, err
			}
		}
	}
	for _, p := range containers {
		if d, known := known(p.GetId()); p.GetId() != "" && (!known || d.state != p.State) && ctx.Err() == nil {
			looks <- func() (string, detail, error) {
				d, err := lookAtContainer(ctx, c, p, d)
				return p.Id, d, err
			}
		}
	}
	close(looks)
	looking.Wait()
	return context.Cause(ctx)
}

// sayChanges says in what the runtime differs from what was said, and keeps it.
func (r *Runtime) sayChanges(next *stock) {
	was := &r.stock
	for id, sandbox := range next.sandboxes {
		if before, known := was.sandboxes[id]; !known || !reflect.DeepEqual(before, sandbox) {
			r.say(wire.Up{Sandbox: &sandbox})
		}
	}
	for id, container := range next.containers {
		if before, known := was.containers[id]; !known || !reflect.DeepEqual(before, container) {
			r.say(wire.Up{Container: &container})
		}
	}
	for id, image := range next.images {
		if before, known := was.images[id]; !known || !reflect.DeepEqual(before, image) {
			r.say(wire.Up{Image: &image})
		}
	}
	drop(r, was.sandboxes, next.sandboxes)
	drop(r, was.containers, next.containers)
	drop(r, was.images, next.images)
	was.sandboxes, was.containers, was.images = next.sandboxes, next.containers, next.images
}

// drop says what is no longer there.
func drop[T any](r *Runtime, was, is map[string]T) {
	for id := range was {
		if _, there := is[id]; !there {
			r.say(wire.Up{Dropped: id})
			delete(r.stock.details, id)
			delete(r.stock.layers, id)
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
