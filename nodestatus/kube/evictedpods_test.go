package kube_test

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evictd/evictd/internal/require"
	"github.com/evictd/evictd/internal/wire"
	"github.com/evictd/evictd/nodestatus"
)

// rule: M.116
func TestEvictedPodsBeyondTheirBoundsAreDeleted(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		mode   nodestatus.Mode
		bounds nodestatus.EvictedPods
		left   int // of two
	}{
		"one of an owner":            {nodestatus.Native, nodestatus.EvictedPods{PerOwner: 1}, 1},
		"for a second":               {nodestatus.Native, nodestatus.EvictedPods{TTL: time.Second}, 0},
		"without bounds":             {nodestatus.Native, nodestatus.EvictedPods{}, 2},
		"another program has a node": {nodestatus.Backstop, nodestatus.EvictedPods{TTL: time.Second, PerOwner: 1}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newBoundedFixture(t, test.mode, test.bounds)
			foreign := w.owned("foreign")
			failed := `{"status":{"phase":"Failed","reason":"Evicted","message":"by a kubelet"}}`
			_, err := w.api.CoreV1().Pods("default").Patch(t.Context(), foreign.Name, types.MergePatchType, []byte(failed), metav1.PatchOptions{FieldManager: "kubelet"}, "status")
			require.NoError(t, err)
			var pods []*v1.Pod
			for _, name := range []string{"older", "newer"} {
				pod := w.owned(name)
				pods = append(pods, pod)
				w.publisher.Handle(wire.ToAgent{Intent: &wire.Intent{
					ID: "intent-" + pod.Name, UID: pod.UID, Namespace: pod.Namespace, Name: pod.Name, Decided: time.Now(), Ended: time.Now(), Message: "The node was low on resource: memory. ",
				}})
				await(t, "the report of "+name, func() bool { return w.pod(pod.Name).Status.Phase == v1.PodFailed })
			}
			await(t, "both to be reported", func() bool {
				w.mu.Lock()
				defer w.mu.Unlock()
				return len(w.reported) == 2
			})
			left := 0
			await(t, "what is surplus to be deleted", func() bool {
				left = 0
				for _, pod := range pods {
					if _, err := w.api.CoreV1().Pods("default").Get(t.Context(), pod.Name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
						left++
					}
				}
				return left <= test.left
			})
			if left != test.left {
				t.Errorf("%d are left, want %d", left, test.left)
			}
			w.pod(foreign.Name)
		})
	}
}

// owned makes a pod that has the owner of the others.
func (w *fixture) owned(name string) *v1.Pod {
	w.t.Helper()
	pod, err := w.api.CoreV1().Pods("default").Create(w.t.Context(), &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: w.node + name, OwnerReferences: []metav1.OwnerReference{
			{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "owner", UID: types.UID("owner-" + w.node), Controller: new(true)},
		}},
		Spec: v1.PodSpec{NodeName: w.node, Containers: []v1.Container{{Name: "c", Image: "none"}}},
	}, metav1.CreateOptions{})
	require.NoError(w.t, err)
	return pod
}
