package kube

import (
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/evictd/evictd/scheduleradapter/nodetable"
)

// digestedPod is what the informer keeps of a pod instead of its object. The cache calls the
// methods below only.
type digestedPod struct {
	metav1.Object // nil

	pod     *nodetable.Pod
	version string
}

func (b *digestedPod) GetNamespace() string       { return b.pod.Namespace.Value() }
func (b *digestedPod) GetName() string            { return b.pod.Name }
func (b *digestedPod) GetUID() types.UID          { return b.pod.UID }
func (b *digestedPod) GetResourceVersion() string { return b.version }

// digestedNode is what the informer keeps of a node instead of its object.
type digestedNode struct {
	metav1.Object // nil

	node    *nodetable.Node
	version string
}

func (d *digestedNode) GetNamespace() string       { return "" }
func (d *digestedNode) GetName() string            { return d.node.Name.Value() }
func (d *digestedNode) GetUID() types.UID          { return d.node.UID }
func (d *digestedNode) GetResourceVersion() string { return d.version }

// keepDigests replaces the objects of nodes and of pods that have not completed by digests,
// and trims others. The reflector may call it twice for an object.
func keepDigests() cache.TransformFunc {
	templates := nodetable.NewTemplates()
	return func(o any) (any, error) {
		switch object := o.(type) {
		case *digestedPod, *digestedNode:
			return o, nil
		case *v1.Node:
			return &digestedNode{node: templates.NewNode(object), version: object.ResourceVersion}, nil
		case *v1.Pod:
			if completed(object) {
				break
			}
			if _, err := trim(object); err != nil {
				return nil, err
			}
			digested := &digestedPod{version: object.ResourceVersion}
			if nodetable.Plain(object) {
				digested.pod = templates.NewPod(object)
			} else {
				digested.pod = templates.NewPodWithObject(object)
				digested.pod.ShareObject()
			}
			return digested, nil
		}
		return trim(o)
	}
}

func completed(pod *v1.Pod) bool {
	return pod.Status.Phase == v1.PodSucceeded || pod.Status.Phase == v1.PodFailed
}

// nodeDigest is that of a node in the informer's store.
func nodeDigest(o metav1.Object) *nodetable.Node {
	if digested, ok := o.(*digestedNode); ok {
		return digested.node
	}
	return nodetable.NewNode(o.(*v1.Node))
}

// podDigest is that of a pod in the informer's store; here is false if it has completed.
func podDigest(templates *nodetable.Templates, o metav1.Object) (pod *nodetable.Pod, here bool) {
	if digested, ok := o.(*digestedPod); ok {
		return digested.pod, true
	}
	object := o.(*v1.Pod)
	return templates.NewPodWithObject(object), !completed(object)
}
