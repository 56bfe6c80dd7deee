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

// Errors of orders.
var (
	errQueueFull = errors.New("too many orders are queued")
	errRunning   = errors.New("it is running")
)

// Execute queues an order and returns at once. The result is sent as a message.
func (r *Runtime) Execute(o wire.Order) {
	r.inFlight.Add(1)
	select {
	case r.orders <- o:
	default:
		r.answer(o, errQueueFull)
	}
}

// Idle says whether every order has been answered.
func (r *Runtime) Idle() bool { return r.inFlight.Load() == 0 }

func (r *Runtime) answer(o wire.Order, err error) {
	defer r.inFlight.Add(-1)
	d := wire.Done{ID: o.ID}
	if err != nil {
		d.Error = err.Error()
		d.Away = errors.Is(err, wire.ErrAway) || isAway(err)
	}
	r.send(wire.FromAgent{Done: &d})
}

// serveOrders executes orders in parallel until ctx ends.
func (r *Runtime) serveOrders(ctx context.Context) {
	var running sync.WaitGroup
	defer running.Wait()
	for {
		select {
		case <-ctx.Done():
			return
		case o := <-r.orders:
			running.Go(func() {
				r.answer(o, r.execute(ctx, o))
				nudge(r.changed)
			})
		}
	}
}

func (r *Runtime) execute(ctx context.Context, o wire.Order) error {
	c := r.current()
	do := executors[o.Kind]
	switch {
	case c == nil:
		return wire.ErrAway
	case do == nil:
		return fmt.Errorf("%q is not an order", o.Kind)
	}
	ctx, cancel := context.WithDeadline(ctx, o.Deadline.Time)
	defer cancel()
	err := do(ctx, c, o)
	if status.Code(err) == codes.NotFound { // it is removed already
		return nil
	}
	if err != nil {
		return fmt.Errorf("%s %s: %w", o.Kind, o.Target, err)
	}
	return nil
}

// executors execute each kind of order. The CRI stops what runs before it removes it;
// here such an order is refused.
var executors = map[wire.OrderKind]func(context.Context, *client, wire.Order) error{
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
			return errRunning
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
			return errRunning
		}
		_, err = c.RemovePodSandbox(ctx, &cri.RemovePodSandboxRequest{PodSandboxId: o.Target})
		return err
	},
	wire.RemoveImage: removeImage,
}

// removeImage refuses an image that a container uses by now.
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
