package kube

import (
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	coordinationinformers "k8s.io/client-go/informers/coordination/v1"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/evictd/evictd/internal/podspec"
	"github.com/evictd/evictd/scheduleradapter/nodetable"
)

// Kept is what informers keep of the objects.
type Kept int

const (
	// Digests: of nodes and of pods on nodes, what filters and scores read of them; of other
	// objects the fields that are read.
	Digests Kept = iota
	// Fields are those that are read, for the controllers.
	Fields
	// Objects are whole but for managedFields, for extenders and out-of-tree plugins.
	Objects
)

// NewInformers makes the informers of Watch and the controllers. They exclude
// completed pods.
func NewInformers(client kubernetes.Interface, kept Kept) informers.SharedInformerFactory {
	transform := []cache.TransformFunc{Digests: keepDigests(), Fields: trim, Objects: trimManagedFields}[kept]
	indexers := cache.Indexers{}
	if kept != Digests {
		indexers[cache.NamespaceIndex] = cache.MetaNamespaceIndexFunc
	}
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithTransform(transform))
	factory.InformerFor(&v1.Pod{}, func(client kubernetes.Interface, resync time.Duration) cache.SharedIndexInformer {
		return coreinformers.NewFilteredPodInformer(client, metav1.NamespaceAll, resync, indexers,
			func(o *metav1.ListOptions) { o.FieldSelector = "status.phase!=Succeeded,status.phase!=Failed" })
	})
	return factory
}

// NewPressureInformers makes the informers of Watch.Pressure. Of evicted pods they
// keep only the eviction.
func NewPressureInformers(client kubernetes.Interface) informers.SharedInformerFactory {
	factory := informers.NewSharedInformerFactory(client, 0)
	factory.InformerFor(&coordinationv1.Lease{}, func(client kubernetes.Interface, resync time.Duration) cache.SharedIndexInformer {
		return coordinationinformers.NewLeaseInformer(client, nodetable.HeadroomNamespace, resync, cache.Indexers{})
	})
	ended := factory.InformerFor(&v1.Pod{}, func(client kubernetes.Interface, resync time.Duration) cache.SharedIndexInformer {
		return coreinformers.NewFilteredPodInformer(client, metav1.NamespaceAll, resync, cache.Indexers{},
			func(o *metav1.ListOptions) {
				o.FieldSelector = "status.phase!=Pending,status.phase!=Running,status.phase!=Unknown"
			})
	})
	_ = ended.SetTransform(func(o any) (any, error) { // fails only for a started informer
		if pod, ok := o.(*v1.Pod); ok {
			pod.ManagedFields, pod.Annotations, pod.Labels = nil, nil, nil
			pod.Spec = v1.PodSpec{NodeName: pod.Spec.NodeName}
			was := pod.Status
			if pod.Status = (v1.PodStatus{Phase: was.Phase}); isEvicted(&was) {
				pod.Status.Reason, pod.Status.Conditions = was.Reason, was.Conditions
			}
		}
		return o, nil
	})
	return factory
}

func isEvicted(status *v1.PodStatus) bool {
	_, is := podspec.EvictionOf(status)
	return is
}

// trimManagedFields drops the fields that kube-scheduler drops.
func trimManagedFields(o any) (any, error) {
	if object, err := meta.Accessor(o); err == nil {
		object.SetManagedFields(nil)
	}
	return o, nil
}

// trim drops the fields that are not read.
func trim(o any) (any, error) {
	if _, err := trimManagedFields(o); err != nil {
		return nil, err
	}
	switch object := o.(type) {
	case *v1.Pod:
		delete(object.Annotations, v1.LastAppliedConfigAnnotation)
		for _, containers := range [][]v1.Container{object.Spec.InitContainers, object.Spec.Containers} {
			for i := range containers {
				c := &containers[i]
				c.Env, c.EnvFrom, c.Command, c.Args = nil, nil, nil, nil
				c.LivenessProbe, c.ReadinessProbe, c.StartupProbe, c.Lifecycle = nil, nil, nil, nil
			}
		}
	case *v1.Node:
		delete(object.Annotations, v1.LastAppliedConfigAnnotation)
	case *appsv1.ReplicaSet:
		object.Spec.Template = v1.PodTemplateSpec{}
	case *appsv1.StatefulSet:
		object.Spec.Template = v1.PodTemplateSpec{}
	case *v1.ReplicationController:
		object.Spec.Template = nil
	}
	return o, nil
}
