package cri

import (
	"context"
	"maps"
	"reflect"
	"slices"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/evictd/evictd/cri/inventory"
	"github.com/evictd/evictd/internal/wire"
)

// content is the last reported content of the runtime, and what it was made of.
type content struct {
	lists
	sandboxes  map[string]inventory.Sandbox
	containers map[string]inventory.Container
	images     map[string]inventory.Image
	layers     map[string]inventory.Layer
	// sandboxImage is the name of the sandbox image in the runtime's configuration.
	sandboxImage string
}

// lists are the last answers of the list methods, and what the status methods added. The
// goroutine of Run replaces them and changes none.
type lists struct {
	sandboxList   []*cri.PodSandbox
	containerList []*cri.Container
	imageList     []*cri.Image
	// sandboxesStale: the last call failed.
	sandboxesStale bool
	// By the id of the sandbox or container; one without an entry has not been asked for yet.
	sandboxDetails, containerDetails map[string]detail
}

func newContent() content {
	return content{
		sandboxes: map[string]inventory.Sandbox{}, containers: map[string]inventory.Container{}, images: map[string]inventory.Image{},
		layers: map[string]inventory.Layer{},
	}
}

// forget forgets what another runtime has; the next answer drops what was reported of that.
func (c *content) forget() { c.lists, c.sandboxImage = lists{}, "" }

// listSandboxes lists the sandboxes, and asks once for the status of each.
func (s *session) listSandboxes() func(context.Context) (func(), error) {
	known := s.content.sandboxDetails
	return func(ctx context.Context) (func(), error) {
		answer, err := s.c.ListPodSandbox(ctx, &cri.ListPodSandboxRequest{})
		var details map[string]detail
		var complete bool
		if err == nil {
			answer.Items = slices.DeleteFunc(answer.Items, func(p *cri.PodSandbox) bool { return p.GetId() == "" })
			details, complete = inspect(ctx, answer.Items, known, func(*cri.PodSandbox, detail) bool { return false }, func(ctx context.Context, p *cri.PodSandbox, _ detail) (detail, error) {
				return inspectSandbox(ctx, s.c, p.Id)
			})
		}
		return func() {
			s.note("ListPodSandbox", err)
			s.content.sandboxesStale = err != nil
			if err == nil {
				s.content.sandboxList, s.content.sandboxDetails = answer.Items, details
				s.note("PodSandboxStatus", failures(details))
				if !complete {
					nudge(s.changed)
				}
			}
			s.sendChanges()
		}, err
	}
}

// listContainers lists the containers, and asks for the status of those whose state has changed.
func (s *session) listContainers() func(context.Context) (func(), error) {
	known := s.content.containerDetails
	return func(ctx context.Context) (func(), error) {
		answer, err := s.c.ListContainers(ctx, &cri.ListContainersRequest{})
		var details map[string]detail
		var complete bool
		if err == nil {
			answer.Containers = slices.DeleteFunc(answer.Containers, func(p *cri.Container) bool { return p.GetId() == "" })
			details, complete = inspect(ctx, answer.Containers, known, func(p *cri.Container, d detail) bool { return p.State != d.state }, func(ctx context.Context, p *cri.Container, was detail) (detail, error) {
				return inspectContainer(ctx, s.c, p, was)
			})
		}
		return func() {
			s.note("ListContainers", err)
			if err == nil {
				s.content.containerList, s.content.containerDetails = answer.Containers, details
				s.note("ContainerStatus", failures(details))
				if !complete {
					nudge(s.changed)
				}
			}
			s.sendChanges()
		}, err
	}
}

func (s *session) listImages() func(context.Context) (func(), error) {
	return func(ctx context.Context) (func(), error) {
		answer, err := s.c.images.ListImages(ctx, &cri.ListImagesRequest{})
		return func() {
			s.note("ListImages", err)
			if err == nil {
				s.content.imageList = answer.Images
			}
			s.sendChanges()
		}, err
	}
}

// inspect reads the status of each listed object that is new or has changed; if that failed, it reads again after a
// pause. complete is false if the time was too short for some objects, which have no entry in details.
func inspect[T interface{ GetId() string }](ctx context.Context, listed []T, known map[string]detail, changed func(T, detail) bool, read func(context.Context, T, detail) (detail, error)) (details map[string]detail, complete bool) {
	now := time.Now()
	details = map[string]detail{}
	var due []T
	for _, object := range listed {
		id := object.GetId()
		d, is := known[id]
		if is {
			details[id] = d
		}
		if !is || d.retry.IsZero() && changed(object, d) || !d.retry.IsZero() && now.After(d.retry) {
			due = append(due, object)
		}
	}
	answers := each(ctx, due, func(ctx context.Context, object T) (detail, error) { return read(ctx, object, known[object.GetId()]) })
	for i, answer := range answers {
		id := due[i].GetId()
		d := answer.value
		if answer.err != nil {
			d = known[id]
			d.err, d.retry = answer.err, time.Now().Add(min(retryDetail<<d.tries, maxRetryDetail))
			d.tries = min(d.tries+1, 8)
		}
		details[id] = d
	}
	return details, len(answers) == len(due)
}

// sendChanges sends the differences between the last reported inventory and what the runtime
// says now.
func (r *Runtime) sendChanges() {
	was, next := &r.content, newContent()
	names := imageNames(was.imageList)
	for _, s := range was.sandboxesInUse() {
		if d, tried := was.sandboxDetails[s.Id]; tried {
			next.sandboxes[s.Id] = sandboxOf(s, d, names)
		}
	}
	for _, p := range was.containerList {
		d, tried := was.containerDetails[p.Id]
		if !tried {
			continue
		}
		next.containers[p.Id] = containerOf(p, d, names)
		if _, known := next.sandboxes[p.PodSandboxId]; !known && p.State == cri.ContainerState_CONTAINER_RUNNING {
			if sandbox, ok := sandboxOfContainer(p, d); ok {
				next.sandboxes[sandbox.ID] = sandbox
			}
		}
	}
	for _, i := range was.imageList {
		if i != nil && i.Id != "" {
			next.images[i.Id] = imageOf(i, names[was.sandboxImage] == i.Id)
		}
	}
	send(r, was.sandboxes, next.sandboxes, func(s inventory.Sandbox) wire.FromAgent { return wire.FromAgent{Sandbox: &s} })
	send(r, was.containers, next.containers, func(c inventory.Container) wire.FromAgent { return wire.FromAgent{Container: &c} })
	send(r, was.images, next.images, func(i inventory.Image) wire.FromAgent { return wire.FromAgent{Image: &i} })
	was.sandboxes, was.containers, was.images = next.sandboxes, next.containers, next.images
}

// sandboxesInUse are the listed sandboxes; while they cannot be listed, those last listed
// that have a container.
func (l *lists) sandboxesInUse() []*cri.PodSandbox {
	if !l.sandboxesStale {
		return l.sandboxList
	}
	used := map[string]bool{}
	for _, p := range l.containerList {
		used[p.PodSandboxId] = true
	}
	return slices.DeleteFunc(slices.Clone(l.sandboxList), func(s *cri.PodSandbox) bool { return !used[s.Id] })
}

// send sends what is new or has changed, and the ids that no longer exist.
func send[T any](r *Runtime, was, is map[string]T, message func(T) wire.FromAgent) {
	for _, id := range slices.Sorted(maps.Keys(is)) {
		if before, known := was[id]; !known || !reflect.DeepEqual(before, is[id]) {
			r.send(message(is[id]))
		}
	}
	for id := range was {
		if _, there := is[id]; !there {
			r.send(wire.FromAgent{Removed: id})
			delete(r.content.layers, id)
		}
	}
}

// instant is a time of the CRI, nanoseconds since the epoch; zero is none. A time that is yet
// to come is now.
func instant(nanoseconds int64) time.Time {
	if nanoseconds <= 0 {
		return time.Time{}
	}
	at := time.Unix(0, nanoseconds)
	if now := time.Now(); at.After(now) {
		return now
	}
	return at
}
