package embeddedapi_test

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/evictd/evictd/internal/require"
)

// TestWatchesShareEventsOfTheSameForm follows pods by both media types, twice by each, and with a selector
// for which a change of a pod is its end.
func TestWatchesShareEventsOfTheSameForm(t *testing.T) {
	s := serve(t, "")
	pods := s.client(t).CoreV1().Pods("default")
	var streams, selected []watch.Interface
	for _, mediaType := range []string{runtime.ContentTypeJSON, runtime.ContentTypeProtobuf, runtime.ContentTypeProtobuf, runtime.ContentTypeJSON} {
		config := rest.CopyConfig(s.config)
		config.ContentType, config.AcceptContentTypes = mediaType, mediaType
		client, err := kubernetes.NewForConfig(config)
		require.NoError(t, err)
		for selector, to := range map[string]*[]watch.Interface{"": &streams, "app=web": &selected} {
			w, err := client.CoreV1().Pods("default").Watch(t.Context(), metav1.ListOptions{LabelSelector: selector})
			require.NoError(t, err)
			defer w.Stop()
			*to = append(*to, w)
		}
	}
	made := must[*v1.Pod](t)(pods.Create(t.Context(), pod("p"), createOptions))
	changed := must[*v1.Pod](t)(pods.Patch(t.Context(), "p", types.MergePatchType, []byte(`{"metadata":{"labels":{"app":"other"}}}`), metav1.PatchOptions{}))
	require.NoError(t, pods.Delete(t.Context(), "p", *metav1.NewDeleteOptions(0)))
	check := func(w watch.Interface, what watch.EventType, want *v1.Pod) {
		t.Helper()
		event := <-w.ResultChan()
		got, ok := event.Object.(*v1.Pod)
		if !ok || event.Type != what {
			t.Fatalf("got %v, want %s", event, what)
		}
		got.TypeMeta, want.TypeMeta = metav1.TypeMeta{}, metav1.TypeMeta{}
		if !apiequality.Semantic.DeepEqual(got, want) {
			t.Errorf("%s is\n%+v, want\n%+v", what, got, want)
		}
	}
	gone := made.DeepCopy() // for the selector
	gone.ResourceVersion = changed.ResourceVersion
	for i := range streams {
		check(streams[i], watch.Added, made)
		check(streams[i], watch.Modified, changed)
		if event := <-streams[i].ResultChan(); event.Type != watch.Deleted {
			t.Errorf("got %v, want the end", event)
		}
		check(selected[i], watch.Added, made)
		check(selected[i], watch.Deleted, gone)
	}
}
