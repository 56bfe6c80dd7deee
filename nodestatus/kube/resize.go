package kube

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"

	"github.com/evictd/evictd/internal/wire"
)

const (
	// maxResizes bounds the resizes that wait for the API server, and resizeTimeout each of them: the container
	// reaches its limit soon.
	maxResizes    = 64
	resizeTimeout = 5 * time.Second
)

var errPodGone = errors.New("the pod does not exist any more")

// requestResizes sends each resize once, and an event of what has become of it. A container that still reaches its
// limit is resized again by evictd.
func (p *Publisher) requestResizes(ctx context.Context) error {
	p.mu.Lock()
	resizes := p.resizes
	p.resizes = nil
	p.mu.Unlock()
	for i := range resizes {
		r := &resizes[i]
		err := p.resize(ctx, r)
		p.requests.record("pod resize", err)
		reason, kind, note := "ContainerResized", v1.EventTypeNormal, r.Note
		if errors.Is(err, errPodGone) {
			continue
		}
		if err != nil {
			reason, kind, note = "ContainerResizeFailed", v1.EventTypeWarning, r.Note+" That failed: "+err.Error()
			p.log.Warn("a container was not resized", "pod", r.Namespace+"/"+r.Name, "container", r.Container, "error", err)
		}
		p.mu.Lock()
		if err == nil || p.resizeFaults[r.UID] != err.Error() {
			p.enqueue(p.event(&wire.Event{Pod: r.PodName, At: time.Now(), Type: kind, Reason: reason, Action: "Resizing", Note: note}))
		}
		if len(p.resizeFaults) > maxEvents {
			clear(p.resizeFaults)
		}
		if delete(p.resizeFaults, r.UID); err != nil {
			p.resizeFaults[r.UID] = err.Error()
		}
		p.mu.Unlock()
	}
	return nil
}

// resize raises the limit of a container that has the limit which evictd knows, whatever else of the pod changes
// meanwhile.
func (p *Publisher) resize(ctx context.Context, r *wire.Resize) error {
	ctx, cancel := context.WithTimeout(ctx, resizeTimeout)
	defer cancel()
	return retry.RetryOnConflict(retry.DefaultRetry, func() error { return p.tryResize(ctx, r) })
}

func (p *Publisher) tryResize(ctx context.Context, r *wire.Resize) error {
	pods := p.client.CoreV1().Pods(r.Namespace)
	pod, err := pods.Get(ctx, r.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) || err == nil && pod.UID != r.UID {
		return errPodGone
	}
	if err != nil {
		return err
	}
	field, containers := "containers", pod.Spec.Containers
	at := slices.IndexFunc(containers, func(c v1.Container) bool { return c.Name == r.Container })
	if at < 0 {
		field, containers = "initContainers", pod.Spec.InitContainers
		at = slices.IndexFunc(containers, func(c v1.Container) bool { return c.Name == r.Container })
	}
	if at < 0 || containers[at].Resources.Limits.Memory().Value() != r.From {
		return errors.New("its limit has changed since")
	}
	memory := object{"memory": resource.NewQuantity(r.To, resource.BinarySI)}
	resources := object{"limits": memory}
	if r.Requests {
		resources["requests"] = memory
	}
	body := object{
		"metadata": object{"uid": pod.UID, "resourceVersion": pod.ResourceVersion},
		"spec":     object{field: []object{{"name": r.Container, "resources": resources}}},
	}
	_, err = pods.Patch(ctx, r.Name, types.StrategicMergePatchType, patch(body), metav1.PatchOptions{}, "resize")
	if apierrors.IsNotFound(err) { // the pod, or pods/resize
		if _, deleted := pods.Get(ctx, r.Name, metav1.GetOptions{}); apierrors.IsNotFound(deleted) {
			return errPodGone
		}
	}
	if apierrors.IsNotFound(err) || apierrors.IsMethodNotSupported(err) {
		return fmt.Errorf("the API server has no pods/resize, which Kubernetes has from 1.33 on: %w", err)
	}
	return err
}
