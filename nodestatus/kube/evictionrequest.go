package kube

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	policy "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evictd/evictd/internal/wire"
)

// evictionTimeout bounds one request to the Eviction API.
const evictionTimeout = 3 * time.Second

// requestEvictions sends one request for each pod that waits and whose eviction is known. evictd
// stops waiting at the deadline by itself.
func (p *Publisher) requestEvictions(ctx context.Context) error {
	p.mu.Lock()
	requests := slices.Collect(maps.Values(p.evictionRequests))
	p.mu.Unlock()
	for _, request := range requests {
		if request.Withdrawn {
			if p.withdrawObject(ctx, &request) {
				p.send(wire.FromAgent{EvictionResponse: &wire.EvictionResponse{UID: request.UID, Withdrawn: true}})
			}
			continue
		}
		v := p.victimOf(request.UID)
		if v == nil || !p.isRequested(request.UID) {
			continue
		}
		if request.Delete {
			_, _ = p.markTarget(ctx, v) // the deletion does not wait for it
		}
		if may, _ := p.taintFirst(ctx); !may {
			continue // until the next call
		}
		var response wire.EvictionResponse
		final, byObject := false, request.Object && p.servesObjects(ctx)
		if byObject {
			response, final, byObject = p.requestByObject(ctx, &request)
		}
		if !byObject {
			response, final = p.requestEviction(ctx, &request)
		}
		if final {
			p.granted(v.ID, request.UID)
		}
		p.send(wire.FromAgent{EvictionResponse: &response})
	}
	return nil
}

// victimOf is a copy of the victim of a pod; nil without one.
func (p *Publisher) victimOf(uid types.UID) *victim {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, v := range p.intents {
		if v.UID == uid {
			return new(*v)
		}
	}
	return nil
}

// isRequested says whether an eviction is still to be requested. After its deadline it
// is not: the pod is evicted without the API. Once the pod is Failed no budget protects
// it, so a late request would delete it and its status.
func (p *Publisher) isRequested(uid types.UID) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	request, waits := p.evictionRequests[uid]
	if waits && !time.Now().Before(request.Deadline.Time) {
		delete(p.evictionRequests, uid)
		return false
	}
	return waits
}

// granted ends the requests for a pod that the API server has evicted or deleted.
func (p *Publisher) granted(id string, uid types.UID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.evictionRequests, uid)
	if v := p.intents[id]; v != nil {
		p.addEvicted(v)
	}
}

// requestEviction calls the API server once. A pod that does not exist may be evicted.
func (p *Publisher) requestEviction(ctx context.Context, request *wire.EvictionRequest) (response wire.EvictionResponse, final bool) {
	namespace, name, _ := strings.Cut(request.Pod, "/")
	options := metav1.DeleteOptions{GracePeriodSeconds: &request.GraceSeconds, Preconditions: metav1.NewUIDPreconditions(string(request.UID))}
	ctx, cancel := context.WithTimeout(ctx, min(evictionTimeout, time.Until(request.Deadline.Time)))
	defer cancel()
	what, call := "the Eviction API", p.evict
	if request.Delete {
		what, call = "the deletion of the pod", p.deleteGracefully
	}
	err := call(ctx, namespace, name, &options)
	response.UID = request.UID
	switch {
	case err == nil, p.isGone(ctx, namespace, name, request.UID, err):
		return response, true
	case apierrors.IsTooManyRequests(err):
		response.Refused = message(err)
	default:
		response.Refused = fmt.Sprintf("could not call %s: %v", what, err)
	}
	return response, false
}

// evict calls the Eviction API without retries: the 429 of a disruption budget is a
// response.
func (p *Publisher) evict(ctx context.Context, namespace, name string, options *metav1.DeleteOptions) error {
	eviction := &policy.Eviction{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, DeleteOptions: options}
	err := p.client.CoreV1().RESTClient().Post().AbsPath("/api/v1").Namespace(namespace).Resource("pods").Name(name).
		SubResource("eviction").Body(eviction).MaxRetries(0).Do(ctx).Error()
	p.requests.record("pod eviction", err)
	return err
}

func (p *Publisher) deleteGracefully(ctx context.Context, namespace, name string, options *metav1.DeleteOptions) error {
	err := p.client.CoreV1().Pods(namespace).Delete(ctx, name, *options)
	p.requests.record("pod deletion", err)
	return err
}

// message is the message of the API server, with the causes that it names.
func message(err error) string {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return err.Error()
	}
	var text strings.Builder
	text.WriteString(status.Status().Message)
	if details := status.Status().Details; details != nil {
		for _, cause := range details.Causes {
			text.WriteString(" " + cause.Message)
		}
	}
	return text.String()
}
