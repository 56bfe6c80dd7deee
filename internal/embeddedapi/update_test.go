package embeddedapi_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/evictd/evictd/internal/require"
)

// TestAnUpdateKeepsWhatAdmissionHasComputed sends an update with the body of the creation, and one without computed fields.
func TestAnUpdateKeepsWhatAdmissionHasComputed(t *testing.T) {
	s := serve(t, "")
	const pod = `{"metadata":{"name":"a"},"spec":{"containers":[{"name":"c","image":"i","resources":{"limits":{"cpu":"1"}}}]}}`
	const class = `{"metadata":{"name":"a"},"value":7}`
	for _, each := range []struct{ path, body string }{{"/api/v1/namespaces/default/pods", pod}, {"/apis/scheduling.k8s.io/v1/priorityclasses", class}} {
		if made := s.call(t, "POST", each.path, each.body); made.code != 201 {
			t.Fatalf("create %s: %d %s", each.path, made.code, made.body)
		}
		if again := s.call(t, "PUT", each.path+"/a", each.body); again.code != 200 {
			t.Errorf("update %s: %d %s", each.path, again.code, again.body)
		}
	}
	const parts = `{"metadata":{"name":"b"},"spec":{"containers":[{"name":"c","image":"i"}],"resources":{"limits":{"cpu":"1"}}}}`
	if made := s.call(t, "POST", "/api/v1/namespaces/default/pods", parts); made.code != 201 {
		t.Fatalf("create: %d %s", made.code, made.body)
	}
	bare := `{"metadata":{"name":"b"},"spec":{"containers":[{"name":"c","image":"j"}]}}`
	updated := s.call(t, "PUT", "/api/v1/namespaces/default/pods/b", bare)
	spec, _ := updated.object["spec"].(map[string]any)
	if updated.code != 200 || spec["priority"] != 0.0 || spec["preemptionPolicy"] != "PreemptLowerPriority" || spec["resources"] == nil {
		t.Errorf("update of the image alone: %d %s", updated.code, updated.body)
	}
}

// TestAnUpdateIsManagedAsItWasSent says which fields an update manages: those that differ before admission sets others.
func TestAnUpdateIsManagedAsItWasSent(t *testing.T) {
	s := serve(t, "")
	const path = "/api/v1/namespaces/default/pods/a?fieldManager="
	const pod = `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"},"spec":{"containers":[{"name":"c","image":"i"}],"tolerations":[{"key":"k","operator":"Exists"}]}}`
	if made := s.call(t, "PATCH", path+"two", pod, "Content-Type", "application/apply-patch+yaml"); made.code != 201 {
		t.Fatalf("apply: %d %s", made.code, made.body)
	}
	updated := s.call(t, "PUT", path+"one", pod)
	metadata, _ := updated.object["metadata"].(map[string]any)
	entries, _ := metadata["managedFields"].([]any)
	found := map[string]bool{}
	for _, entry := range entries {
		entry := entry.(map[string]any)
		fields, err := json.Marshal(entry["fieldsV1"])
		require.NoError(t, err)
		found[entry["manager"].(string)] = strings.Contains(string(fields), "f:tolerations")
	}
	if updated.code != 200 || !found["one"] || found["two"] {
		t.Errorf("update without the tolerations that admission adds: %d %s", updated.code, updated.body)
	}
}

// TestPodsOfAStatefulSetMountItsClaims says that the volumes of a set's claims are there for the template.
func TestPodsOfAStatefulSetMountItsClaims(t *testing.T) {
	s := serve(t, "")
	for mounted, code := range map[string]int{"data": 201, "other": 422} {
		set := `{"metadata":{"name":"` + mounted + `"},"spec":{"selector":{"matchLabels":{"app":"a"}},"template":{"metadata":{"labels":{"app":"a"}},"spec":{"containers":[{"name":"c","image":"i",
			"volumeMounts":[{"name":"` + mounted + `","mountPath":"/data"}]}]}},"volumeClaimTemplates":[{"metadata":{"name":"data"},"spec":{"accessModes":["ReadWriteOnce"],"resources":{"requests":{"storage":"1Gi"}}}}]}}`
		if made := s.call(t, "POST", "/apis/apps/v1/namespaces/default/statefulsets", set); made.code != code {
			t.Errorf("a set that mounts %s: %d %s", mounted, made.code, made.body)
		}
	}
}
