package embeddedapi_test

import (
	"fmt"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evictd/evictd/internal/require"
)

// TestExpiredListIsContinuedWithPresentObjects holds that a list which is no longer kept answers with
// 410 and a token of what is there now.
func TestExpiredListIsContinuedWithPresentObjects(t *testing.T) {
	client, ctx := serve(t, "").client(t), t.Context()
	maps := client.CoreV1().ConfigMaps("default")
	add := func(name string) {
		_, err := maps.Create(ctx, &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		require.NoError(t, err)
	}
	for i := range 4 {
		add(fmt.Sprint("m", i))
	}
	first, err := maps.List(ctx, metav1.ListOptions{Limit: 2})
	require.NoError(t, err)
	names := func(list *v1.ConfigMapList) string {
		var all []string
		for _, m := range list.Items {
			all = append(all, m.Name)
		}
		return strings.Join(all, " ")
	}
	add("m11")
	add("m33")
	next, err := maps.List(ctx, metav1.ListOptions{Limit: 2, Continue: first.Continue})
	require.NoError(t, err)
	if names(first) != "m0 m1" || names(next) != "m2 m3" || next.Continue != "" || next.ResourceVersion != first.ResourceVersion {
		t.Errorf("pages: %s; %s of %s", names(first), names(next), next.ResourceVersion)
	}
	for range 64 {
		_, err := maps.List(ctx, metav1.ListOptions{Limit: 1})
		require.NoError(t, err)
	}
	_, err = maps.List(ctx, metav1.ListOptions{Limit: 2, Continue: first.Continue})
	status, ok := err.(apierrors.APIStatus)
	if !ok || !apierrors.IsResourceExpired(err) || status.Status().Continue == "" || status.Status().Code != 410 {
		t.Fatalf("an expired list: %v", err)
	}
	other, err := client.CoreV1().Secrets("default").Create(ctx, &v1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "s"}}, metav1.CreateOptions{})
	require.NoError(t, err)
	rest, err := maps.List(ctx, metav1.ListOptions{Limit: 3, Continue: status.Status().Continue})
	require.NoError(t, err)
	if names(rest) != "m11 m2 m3" || rest.Continue == "" || rest.ResourceVersion != other.ResourceVersion {
		t.Errorf("the present objects: %s of %s, expected them of %s", names(rest), rest.ResourceVersion, other.ResourceVersion)
	}
	rest, err = maps.List(ctx, metav1.ListOptions{Limit: 3, Continue: rest.Continue})
	require.NoError(t, err)
	if names(rest) != "m33" || rest.Continue != "" {
		t.Errorf("the last page: %s", names(rest))
	}
}

// TestAFullPageHasATokenWhereAnyObjectFollows holds the tokens to those of kube-apiserver, which reads as
// many objects as fill a page and applies the selector to them.
func TestAFullPageHasATokenWhereAnyObjectFollows(t *testing.T) {
	client, ctx := serve(t, "").client(t), t.Context()
	maps := client.CoreV1().ConfigMaps("default")
	for name, label := range map[string]string{"a": "yes", "b": "yes", "c": "no"} {
		_, err := maps.Create(ctx, &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"is": label}}}, metav1.CreateOptions{})
		require.NoError(t, err)
	}
	for _, c := range []struct {
		selector string
		limit    int64
		token    bool
	}{{"is=yes", 1, true}, {"is=yes", 2, true}, {"is=yes", 3, false}, {"is=no", 1, false}, {"", 3, false}} {
		list, err := maps.List(ctx, metav1.ListOptions{LabelSelector: c.selector, Limit: c.limit})
		require.NoError(t, err)
		if (list.Continue != "") != c.token {
			t.Errorf("%q, limit %d: token %q", c.selector, c.limit, list.Continue)
		}
		for list.Continue != "" {
			list, err = maps.List(ctx, metav1.ListOptions{LabelSelector: c.selector, Limit: c.limit, Continue: list.Continue})
			require.NoError(t, err)
		}
		if c.limit == 2 && len(list.Items) != 0 {
			t.Errorf("the last page has %d objects", len(list.Items))
		}
	}
}
