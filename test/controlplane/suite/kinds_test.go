package suite_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/evictd/evictd/internal/require"
	"github.com/evictd/evictd/test/controlplane/apiserver"
)

// minimal is an object of each kind that the embedded API stores, by its path in {ns}.
var minimal = map[string]string{
	"/api/v1/namespaces":                             `{}`,
	"/api/v1/nodes":                                  `{}`,
	"/api/v1/persistentvolumes":                      `{"spec":{"capacity":{"storage":"1Gi"},"accessModes":["ReadWriteOnce"],"hostPath":{"path":"/a"}}}`,
	"/api/v1/namespaces/{ns}/configmaps":             `{}`,
	"/api/v1/namespaces/{ns}/endpoints":              `{}`,
	"/api/v1/namespaces/{ns}/events":                 `{"involvedObject":{"namespace":"{ns}"}}`,
	"/api/v1/namespaces/{ns}/limitranges":            `{"spec":{"limits":[]}}`,
	"/api/v1/namespaces/{ns}/persistentvolumeclaims": `{"spec":{"accessModes":["ReadWriteOnce"],"storageClassName":"","resources":{"requests":{"storage":"1Gi"}}}}`,
	"/api/v1/namespaces/{ns}/pods":                   `{"spec":{"containers":[{"name":"c","image":"i"}]}}`,
	"/api/v1/namespaces/{ns}/podtemplates":           `{"template":{"spec":{"containers":[{"name":"c","image":"i"}]}}}`,
	"/api/v1/namespaces/{ns}/replicationcontrollers": `{"spec":{"selector":{"a":"b"},"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"i"}]}}}}`,
	"/api/v1/namespaces/{ns}/resourcequotas":         `{"spec":{"hard":{"count/x":"5"}}}`,
	"/api/v1/namespaces/{ns}/secrets":                `{}`,
	"/api/v1/namespaces/{ns}/serviceaccounts":        `{}`,
	"/api/v1/namespaces/{ns}/services":               `{"spec":{"clusterIP":"None"}}`,

	"/apis/apps/v1/namespaces/{ns}/controllerrevisions": `{"revision":1,"data":{}}`,
	"/apis/apps/v1/namespaces/{ns}/daemonsets":          `{"spec":` + ofPods + `}`,
	"/apis/apps/v1/namespaces/{ns}/deployments":         `{"spec":` + ofPods + `}`,
	"/apis/apps/v1/namespaces/{ns}/replicasets":         `{"spec":` + ofPods + `}`,
	"/apis/apps/v1/namespaces/{ns}/statefulsets":        `{"spec":` + ofPods + `}`,
	"/apis/batch/v1/namespaces/{ns}/jobs":               `{"spec":{"template":` + ending + `}}`,
	"/apis/batch/v1/namespaces/{ns}/cronjobs":           `{"spec":{"schedule":"* * * * *","jobTemplate":{"spec":{"template":` + ending + `}}}}`,

	"/apis/autoscaling/v2/namespaces/{ns}/horizontalpodautoscalers": `{"spec":{"maxReplicas":2,"scaleTargetRef":{"apiVersion":"apps/v1","kind":"Deployment","name":"a"}}}`,
	"/apis/coordination.k8s.io/v1/namespaces/{ns}/leases":           `{}`,
	"/apis/discovery.k8s.io/v1/namespaces/{ns}/endpointslices":      `{"addressType":"IPv4"}`,
	"/apis/events.k8s.io/v1/namespaces/{ns}/events": `{"eventTime":"2026-01-01T00:00:00.000000Z","reportingController":"a/b","reportingInstance":"i","action":"a","reason":"r","type":"Normal",` +
		`"regarding":{"namespace":"{ns}"}}`,
	"/apis/networking.k8s.io/v1/namespaces/{ns}/networkpolicies": `{"spec":{"podSelector":{}}}`,
	"/apis/node.k8s.io/v1/runtimeclasses":                        `{"handler":"h"}`,
	"/apis/policy/v1/namespaces/{ns}/poddisruptionbudgets":       `{"spec":{"minAvailable":1,"selector":{}}}`,
	"/apis/scheduling.k8s.io/v1/priorityclasses":                 `{"value":5}`,

	"/apis/resource.k8s.io/v1/deviceclasses":                          `{"spec":{}}`,
	"/apis/resource.k8s.io/v1/devicetaintrules":                       `{"spec":{"deviceSelector":{"driver":"a.example.com"},"taint":{"key":"k","effect":"NoSchedule"}}}`,
	"/apis/resource.k8s.io/v1/namespaces/{ns}/resourceclaims":         `{"spec":{}}`,
	"/apis/resource.k8s.io/v1/namespaces/{ns}/resourceclaimtemplates": `{"spec":{"spec":{}}}`,
	"/apis/resource.k8s.io/v1/resourceslices":                         `{"spec":{"driver":"a.example.com","nodeName":"n","pool":{"name":"p","resourceSliceCount":1}}}`,

	"/apis/storage.k8s.io/v1/csidrivers":                           `{"spec":{}}`,
	"/apis/storage.k8s.io/v1/csinodes":                             `{"spec":{"drivers":[]}}`,
	"/apis/storage.k8s.io/v1/namespaces/{ns}/csistoragecapacities": `{"storageClassName":"fast"}`,
	"/apis/storage.k8s.io/v1/storageclasses":                       `{"provisioner":"a.example.com"}`,
	"/apis/storage.k8s.io/v1/volumeattachments":                    `{"spec":{"attacher":"a.example.com","nodeName":"n","source":{"persistentVolumeName":"v"}}}`,
	"/apis/storage.k8s.io/v1/volumeattributesclasses":              `{"driverName":"a.example.com","parameters":{"a":"b"}}`,
}

const (
	ofPods = `{"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"i"}]}}}`
	ending = `{"spec":{"restartPolicy":"Never","containers":[{"name":"c","image":"i"}]}}`
)

// compareKinds compares what the two servers answer to requests to each kind that the embedded API stores.
func compareKinds(t *testing.T, namespace string, answers func(s *side, path string, body object, hasStatus bool, kept map[string]string) []any) {
	kept := map[string]string{"ns": namespace}
	kube, embedded := newSide(t, sides[0]), newSide(t, sides[1])
	for _, s := range []*side{kube, embedded} {
		s.must(t, request{Request: "POST /api/v1/namespaces", Body: json.RawMessage(`{"metadata":{"name":"{ns}"}}`)}, kept)
		t.Cleanup(func() { s.must(t, request{Request: "DELETE /api/v1/namespaces/{ns}"}, kept) })
	}
	for path, hasStatus := range embedded.stored(t) {
		if minimal[path] == "" {
			t.Errorf("no object for %s", path)
			continue
		}
		body := func() (made object) {
			require.NoError(t, json.Unmarshal([]byte(minimal[path]), &made))
			return made
		}
		k, e := answers(kube, path, body(), hasStatus, kept), answers(embedded, path, body(), hasStatus, kept)
		if !reflect.DeepEqual(k, e) {
			t.Errorf("%s\n%s", path, strings.Join(unequal("", k, e), "\n"))
		}
	}
}

// TestAnUpdateOfEveryKindNeedsItsVersionOrNot sends updates without the resourceVersion of the object,
// which kube-apiserver takes of some kinds only.
func TestAnUpdateOfEveryKindNeedsItsVersionOrNot(t *testing.T) {
	compareKinds(t, "updates", func(s *side, path string, body object, hasStatus bool, kept map[string]string) (answers []any) {
		at := path + "/a"
		for _, meta := range []object{{"name": "a"}, {"name": "a", "uid": "b"}, {"name": "a", "resourceVersion": "1"}, {"name": "a", "resourceVersion": "0"}} { // no object is there
			body["metadata"] = meta
			answers = append(answers, s.refusal(t, random{}.sends("PUT", at+"?dryRun=All", "", body), kept))
		}
		body["metadata"] = object{"name": "a"}
		s.must(t, random{}.sends("POST", path, "", body), kept)
		defer s.must(t, random{}.sends("DELETE", at, "", deleteNow), kept)
		for _, version := range []any{"", "0", nil} {
			now := s.must(t, request{Request: "GET " + at}, kept)[0].(object)
			now["metadata"].(object)["resourceVersion"] = version
			answers = append(answers, s.refusal(t, random{}.sends("PUT", at, "", now), kept))
			if hasStatus {
				answers = append(answers, s.refusal(t, random{}.sends("PUT", at+"/status", "", now), kept))
			}
			patch := object{"metadata": object{"resourceVersion": version, "annotations": object{"a": fmt.Sprint(version)}}}
			answers = append(answers, s.refusal(t, random{}.sends("PATCH", at, "merge", patch), kept))
		}
		return append(answers, s.refusal(t, random{}.sends("PATCH", at, "merge", object{"metadata": object{"annotations": object{"a": "last"}}}), kept))
	})
}

// TestAnObjectOfEveryKindHasANameThatFits makes objects with names that kube-apiserver takes of some kinds only.
func TestAnObjectOfEveryKindHasANameThatFits(t *testing.T) {
	compareKinds(t, "names", func(s *side, path string, body object, _ bool, kept map[string]string) (answers []any) {
		for _, name := range []string{"a.b", "1a", "a_b", "A", "-a", "a:b", "a/b", "..", strings.Repeat("a", 53), strings.Repeat("a", 64), strings.Repeat("a", 253)} {
			body["metadata"] = object{"name": name}
			answer := s.refusal(t, random{}.sends("POST", path+"?dryRun=All", "", body), kept)
			answers = append(answers, object{name: answer})
		}
		return answers
	})
}

var deleteNow = object{"gracePeriodSeconds": 0, "propagationPolicy": "Background"}

// refusal is what is compared of an answer that refuses a request, and the code of another.
func (s *side) refusal(t *testing.T, r request, kept map[string]string) any {
	t.Helper()
	code, docs, err := r.send(s.client, s.host, kept)
	require.NoError(t, err)
	if status, ok := docs[0].(object); ok && status["kind"] == "Status" {
		return []any{code, refusalOf(status)}
	}
	_, versioned := field(docs, "metadata.resourceVersion")
	return []any{code, versioned}
}

// stored are the paths of the kinds that a server stores. A true value says that the kind has a status of its own.
func (s *side) stored(t *testing.T) map[string]bool {
	t.Helper()
	client, err := s.Client(apiserver.Admin)
	require.NoError(t, err)
	_, lists, err := client.Discovery().ServerGroupsAndResources()
	require.NoError(t, err)
	paths := map[string]bool{}
	for _, list := range lists {
		root := "/apis/" + list.GroupVersion + "/"
		if list.GroupVersion == "v1" {
			root = "/api/v1/"
		}
		for _, r := range list.APIResources {
			path := root + r.Name
			if r.Namespaced {
				path = root + "namespaces/{ns}/" + r.Name
			}
			if kind, isStatus := strings.CutSuffix(path, "/status"); isStatus {
				paths[kind] = true
			} else if slices.Contains(r.Verbs, "update") && !strings.Contains(r.Name, "/") {
				paths[path] = false
			}
		}
	}
	return paths
}
