package kube

import (
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/evictd/evictd/scheduleradapter/nodetable"
)

// boundPod is what the informer keeps of a pod on a node instead of its object. The cache
// calls the methods below only.
type boundPod struct {
	metav1.Object // nil

	pod     *nodetable.Pod
	version string
}

func (b *boundPod) GetNamespace() string       { return b.pod.Namespace.Value() }
func (b *boundPod) GetName() string            { return b.pod.Name }
func (b *boundPod) GetUID() types.UID          { return b.pod.UID }
func (b *boundPod) GetResourceVersion() string { return b.version }

// digestBound replaces the objects of pods on nodes by boundPods, after trim. The reflector
// may call it twice for an object.
func digestBound() cache.TransformFunc {
	templates := nodetable.NewTemplates()
	return func(o any) (any, error) {
		if _, ok := o.(*boundPod); ok {
			return o, nil
		}
		o, err := trim(o)
		if pod, ok := o.(*v1.Pod); ok && err == nil && nodetable.Plain(pod) && !completed(pod) {
			return &boundPod{pod: templates.NewPod(pod), version: pod.ResourceVersion}, nil
		}
		return o, err
	}
}

func completed(pod *v1.Pod) bool {
	return pod.Status.Phase == v1.PodSucceeded || pod.Status.Phase == v1.PodFailed
}

// digest is that of a pod in the informer's store; here is false if it has completed.
func digest(o metav1.Object) (pod *nodetable.Pod, here bool) {
	if bound, ok := o.(*boundPod); ok {
		return bound.pod, true
	}
	object := o.(*v1.Pod)
	return nodetable.NewPod(object), !completed(object)
}
