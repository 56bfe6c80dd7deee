package kube

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/evictd/evictd/internal/require"
	"github.com/evictd/evictd/scheduleradapter/nodetable"
)

// TestTheInformerKeepsDigestsOfPods: the store has them under their names with their
// versions, also if the reflector transforms an object twice. The digests of pods that are
// pending or deleted have their object, and completed ones are not there.
func TestTheInformerKeepsDigestsOfPods(t *testing.T) {
	transform := keepDigests()
	store := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
	for name, change := range map[string]func(*v1.Pod){
		"bound":       func(*v1.Pod) {},
		"pending":     func(p *v1.Pod) { p.Spec.NodeName = "" },
		"terminating": func(p *v1.Pod) { p.DeletionTimestamp = &metav1.Time{} },
		"completed":   func(p *v1.Pod) { p.Status.Phase = v1.PodSucceeded },
	} {
		pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: "u", ResourceVersion: "5"}, Spec: v1.PodSpec{NodeName: "node"}}
		change(pod)
		var o any = pod
		for range 2 {
			var err error
			o, err = transform(o)
			require.NoError(t, err)
		}
		require.NoError(t, store.Add(o))
		kept, _, err := store.GetByKey("default/" + name)
		require.NoError(t, err)
		if digested, ok := kept.(*digestedPod); ok != (name != "completed") || ok && (digested.pod.Object == pod) != (name != "bound") {
			t.Errorf("of a pod that is %s a %T is kept", name, kept)
		}
		object := kept.(metav1.Object)
		if object.GetName() != name || object.GetNamespace() != "default" || object.GetUID() != "u" || object.GetResourceVersion() != "5" {
			t.Errorf("of a pod that is %s %+v is kept", name, kept)
		}
		if digest, here := podDigest(nodetable.NewTemplates(), object); digest.String() != "default/"+name || here != (name != "completed") {
			t.Errorf("pod %s that is %s: %v", digest, name, here)
		}
	}
}

// TestTheInformerKeepsDigestsOfNodes: as of pods.
func TestTheInformerKeepsDigestsOfNodes(t *testing.T) {
	transform := keepDigests()
	var o any = &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node", UID: "u", ResourceVersion: "5"}}
	for range 2 {
		var err error
		o, err = transform(o)
		require.NoError(t, err)
	}
	key, err := cache.MetaNamespaceKeyFunc(o)
	require.NoError(t, err)
	object := o.(metav1.Object)
	if _, digested := o.(*digestedNode); !digested || key != "node" || object.GetUID() != "u" || object.GetResourceVersion() != "5" || nodeDigest(object).Name.Value() != "node" {
		t.Errorf("a %T with key %s is kept", o, key)
	}
}
