package main

import (
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	resourceapi "k8s.io/api/resource/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
)

// kinds are those that the scheduler has informers for.
var kinds = []runtime.Object{
	&v1.Namespace{}, &v1.Node{}, &v1.Service{}, &v1.ReplicationController{}, &appsv1.ReplicaSet{}, &appsv1.StatefulSet{},
	&policyv1.PodDisruptionBudget{}, &v1.PersistentVolume{}, &v1.PersistentVolumeClaim{}, &storagev1.StorageClass{}, &storagev1.CSINode{},
	&storagev1.CSIDriver{}, &storagev1.CSIStorageCapacity{}, &storagev1.VolumeAttachment{}, &resourceapi.DeviceClass{},
	&resourceapi.DeviceTaintRule{}, &resourceapi.ResourceSlice{}, &resourceapi.ResourceClaim{}, &schedulingv1beta1.PodGroup{}, &v1.Pod{},
}

// informer has the objects that are added to it, and calls its handlers at once. It never runs.
type informer struct {
	cache.SharedIndexInformer
	handlers []cache.ResourceEventHandler
}

// newFactory makes a factory whose informers of all kinds are of this type.
func newFactory(client kubernetes.Interface) (informers.SharedInformerFactory, map[string]*informer) {
	factory, all := informers.NewSharedInformerFactory(client, 0), map[string]*informer{}
	for _, kind := range kinds {
		made := &informer{SharedIndexInformer: cache.NewSharedIndexInformer(nil, kind, 0, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})}
		factory.InformerFor(kind, func(kubernetes.Interface, time.Duration) cache.SharedIndexInformer { return made })
		all[fmt.Sprintf("%T", kind)] = made
	}
	return factory, all
}

// add gives objects to their informers.
func add(all map[string]*informer, objects []runtime.Object) error {
	for _, object := range objects {
		informer := all[fmt.Sprintf("%T", object)]
		if informer == nil {
			return fmt.Errorf("the scheduler has no informer of %T", object)
		}
		if err := informer.add(object); err != nil {
			return err
		}
	}
	return nil
}

func (i *informer) add(object runtime.Object) error {
	if err := i.GetIndexer().Add(object); err != nil {
		return err
	}
	for _, handler := range i.handlers {
		handler.OnAdd(object, true)
	}
	return nil
}

// AddEventHandler registers a handler for objects that are added later.
func (i *informer) AddEventHandler(handler cache.ResourceEventHandler) (cache.ResourceEventHandlerRegistration, error) {
	i.handlers = append(i.handlers, handler)
	return synced{}, nil
}

// AddEventHandlerWithResyncPeriod is AddEventHandler: nothing is sent again.
func (i *informer) AddEventHandlerWithResyncPeriod(handler cache.ResourceEventHandler, _ time.Duration) (cache.ResourceEventHandlerRegistration, error) {
	return i.AddEventHandler(handler)
}

// AddEventHandlerWithOptions is AddEventHandler.
func (i *informer) AddEventHandlerWithOptions(handler cache.ResourceEventHandler, _ cache.HandlerOptions) (cache.ResourceEventHandlerRegistration, error) {
	return i.AddEventHandler(handler)
}

// HasSynced is true.
func (*informer) HasSynced() bool { return true }

// HasSyncedChecker is done.
func (*informer) HasSyncedChecker() cache.DoneChecker { return synced{} }

// synced is a registration whose handler has received all objects.
type synced struct{}

func (synced) HasSynced() bool                     { return true }
func (synced) HasSyncedChecker() cache.DoneChecker { return synced{} }
func (synced) Name() string                        { return "synced" }

func (synced) Done() <-chan struct{} {
	done := make(chan struct{})
	close(done)
	return done
}
