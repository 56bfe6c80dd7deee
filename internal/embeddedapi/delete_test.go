package embeddedapi_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"

	"github.com/evictd/evictd/internal/require"
	"github.com/evictd/evictd/internal/wait"
)

// TestConcurrentDeletionsOfARunningPodEnd deletes each of some pods by several clients at
// once: the first one marks the pod, the others find it marked.
func TestConcurrentDeletionsOfARunningPodEnd(t *testing.T) {
	s := serve(t, "")
	pods := s.client(t).CoreV1().Pods("default")
	ctx, cancel := context.WithTimeout(t.Context(), wait.Limit)
	defer cancel()
	for i := range 20 {
		name := fmt.Sprint("p", i)
		must[*v1.Pod](t)(pods.Create(ctx, pod(name), createOptions))
		require.NoError(t, pods.Bind(ctx, bindTo(name), createOptions))
		var deleting sync.WaitGroup
		for range 16 {
			deleting.Go(func() {
				if err := pods.Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
					t.Errorf("delete %s: %v", name, err)
				}
			})
		}
		deleting.Wait()
		if p := must[*v1.Pod](t)(pods.Get(ctx, name, metav1.GetOptions{})); p.DeletionTimestamp == nil || p.Generation != 2 {
			t.Errorf("%s: marked %v, generation %d, want one mark", name, p.DeletionTimestamp, p.Generation)
		}
	}
}

func TestWrongOptionsAreRefusedAndNothingIsDone(t *testing.T) {
	s := withPod(t)
	body := `{"metadata":{"name":"q"},"spec":{"containers":[{"name":"a","image":"x"}]}}`
	for _, c := range []struct{ method, path, body, contentType string }{
		{"DELETE", podPath + "?dryRun=all", "", ""},
		{"DELETE", podPath + "?dryRun=true", "", ""},
		{"DELETE", podPath + "?dryRun=All&dryRun=None", "", ""},
		{"DELETE", podPath, `{"dryRun":["Nothing"]}`, ""},
		{"DELETE", podPath, `{"propagationPolicy":"Never"}`, ""},
		{"DELETE", podPath + "?propagationPolicy=Never", "", ""},
		{"DELETE", podPath, `{"propagationPolicy":"Orphan","orphanDependents":true}`, ""},
		{"DELETE", podsPath + "?dryRun=true", "", ""},
		{"POST", podsPath + "?dryRun=true", body, ""},
		{"POST", podsPath + "?fieldValidation=Sometimes", body, ""},
		{"PUT", podPath + "?dryRun=true", podJSON, ""},
		{"PATCH", podPath + "?dryRun=true", `{"metadata":{"labels":{"a":"b"}}}`, merge},
		{"PATCH", podPath + "?force=true", `{"metadata":{"labels":{"a":"b"}}}`, merge},
		{"POST", podPath + "/binding?dryRun=true", `{"metadata":{"name":"p"},"target":{"name":"n1"}}`, ""},
		{"POST", podPath + "/eviction?dryRun=true", `{"apiVersion":"policy/v1","kind":"Eviction","metadata":{"name":"p"}}`, ""},
		{"POST", podPath + "/eviction", `{"apiVersion":"policy/v1","kind":"Eviction","metadata":{"name":"p"},"deleteOptions":{"dryRun":["true"]}}`, ""},
	} {
		before := s.call(t, "GET", podsPath, "").body
		got := s.call(t, c.method, c.path, c.body, "Content-Type", c.contentType)
		if got.code != 422 || got.object["reason"] != "Invalid" {
			t.Errorf("%s %s %s: got %d %s, want 422 Invalid", c.method, c.path, c.body, got.code, got.body)
		}
		if after := s.call(t, "GET", podsPath, "").body; after != before {
			t.Fatalf("%s %s %s: changed something:\n%s\nwas\n%s", c.method, c.path, c.body, after, before)
		}
	}
}

// owned is a ReplicaSet with two pods that block its deletion, and one that also has another owner.
func owned(t *testing.T, s *server) (client kubernetes.Interface, set *appsv1.ReplicaSet) {
	t.Helper()
	client = s.client(t)
	sets, pods := client.AppsV1().ReplicaSets("default"), client.CoreV1().Pods("default")
	make := func(name string) *appsv1.ReplicaSet {
		labels := map[string]string{"app": "web"}
		return must[*appsv1.ReplicaSet](t)(sets.Create(t.Context(), &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: appsv1.ReplicaSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: v1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: pod("").Spec}}}, createOptions))
	}
	set = make("web")
	ref := *metav1.NewControllerRef(set, appsv1.SchemeGroupVersion.WithKind("ReplicaSet"))
	other := metav1.OwnerReference{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "other", UID: make("other").UID}
	for name, refs := range map[string][]metav1.OwnerReference{"a": {ref}, "b": {ref}, "shared": {ref, other}} {
		p := pod(name)
		p.OwnerReferences = refs
		must[*v1.Pod](t)(pods.Create(t.Context(), p, createOptions))
	}
	return client, set
}

// owners are the pods that are left, each with the number of its owners.
func owners(t *testing.T, client kubernetes.Interface) string {
	t.Helper()
	var left []string
	for _, p := range must[*v1.PodList](t)(client.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{})).Items {
		left = append(left, fmt.Sprintf("%s:%d", p.Name, len(p.OwnerReferences)))
	}
	return strings.Join(left, " ")
}

func TestOrphanDeletionKeepsTheDependentsWithoutTheirOwner(t *testing.T) {
	orphan := metav1.DeletePropagationOrphan
	for name, options := range map[string]metav1.DeleteOptions{"propagationPolicy": {PropagationPolicy: &orphan}, "orphanDependents": {OrphanDependents: new(true)}} {
		t.Run(name, func(t *testing.T) {
			client, set := owned(t, serve(t, ""))
			w := must[watch.Interface](t)(client.AppsV1().ReplicaSets("default").Watch(t.Context(), metav1.ListOptions{ResourceVersion: set.ResourceVersion, FieldSelector: "metadata.name=web"}))
			defer w.Stop()
			require.NoError(t, client.AppsV1().ReplicaSets("default").Delete(t.Context(), "web", options))
			marked := (<-w.ResultChan()).Object.(*appsv1.ReplicaSet)
			if marked.DeletionTimestamp == nil || !slices.Contains(marked.Finalizers, metav1.FinalizerOrphanDependents) {
				t.Errorf("controllers may still adopt pods for it: %+v", marked.ObjectMeta)
			}
			if event := <-w.ResultChan(); event.Type != watch.Deleted {
				t.Errorf("got %s, want it deleted", event.Type)
			}
			if got := owners(t, client); got != "a:0 b:0 shared:1" {
				t.Errorf("left are %s", got)
			}
		})
	}
}

func TestForegroundDeletionWaitsForTheDependents(t *testing.T) {
	s := serve(t, "")
	client, _ := owned(t, s)
	sets, pods := client.AppsV1().ReplicaSets("default"), client.CoreV1().Pods("default")
	require.NoError(t, pods.Bind(t.Context(), bindTo("a"), createOptions)) // it takes its grace period
	foreground := metav1.DeletePropagationForeground
	require.NoError(t, sets.Delete(t.Context(), "web", metav1.DeleteOptions{PropagationPolicy: &foreground}))
	if got := owners(t, client); got != "a:1 shared:1" {
		t.Errorf("left are %s", got)
	}
	if set := must[*appsv1.ReplicaSet](t)(sets.Get(t.Context(), "web", metav1.GetOptions{})); set.DeletionTimestamp == nil {
		t.Error("the owner is not marked")
	}
	s.stop()
	client = serve(t, s.dir).client(t)
	require.NoError(t, client.CoreV1().Pods("default").Delete(t.Context(), "a", *metav1.NewDeleteOptions(0)))
	if _, err := client.AppsV1().ReplicaSets("default").Get(t.Context(), "web", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the owner of pods that are gone: %v", err)
	}
}

// TestInterruptedDeletionIsFinishedByTheNextProcess leaves an owner in the state after its mark.
func TestInterruptedDeletionIsFinishedByTheNextProcess(t *testing.T) {
	s := serve(t, "")
	client, set := owned(t, s)
	set.Finalizers = []string{"example.com/later"}
	must[*appsv1.ReplicaSet](t)(client.AppsV1().ReplicaSets("default").Update(t.Context(), set, metav1.UpdateOptions{}))
	require.NoError(t, client.AppsV1().ReplicaSets("default").Delete(t.Context(), "web", metav1.DeleteOptions{}))
	s.stop()
	path := s.path("replicasets", "default", "web.yaml")
	require.NoError(t, os.WriteFile(path, []byte(strings.Replace(read(t, path), "example.com/later", metav1.FinalizerOrphanDependents, 1)), 0o644))
	client = serve(t, s.dir).client(t)
	if got := owners(t, client); got != "a:0 b:0 shared:1" {
		t.Errorf("left are %s", got)
	}
	if _, err := client.AppsV1().ReplicaSets("default").Get(t.Context(), "web", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the owner: %v", err)
	}
}

// TestPodsOfANamespaceAreDeletedBeforeWhatTheyUse holds that a pod which still runs keeps what it uses.
func TestPodsOfANamespaceAreDeletedBeforeWhatTheyUse(t *testing.T) {
	client, ctx := serve(t, "").client(t), t.Context()
	must[*v1.Namespace](t)(client.CoreV1().Namespaces().Create(ctx, &v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "going"}}, createOptions))
	maps, pods := client.CoreV1().ConfigMaps("going"), client.CoreV1().Pods("going")
	must[*v1.ConfigMap](t)(maps.Create(ctx, &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "m"}}, createOptions))
	running := pod("p")
	running.Namespace, running.Spec.NodeName, running.Finalizers = "going", "n", []string{"example.com/f"}
	must[*v1.Pod](t)(pods.Create(ctx, running, createOptions))
	if err := client.CoreV1().Namespaces().Delete(ctx, "going", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if p := must[*v1.Pod](t)(pods.Get(ctx, "p", metav1.GetOptions{})); p.DeletionTimestamp == nil {
		t.Error("the pod is not being deleted")
	}
	must[*v1.ConfigMap](t)(maps.Get(ctx, "m", metav1.GetOptions{}))
	var said []string
	for _, c := range must[*v1.Namespace](t)(client.CoreV1().Namespaces().Get(ctx, "going", metav1.GetOptions{})).Status.Conditions {
		said = append(said, fmt.Sprint(c.Type, " ", c.Status, " ", c.Message))
	}
	for _, want := range []string{"NamespaceContentRemaining True Some resources are remaining: configmaps. has 1 resource instances, pods. has 1 resource instances",
		"NamespaceFinalizersRemaining True Some content in the namespace has finalizers remaining: example.com/f in 1 resource instances",
		"NamespaceDeletionContentFailure False All content successfully deleted, may be waiting on finalization"} {
		if !slices.Contains(said, want) {
			t.Errorf("the conditions %q, expected %q", said, want)
		}
	}
	must[*v1.Pod](t)(pods.Patch(ctx, "p", types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{}))
	if err := pods.Delete(ctx, "p", *metav1.NewDeleteOptions(0)); err != nil {
		t.Fatal(err)
	}
	if _, err := client.CoreV1().Namespaces().Get(ctx, "going", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the namespace without pods: %v", err)
	}
}

// TestOwnersInACircleAreDeleted holds that dependents do not wait for each other for ever.
func TestOwnersInACircleAreDeleted(t *testing.T) {
	client, ctx := serve(t, "").client(t), t.Context()
	maps := client.CoreV1().ConfigMaps("default")
	var circle []*v1.ConfigMap
	for _, name := range []string{"a", "b", "c"} {
		circle = append(circle, must[*v1.ConfigMap](t)(maps.Create(ctx, &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, createOptions)))
	}
	for i, m := range circle {
		owner := circle[(i+1)%len(circle)]
		m.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: owner.Name, UID: owner.UID, BlockOwnerDeletion: new(true)}}
		must[*v1.ConfigMap](t)(maps.Update(ctx, m, metav1.UpdateOptions{}))
	}
	foreground := metav1.DeletePropagationForeground
	if err := maps.Delete(ctx, "a", metav1.DeleteOptions{PropagationPolicy: &foreground}); err != nil {
		t.Fatal(err)
	}
	for _, m := range circle {
		if left, err := maps.Get(ctx, m.Name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			t.Errorf("%s is there with the finalizers %v: %v", m.Name, left.Finalizers, err)
		}
	}
}
