package cri

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/evictd/evictd/internal/wire"
)

// Why an order is not carried out.
var (
	errManyNow = errors.New("too many orders wait")
	errRuns    = errors.New("it runs")
)

// Execute begins to carry out an order; what became of it is said. It returns at
// once.
func (r *Runtime) Execute(o wire.Order) {
	r.underWay.Add(1)
	select {
	case r.orders <- o:
	default:
		r.done(o, errManyNow)
	}
}

// Idle says whether every order that was taken has been answered.
func (r *Runtime) Idle() bool { return r.underWay.Load() == 0 }

func (r *Runtime) done(o wire.Order, err error) {
	defer r.underWay.Add(-1)
	d := wire.Done{ID: o.ID}
	if err != nil {
		d.Error = err.Error()
		d.Away = errors.Is(err, wire.ErrAway) || unusable(err)
	}
	r.say(wire.Up{Done: &d})
}

// serveOrders carries out orders in parallel until ctx ends.
func (r *Runtime) serveOrders(ctx context.Context) {
	var running sync.WaitGroup
	defer running.Wait()
	for {
		select {
		case <-ctx.Done():
			return
		case o := <-r.orders:
			running.Go(func() {
				r.done(o, r.carryOut(ctx, o))
				nudge(r.changed)
			})
		}
	}
}

func (r *Runtime) carryOut(ctx context.Context, o wire.Order) error {
	c := r.current()
	do := steps[o.Kind]
	switch {
	case c == nil:
		return wire.ErrAway
	case do == nil:
		return fmt.Errorf("%q is no order", o.Kind)
	}
	ctx, cancel := context.WithDeadline(ctx, o.Deadline)
	defer cancel()
	err := do(ctx, c, o)
	if status.Code(err) == codes.NotFound { // as it was ordered
		return nil
	}
	if err != nil {
		return fmt.Errorf("%s %s: %w", o.Kind, o.Target, err)
	}
	return nil
}

// steps carry out each kind of order. The CRI ends what runs before it removes
// it; here it is refused instead.
var steps = map[wire.OrderKind]func(context.Context, *client, wire.Order) error{
	wire.StopContainer: func(ctx context.Context, c *client, o wire.Order) error {
		_, err := c.StopContainer(ctx, &cri.StopContainerRequest{ContainerId: o.Target, Timeout: int64(o.Grace / time.Second)})
		return err
	},
	wire.StopSandbox: func(ctx context.Context, c *client, o wire.Order) error {
		_, err := c.StopPodSandbox(ctx, &cri.StopPodSandboxRequest{PodSandboxId: o.Target})
		return err
	},
	wire.RemoveContainer: func(ctx context.Context, c *client, o wire.Order) error {
		answer, err := c.ContainerStatus(ctx, &cri.ContainerStatusRequest{ContainerId: o.Target})
		if err != nil {
			return err
		}
		if answer.GetStatus().GetState() == cri.ContainerState_CONTAINER_RUNNING {
			return errRuns
		}
		_, err = c.RemoveContainer(ctx, &cri.RemoveContainerRequest{ContainerId: o.Target})
		return err
	},
	wire.RemoveSandbox: func(ctx context.Context, c *client, o wire.Order) error {
		answer, err := c.PodSandboxStatus(ctx, &cri.PodSandboxStatusRequest{PodSandboxId: o.Target})
		if err != nil {
			return err
		}
		if answer.GetStatus().GetState() == cri.PodSandboxState_SANDBOX_READY {
			return errRuns
		}
		_, err = c.RemovePodSandbox(ctx, &cri.RemovePodSandboxRequest{PodSandboxId: o.Target})
		return err
	},
	wire.RemoveImage: removeImage,
}

// removeImage refuses an image that a container has come to use since the order.
func removeImage(ctx context.Context, c *client, o wire.Order) error {
	images, err := c.images.ListImages(ctx, &cri.ListImagesRequest{})
	if err != nil {
		return err
	}
	containers, err := c.ListContainers(ctx, &cri.ListContainersRequest{})
	if err != nil {
		return err
	}
	names := imageNames(images.GetImages())
	for _, p := range containers.GetContainers() {
		if resolve(names, p.GetImageId(), p.GetImageRef(), p.GetImage().GetImage()) == o.Target {
			return fmt.Errorf("container %s uses it", p.GetId())
		}
	}
	for _, i := range images.GetImages() {
		if i.GetId() == o.Target && i.GetPinned() {
			return errors.New("it is pinned")
		}
	}
	_, err = c.images.RemoveImage(ctx, &cri.RemoveImageRequest{Image: &cri.ImageSpec{Image: o.Target}})
	return err
}
