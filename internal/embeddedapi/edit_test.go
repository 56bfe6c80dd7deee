package embeddedapi_test

import (
	"os"
	"strings"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evictd/evictd/internal/require"
)

// TestEditOfAManifestIsTakenBeforeTheNextWrite sends a request directly after an edit,
// while the editor may not be done yet.
func TestEditOfAManifestIsTakenBeforeTheNextWrite(t *testing.T) {
	s := withPod(t)
	path := s.path("pods", "default", "p.yaml")
	annotate := func() answer {
		return s.call(t, "PATCH", podPath, `{"metadata":{"annotations":{"by":"request"}}}`, "Content-Type", merge)
	}
	edits := map[string]func(t *testing.T, text string){
		"replaced": func(t *testing.T, text string) { write(t, path, text) },
		"in place": func(t *testing.T, text string) { require.NoError(t, os.WriteFile(path, []byte(text), 0o644)) },
	}
	for name, edit := range edits {
		t.Run(name, func(t *testing.T) {
			s.call(t, "PATCH", podPath, `{"metadata":{"labels":null,"annotations":null}}`, "Content-Type", merge)
			edit(t, strings.Replace(s.current(t, podPath, path), "\n  name: p\n", "\n  name: p\n  labels: {by: hand}\n", 1))
			got := annotate()
			if !strings.Contains(got.body, `"by":"hand"`) || !strings.Contains(got.body, `"by":"request"`) {
				t.Errorf("got %s, want the label of the edit and the annotation of the request", got.body)
			}
		})
	}
	commented := "# kept until the next change\n" + s.current(t, podPath, path)
	require.NoError(t, os.WriteFile(path, []byte(commented), 0o644))
	s.call(t, "PATCH", podPath, `{"metadata":{"annotations":{"by":"request"}}}`, "Content-Type", merge)
	s.call(t, "PATCH", podPath, `{"metadata":{"annotations":{"by":"another"}}}`, "Content-Type", merge)
	s.current(t, podPath, path)
	if _, err := os.Stat(path + ".refused"); err == nil {
		t.Error("a manifest that changes nothing is set aside")
	}
	require.NoError(t, os.Remove(path))
	if got := annotate(); got.code != 404 {
		t.Errorf("after the manifest was removed: got %d %s", got.code, got.body)
	}
}

func TestRefusedManifestIsSetAsideByTheNextWrite(t *testing.T) {
	const bad = "kind: ["
	s := withPod(t)
	path := s.path("pods", "default", "p.yaml")
	s.current(t, podPath, path)
	require.NoError(t, os.WriteFile(path, []byte(bad), 0o644))
	if got := s.call(t, "PATCH", podPath, `{"metadata":{"annotations":{"by":"request"}}}`, "Content-Type", merge); got.code != 200 {
		t.Fatal(got.body)
	}
	if text := s.current(t, podPath, path); !strings.Contains(text, "by: request") || !strings.Contains(s.log.String(), "p.yaml.refused") {
		t.Errorf("the manifest is\n%s\nand the log\n%s", text, s.log.String())
	}
	if got := read(t, path+".refused"); got != bad {
		t.Errorf("set aside is %q", got)
	}
}

func TestBadManifestsAreSetAsideAndTheOthersServed(t *testing.T) {
	s := withPod(t)
	bad := []string{s.path("pods", "default", "torn.yaml"), s.path("namespaces", "default.yaml"), s.path("namespaces", "gone.yaml"), s.path("nodes", "n1.yaml")}
	client := s.client(t)
	must[*v1.Node](t)(client.CoreV1().Nodes().Create(t.Context(), node("n1"), createOptions))
	s.stop()
	for _, path := range bad {
		require.NoError(t, os.WriteFile(path, []byte("apiVersion: v1\nkind: [\x00"), 0o644))
	}
	require.NoError(t, os.WriteFile(s.path("pods", "default", "q.yaml"), []byte(strings.Replace(manifestText, "dropped", "q", 1)), 0o644))
	again := serve(t, s.dir)
	for _, name := range []string{"p", "q"} {
		must[*v1.Pod](t)(again.client(t).CoreV1().Pods("default").Get(t.Context(), name, metav1.GetOptions{}))
	}
	for _, path := range bad {
		if !strings.Contains(again.log.String(), path) {
			t.Errorf("%s is not reported:\n%s", path, again.log.String())
		}
	}
	must[*v1.Node](t)(again.client(t).CoreV1().Nodes().Create(t.Context(), node("n1"), createOptions))
	for _, path := range []string{bad[1], bad[3]} {
		written(t, path+".refused", "kind: [")
	}
}

// TestTornRevisionFileIsReported holds that the file in which revisions are reserved is not
// needed to serve.
func TestTornRevisionFileIsReported(t *testing.T) {
	s := withPod(t)
	before := must[*v1.Pod](t)(s.client(t).CoreV1().Pods("default").Get(t.Context(), "p", metav1.GetOptions{}))
	s.stop()
	require.NoError(t, os.WriteFile(s.path(".revision"), []byte("\x00\x00"), 0o644))
	again := serve(t, s.dir)
	after := must[*v1.Pod](t)(again.client(t).CoreV1().Pods("default").Patch(t.Context(), "p", "application/merge-patch+json", []byte(`{"metadata":{"labels":{"a":"b"}}}`), metav1.PatchOptions{}))
	if len(after.ResourceVersion) < len(before.ResourceVersion) || after.ResourceVersion == before.ResourceVersion {
		t.Errorf("version went from %s to %s", before.ResourceVersion, after.ResourceVersion)
	}
	if !strings.Contains(again.log.String(), ".revision") {
		t.Errorf("not reported: %s", again.log.String())
	}
}

func TestLeaseOfALeaderOutlivesTheServer(t *testing.T) {
	s := serve(t, "")
	lease := func(namespace string) *coordinationv1.Lease {
		return must[*coordinationv1.Lease](t)(s.client(t).CoordinationV1().Leases(namespace).Create(t.Context(),
			&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "x"}, Spec: coordinationv1.LeaseSpec{HolderIdentity: new("first")}}, createOptions))
	}
	held, heartbeat := lease(metav1.NamespaceSystem), lease(v1.NamespaceNodeLease)
	s.stop()
	if _, err := os.Stat(s.path("leases", v1.NamespaceNodeLease)); err == nil {
		t.Errorf("the heartbeat %s is on the disk", heartbeat.Name)
	}
	leases := serve(t, s.dir).client(t).CoordinationV1().Leases(metav1.NamespaceSystem)
	second := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "x"}, Spec: coordinationv1.LeaseSpec{HolderIdentity: new("second")}}
	if _, err := leases.Create(t.Context(), second, createOptions); !apierrors.IsAlreadyExists(err) {
		t.Errorf("a second leader: %v", err)
	}
	if now := must[*coordinationv1.Lease](t)(leases.Get(t.Context(), "x", metav1.GetOptions{})); now.UID != held.UID || now.ResourceVersion != held.ResourceVersion {
		t.Errorf("another lease: %+v", now.ObjectMeta)
	}
}
