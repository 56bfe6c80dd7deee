package kube

import (
	"sync"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
)

// changes has the latest state of each changed object since the last take; nil:
// deleted. Adding never blocks.
type changes struct {
	mu    sync.Mutex
	nodes map[string]*v1.Node
	pods  map[types.UID]*v1.Pod
	wake  chan struct{}
}

func newChanges() *changes {
	return &changes{nodes: map[string]*v1.Node{}, pods: map[types.UID]*v1.Pod{}, wake: make(chan struct{}, 1)}
}

// take removes all changes.
func (c *changes) take() (nodes map[string]*v1.Node, pods map[types.UID]*v1.Pod) {
	c.mu.Lock()
	defer c.mu.Unlock()
	nodes, pods = c.nodes, c.pods
	c.nodes, c.pods = map[string]*v1.Node{}, map[types.UID]*v1.Pod{}
	return nodes, pods
}

func (c *changes) put(add func()) {
	c.mu.Lock()
	add()
	c.mu.Unlock()
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

func (c *changes) nodeHandler() cache.ResourceEventHandler {
	return handler(func(node *v1.Node, gone bool) {
		c.put(func() {
			c.nodes[node.Name] = node
			if gone {
				c.nodes[node.Name] = nil
			}
		})
	})
}

func (c *changes) podHandler() cache.ResourceEventHandler {
	return handler(func(pod *v1.Pod, gone bool) {
		c.put(func() {
			c.pods[pod.UID] = pod
			if gone {
				c.pods[pod.UID] = nil
			}
		})
	})
}

// handler reduces informer events to the latest state of each object.
func handler[T any, P interface {
	*T
	metav1.Object
}](set func(object P, gone bool)) cache.ResourceEventHandler {
	put := func(object any, gone bool) {
		if unseen, ok := object.(cache.DeletedFinalStateUnknown); ok {
			object = unseen.Obj
		}
		if known, ok := object.(P); ok {
			set(known, gone)
		}
	}
	return cache.ResourceEventHandlerFuncs{
		AddFunc: func(object any) { put(object, false) },
		UpdateFunc: func(old, object any) {
			if was, is := old.(P), object.(P); was.GetUID() != is.GetUID() {
				put(old, true)
			}
			put(object, false)
		},
		DeleteFunc: func(object any) { put(object, true) },
	}
}
