package embeddedapi_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evictd/evictd/internal/require"
)

func TestListsArePagedConsistently(t *testing.T) {
	s := serve(t, "")
	maps := s.client(t).CoreV1().ConfigMaps("default")
	for i := range 7 {
		must[*v1.ConfigMap](t)(maps.Create(t.Context(), &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("c", i)}}, createOptions))
	}
	var names []string
	options, first := metav1.ListOptions{Limit: 3}, ""
	for {
		list := must[*v1.ConfigMapList](t)(maps.List(t.Context(), options))
		for _, c := range list.Items {
			names = append(names, c.Name)
		}
		if first == "" {
			first = list.ResourceVersion
			if list.RemainingItemCount == nil || *list.RemainingItemCount != 4 {
				t.Errorf("remaining: %v, want 4", list.RemainingItemCount)
			}
			require.NoError(t, maps.Delete(t.Context(), "c5", metav1.DeleteOptions{}))
		}
		if list.ResourceVersion != first {
			t.Errorf("a page of version %s after one of %s", list.ResourceVersion, first)
		}
		if options.Continue = list.Continue; options.Continue == "" {
			break
		}
	}
	if got := strings.Join(names, " "); got != "c0 c1 c2 c3 c4 c5 c6" {
		t.Errorf("listed %s", got)
	}
	table := s.call(t, "GET", "/api/v1/namespaces/default/configmaps?limit=2", "", "Accept", "application/json;as=Table;v=v1;g=meta.k8s.io")
	if metadata, _ := table.object["metadata"].(map[string]any); metadata["continue"] == nil {
		t.Errorf("a table for kubectl is not continued: %s", table.body)
	}
	if _, err := maps.List(t.Context(), metav1.ListOptions{Continue: "gone"}); !apierrors.IsBadRequest(err) {
		t.Errorf("an unknown token: %v", err)
	}
}

func TestLongestNameHasAManifest(t *testing.T) {
	s := serve(t, "")
	for _, length := range []int{250, 251, 253} {
		name := strings.Repeat("a", length)
		must[*v1.ConfigMap](t)(s.client(t).CoreV1().ConfigMaps("default").Create(t.Context(), &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"a": "b"}}, createOptions))
	}
	s.stop()
	list := must[*v1.ConfigMapList](t)(serve(t, s.dir).client(t).CoreV1().ConfigMaps("default").List(t.Context(), metav1.ListOptions{}))
	if len(list.Items) != 3 || !slices.ContainsFunc(list.Items, func(c v1.ConfigMap) bool { return len(c.Name) == 253 && c.Data["a"] == "b" }) {
		t.Errorf("after a restart there are %d", len(list.Items))
	}
	entries, err := os.ReadDir(s.path("configmaps", "default"))
	if err != nil || len(entries) != 3 {
		t.Errorf("files: %v, %v", entries, err)
	}
}

func TestImmutableDataIsKept(t *testing.T) {
	s := serve(t, "")
	for resource, body := range map[string]string{"secrets": `{"metadata":{"name":"x"},"immutable":true,"stringData":{"a":"b"}}`, "configmaps": `{"metadata":{"name":"x"},"immutable":true,"data":{"a":"b"}}`} {
		path := "/api/v1/namespaces/default/" + resource
		if got := s.call(t, "POST", path, body); got.code != 201 {
			t.Fatal(got.body)
		}
		if got := s.call(t, "PATCH", path+"/x", `{"data":{"a":"Yw=="}}`, "Content-Type", merge); got.code != 422 {
			t.Errorf("%s: got %d %s", resource, got.code, got.body)
		}
	}
}
