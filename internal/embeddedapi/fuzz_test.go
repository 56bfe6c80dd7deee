package embeddedapi

import (
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/evictd/evictd/internal/embeddedapi/store"
	"github.com/evictd/evictd/internal/require"
)

func newForFuzzing(f *testing.F) *API {
	api, err := New(Config{Data: f.TempDir(), Log: slog.New(slog.DiscardHandler)})
	require.NoError(f, err)
	f.Cleanup(func() { api.Close() })
	return api
}

func FuzzManifestIsTakenOrRefused(f *testing.F) {
	for _, seed := range []string{
		"apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {containers: [{name: a, image: b, resources: {limits: {cpu: 1}}}]}\n",
		"apiVersion: v1\nkind: Pod\nspec: {priorityClassName: system-node-critical, containers: [{name: a, image: b, ports: [{containerPort: 1}]}], hostNetwork: true}\n",
		"apiVersion: v1\nkind: Pod\nspec: {topologySpreadConstraints: [{}], affinity: {podAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{}]}}}\n",
		"apiVersion: v1\nkind: Pod\nmetadata: {name: p, deletionTimestamp: x}\n", "kind: [", "{}", "a: &a [*a]", "\x00", "apiVersion: v1\nkind: Pod\nmetadata: {finalizers: [x/y], generation: -1}\n",
	} {
		f.Add([]byte(seed))
	}
	api, key := newForFuzzing(f), store.Key{Namespace: "default", Name: "p"}
	f.Fuzz(func(t *testing.T, text []byte) {
		object, err := api.decodeManifest("pods", key, text)
		if err != nil {
			return
		}
		if store.KeyOf(object) != key {
			t.Fatalf("taken as %s", store.KeyOf(object))
		}
		var status apierrors.APIStatus
		if err := api.takeManifest(store.Manifest{Resource: "pods", Key: key, Object: object}); err != nil && !errors.As(err, &status) {
			t.Fatalf("refused with %v", err)
		}
		require.NoError(t, api.takeManifest(store.Manifest{Resource: "pods", Key: key}))
	})
}

func FuzzPatchIsAppliedOrRefused(f *testing.F) {
	const pod = `{"metadata":{"name":"p"},"spec":{"containers":[{"name":"main","image":"app"}]}}`
	for _, seed := range []string{
		`{"metadata":{"labels":{"a":"b"}}}`, `{"spec":{"tolerations":[{"key":"a"}],"containers":[{"name":"main","$patch":"delete"}]}}`, `{"spec":{"$setElementOrder/containers":[{"name":"main"}]}}`,
		`{"spec":{"$retainKeys":["containers"],"$deleteFromPrimitiveList/x":[1]}}`, `{"$patch":"replace"}`, `{"metadata":null}`, `null`, `[]`, `{}`, `1`, `"x"`,
		`[{"op":"add","path":"/metadata/labels","value":{"a":"b"}}]`, `[{"op":"move","from":"/spec","path":"/spec/x"}]`, `[{"op":"test","path":"/kind","value":"Pod"},{"op":"remove","path":"/spec/containers/0"}]`,
		`[{"op":"copy","from":"","path":"/spec/containers/-1"}]`, `[null]`, `[{}]`,
	} {
		f.Add(seed)
	}
	api := newForFuzzing(f)
	call := func(method, path, contentType, body string) *httptest.ResponseRecorder {
		req := httptest.NewRequest(method, "http://localhost"+path, strings.NewReader(body))
		req.Header.Set("Content-Type", contentType)
		w := httptest.NewRecorder()
		api.ServeHTTP(w, req)
		return w
	}
	f.Fuzz(func(t *testing.T, patch string) {
		const pods = "/api/v1/namespaces/default/pods"
		for _, sub := range []string{"", "/status"} {
			for kind := range patchers {
				call(http.MethodPost, pods, "application/json", pod)
				if w := call(http.MethodPatch, pods+"/p"+sub, string(kind), patch); w.Code >= 500 {
					t.Errorf("%s: %d %s", kind, w.Code, w.Body)
				}
				if w := call(http.MethodDelete, pods+"/p", "", ""); w.Code != http.StatusOK {
					t.Fatalf("%s: the pod cannot be deleted any more: %s", kind, w.Body)
				}
			}
		}
	})
}
