package kube

import (
	"context"
	"fmt"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	lifecycle "k8s.io/api/lifecycle/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evictd/evictd/internal/wire"
)

const (
	// requester is evictd in EvictionRequests.
	requester = "evictd.io/evictd"
	// nodeLabel of an EvictionRequest is the node whose evictd has made it.
	nodeLabel = "evictd.io/node"
)

// objectName is the name of the EvictionRequest of a pod, of which there is one.
func objectName(pod types.UID) string { return "evictd-" + string(pod) }

// servesObjects says whether the API server has EvictionRequests. An API server that has none is asked once; that it
// has none is said once.
func (p *Publisher) servesObjects(ctx context.Context) bool {
	p.mu.Lock()
	asked := p.objects
	p.mu.Unlock()
	if asked != nil {
		return *asked
	}
	err := p.client.CoreV1().RESTClient().Get().AbsPath("/apis/" + lifecycle.SchemeGroupVersion.String()).Do(ctx).Error()
	if err != nil && !apierrors.IsNotFound(err) {
		return true // it is asked again, and the request fails as well
	}
	serves := err == nil
	p.mu.Lock()
	p.objects = &serves
	p.mu.Unlock()
	if !serves {
		p.log.Warn("the API server has no EvictionRequests, and soft victims are evicted by the Eviction API", "expected", lifecycle.SchemeGroupVersion.String())
		p.Handle(wire.ToAgent{Event: &wire.Event{
			At: time.Now(), Type: v1.EventTypeWarning, Reason: "EvictionRequestsUnavailable", Action: "Evicting",
			Note: "softEviction is request, and the API server has no " + lifecycle.SchemeGroupVersion.String() + ": soft victims are evicted by the Eviction API",
		}})
	}
	return serves
}

// requestByObject makes an EvictionRequest, or has a withdrawn EvictionRequest stand for an eviction again. The pod is
// being evicted once it is being deleted, has ended or does not exist. usable is false where such a request cannot be
// made for the pod, or may not be.
func (p *Publisher) requestByObject(ctx context.Context, request *wire.EvictionRequest) (response wire.EvictionResponse, final, usable bool) {
	ctx, cancel := context.WithTimeout(ctx, min(evictionTimeout, time.Until(request.Deadline.Time)))
	defer cancel()
	response.UID = request.UID
	namespace, name, _ := strings.Cut(request.Pod, "/")
	object, err := p.makeObject(ctx, namespace, name, request.UID)
	p.requests.record("eviction request", err)
	if apierrors.IsInvalid(err) || apierrors.IsForbidden(err) || apierrors.IsNotFound(err) {
		p.log.Warn("a soft victim is evicted by the Eviction API: there can be no EvictionRequest for it", "pod", request.Pod, "error", err)
		return response, false, false
	}
	if err != nil {
		response.Refused = fmt.Sprintf("could not make an EvictionRequest: %v", err)
		return response, false, true
	}
	pod, err := p.client.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
	switch {
	case p.isGone(ctx, namespace, name, request.UID, err):
		return response, true, true
	case err != nil:
		response.Refused = fmt.Sprintf("could not read the pod: %v", err)
	case pod.UID != request.UID, pod.DeletionTimestamp != nil, pod.Status.Phase == v1.PodSucceeded, pod.Status.Phase == v1.PodFailed:
		return response, true, true
	default:
		response.Refused = "EvictionRequest " + namespace + "/" + object.Name + " has not had the pod evicted"
		for _, c := range object.Status.Conditions {
			if c.Status == metav1.ConditionTrue {
				response.Refused += ": " + c.Type + ": " + c.Message
			}
		}
	}
	return response, false, true
}

// makeObject creates the EvictionRequest of a pod, or returns it. It is deleted with the pod.
func (p *Publisher) makeObject(ctx context.Context, namespace, name string, uid types.UID) (*lifecycle.EvictionRequest, error) {
	objects := p.client.LifecycleV1alpha1().EvictionRequests(namespace)
	object, err := objects.Get(ctx, objectName(uid), metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return objects.Create(ctx, &lifecycle.EvictionRequest{
			ObjectMeta: metav1.ObjectMeta{
				Name: objectName(uid), Namespace: namespace, Labels: map[string]string{nodeLabel: p.node.Name},
				OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: name, UID: uid}},
			},
			Spec: lifecycle.EvictionRequestSpec{
				Target:    lifecycle.EvictionRequestTarget{Pod: &lifecycle.EvictionRequestPodReference{Name: name, UID: uid}},
				Requester: requester, Intent: lifecycle.EvictionRequestIntentEviction,
			},
		}, metav1.CreateOptions{})
	case err != nil || object.Spec.Intent == lifecycle.EvictionRequestIntentEviction:
		return object, err
	}
	return p.setIntent(ctx, namespace, uid, lifecycle.EvictionRequestIntentEviction)
}

func (p *Publisher) setIntent(ctx context.Context, namespace string, uid types.UID, intent lifecycle.EvictionRequestIntent) (*lifecycle.EvictionRequest, error) {
	body := patch(object{"spec": object{"intent": intent}})
	return p.client.LifecycleV1alpha1().EvictionRequests(namespace).Patch(ctx, objectName(uid), types.MergePatchType, body, metav1.PatchOptions{})
}

// withdrawObject withdraws the EvictionRequest of a pod. It says whether that is done, or cannot be done.
func (p *Publisher) withdrawObject(ctx context.Context, request *wire.EvictionRequest) (done bool) {
	ctx, cancel := context.WithTimeout(ctx, evictionTimeout)
	defer cancel()
	namespace, _, _ := strings.Cut(request.Pod, "/")
	_, err := p.setIntent(ctx, namespace, request.UID, lifecycle.EvictionRequestIntentWithdrawn)
	if apierrors.IsNotFound(err) { // it was not made, or its pod is gone
		err = nil
	}
	p.requests.record("eviction request", err)
	if err != nil && !apierrors.IsForbidden(err) {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.evictionRequests[request.UID].Withdrawn {
		delete(p.evictionRequests, request.UID)
	}
	return true
}
