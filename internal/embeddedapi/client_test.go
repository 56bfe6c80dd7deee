package embeddedapi_test

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"

	"github.com/evictd/evictd/internal/require"
)

var (
	everything    = labels.Everything()
	createOptions = metav1.CreateOptions{}
)

func must[T any](t testing.TB) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		require.NoError(t, err)
		return v
	}
}

func TestClientsReadBackWhatTheyWroteInEveryEncoding(t *testing.T) {
	for _, encoding := range []string{"application/json", "application/vnd.kubernetes.protobuf", "application/yaml"} {
		t.Run(encoding, func(t *testing.T) {
			s := serve(t, "")
			s.config.ContentType = encoding
			nodes := s.client(t).CoreV1().Nodes()
			made := must[*v1.Node](t)(nodes.Create(t.Context(), node("n1"), metav1.CreateOptions{}))
			if made.UID == "" || made.ResourceVersion == "" || made.CreationTimestamp.IsZero() || made.Status.Allocatable.Cpu().String() != "4" {
				t.Errorf("not completed: %+v", made)
			}
			made.Labels["zone"] = "a"
			changed := must[*v1.Node](t)(nodes.Update(t.Context(), made, metav1.UpdateOptions{}))
			list := must[*v1.NodeList](t)(nodes.List(t.Context(), metav1.ListOptions{LabelSelector: "zone=a"}))
			if len(list.Items) != 1 || list.Items[0].ResourceVersion != changed.ResourceVersion {
				t.Errorf("listed %+v", list)
			}
			if _, err := nodes.Update(t.Context(), made, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
				t.Errorf("an update of an old version: got %v, want a conflict", err)
			}
			require.NoError(t, nodes.Delete(t.Context(), "n1", metav1.DeleteOptions{}))
			if _, err := nodes.Get(t.Context(), "n1", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
				t.Errorf("after the deletion: %v", err)
			}
		})
	}
}

func TestInformersSyncForEveryKindTheSchedulerWatches(t *testing.T) {
	client := serve(t, "").client(t)
	factory := informers.NewSharedInformerFactory(client, 0)
	for _, informer := range []interface {
		Informer() cache.SharedIndexInformer
	}{
		factory.Core().V1().Nodes(), factory.Core().V1().Pods(), factory.Core().V1().Namespaces(), factory.Core().V1().Services(), factory.Core().V1().Events(),
		factory.Core().V1().PersistentVolumes(), factory.Core().V1().PersistentVolumeClaims(), factory.Core().V1().ReplicationControllers(),
		factory.Apps().V1().ReplicaSets(), factory.Apps().V1().StatefulSets(), factory.Apps().V1().DaemonSets(), factory.Policy().V1().PodDisruptionBudgets(),
		factory.Storage().V1().StorageClasses(), factory.Storage().V1().CSINodes(), factory.Storage().V1().CSIDrivers(), factory.Storage().V1().CSIStorageCapacities(),
		factory.Storage().V1().VolumeAttachments(), factory.Scheduling().V1().PriorityClasses(), factory.Node().V1().RuntimeClasses(),
		factory.Coordination().V1().Leases(), factory.Events().V1().Events(),
	} {
		informer.Informer()
	}
	factory.StartWithContext(t.Context())
	for kind, synced := range factory.WaitForCacheSync(t.Context().Done()) {
		if !synced {
			t.Errorf("%v: not synced", kind)
		}
	}
}

func TestInformersSurviveARestartOfTheServer(t *testing.T) {
	s := serve(t, "")
	client := s.client(t)
	must[*v1.Node](t)(client.CoreV1().Nodes().Create(t.Context(), node("before"), metav1.CreateOptions{}))
	before := must[*v1.NodeList](t)(client.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{}))
	s.stop()
	again := serve(t, s.dir)
	client = again.client(t)
	if got := must[*v1.Node](t)(client.CoreV1().Nodes().Get(t.Context(), "before", metav1.GetOptions{})); got.UID != before.Items[0].UID {
		t.Errorf("another node is there: %v", got.UID)
	}
	w := must[watch.Interface](t)(client.CoreV1().Nodes().Watch(t.Context(), metav1.ListOptions{ResourceVersion: before.ResourceVersion}))
	defer w.Stop()
	event := <-w.ResultChan()
	if err := apierrors.FromObject(event.Object); event.Type != watch.Error || !apierrors.IsResourceExpired(err) {
		t.Errorf("a watch from before the restart: got %v %v, want 410 Expired", event.Type, event.Object)
	}
	after := must[*v1.NodeList](t)(client.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{}))
	if len(after.ResourceVersion) < len(before.ResourceVersion) || after.ResourceVersion <= before.ResourceVersion && len(after.ResourceVersion) == len(before.ResourceVersion) {
		t.Errorf("resource version went from %s to %s", before.ResourceVersion, after.ResourceVersion)
	}
}

func TestNamespaceIsDeletedWithTheLastOfItsPods(t *testing.T) {
	client := serve(t, "").client(t)
	must[*v1.Namespace](t)(client.CoreV1().Namespaces().Create(t.Context(), &v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "team"}}, metav1.CreateOptions{}))
	pods, p := client.CoreV1().Pods("team"), pod("p")
	p.Namespace = "team"
	must[*v1.Pod](t)(pods.Create(t.Context(), p, metav1.CreateOptions{}))
	require.NoError(t, pods.Bind(t.Context(), &v1.Binding{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Target: v1.ObjectReference{Name: "n1"}}, metav1.CreateOptions{}))
	require.NoError(t, client.CoreV1().Namespaces().Delete(t.Context(), "team", metav1.DeleteOptions{}))
	if ns := must[*v1.Namespace](t)(client.CoreV1().Namespaces().Get(t.Context(), "team", metav1.GetOptions{})); ns.Status.Phase != v1.NamespaceTerminating {
		t.Errorf("phase %s while a pod is ending", ns.Status.Phase)
	}
	q := pod("q")
	q.Namespace = "team"
	if _, err := pods.Create(t.Context(), q, metav1.CreateOptions{}); !apierrors.HasStatusCause(err, v1.NamespaceTerminatingCause) {
		t.Errorf("a new pod in it: %v", err)
	}
	require.NoError(t, pods.Delete(t.Context(), "p", metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)}))
	if _, err := client.CoreV1().Namespaces().Get(t.Context(), "team", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the namespace is still there: %v", err)
	}
}
