package kube

import (
	"sync"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
)

// mailbox holds what changed since the owner last looked, only the latest of each
// object; nil stands for one that is gone. Nobody who fills it waits.
type mailbox struct {
	mu    sync.Mutex
	nodes map[string]*v1.Node
	pods  map[types.UID]*v1.Pod
	wake  chan struct{}
}

func newMailbox() *mailbox {
	return &mailbox{nodes: map[string]*v1.Node{}, pods: map[types.UID]*v1.Pod{}, wake: make(chan struct{}, 1)}
}

// take empties it.
func (m *mailbox) take() (nodes map[string]*v1.Node, pods map[types.UID]*v1.Pod) {
	m.mu.Lock()
	defer m.mu.Unlock()
	nodes, pods = m.nodes, m.pods
	m.nodes, m.pods = map[string]*v1.Node{}, map[types.UID]*v1.Pod{}
	return nodes, pods
}

func (m *mailbox) put(add func()) {
	m.mu.Lock()
	add()
	m.mu.Unlock()
	select {
	case m.wake <- struct{}{}:
	default:
	}
}

func (m *mailbox) nodeHandler() cache.ResourceEventHandler {
	return handler(func(node *v1.Node, gone bool) {
		m.put(func() {
			m.nodes[node.Name] = node
			if gone {
				m.nodes[node.Name] = nil
			}
		})
	})
}

func (m *mailbox) podHandler() cache.ResourceEventHandler {
	return handler(func(pod *v1.Pod, gone bool) {
		m.put(func() {
			m.pods[pod.UID] = pod
			if gone {
				m.pods[pod.UID] = nil
			}
		})
	})
}

// handler reduces an informer's events to the latest state of each object.
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
