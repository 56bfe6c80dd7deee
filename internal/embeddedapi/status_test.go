package embeddedapi_test

import (
	"net/http"
	"strings"
	"testing"
)

const (
	podJSON    = `{"metadata":{"name":"p"},"spec":{"containers":[{"name":"main","image":"app"}]}}`
	strategic  = "application/strategic-merge-patch+json"
	merge      = "application/merge-patch+json"
	jsonPatch  = "application/json-patch+json"
	podsPath   = "/api/v1/namespaces/default/pods"
	podPath    = podsPath + "/p"
	budgetPath = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
)

// The codes, reasons and words of kube-apiserver.
func TestRefusalsAreThoseOfKubernetes(t *testing.T) {
	s := withPod(t)
	for _, c := range []struct {
		name, method, path, body string
		headers                  []string
		code                     int
		reason, message          string // the message contains this
	}{
		{"two containers of one name", "POST", podsPath, `{"metadata":{"name":"q"},"spec":{"containers":[{"name":"a","image":"x"},{"name":"a","image":"x"}]}}`, nil, 422, "Invalid", `spec.containers[1].name: Duplicate value: "a"`},
		{"unknown runtime class", "POST", podsPath, `{"metadata":{"name":"q"},"spec":{"runtimeClassName":"none","containers":[{"name":"a","image":"x"}]}}`, nil, 403, "Forbidden", `RuntimeClass "none" not found`},
		{"unacceptable", "GET", podsPath, "", []string{"Accept", "text/html"}, 406, "NotAcceptable", "only the following media types are accepted"},
		{"a review as a table", "POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", `{"spec":{}}`, []string{"Accept", "application/json;as=Table;v=v1;g=meta.k8s.io"}, 406, "NotAcceptable", "only the following media types are accepted"},
		{"too large", "POST", podsPath, strings.Repeat(" ", 3<<20+1), nil, 413, "RequestEntityTooLarge", "limit is 3145728"},
		{"resource version on a new object", "POST", podsPath, `{"metadata":{"name":"q","resourceVersion":"1"},"spec":{"containers":[{"name":"a","image":"x"}]}}`, nil, 400, "BadRequest", "resourceVersion should not be set"},
		{"future resource version", "GET", podsPath + "?resourceVersion=99999999999", "", nil, 504, "Timeout", "Too large resource version"},
		{"continue", "GET", podsPath + "?continue=x", "", nil, 400, "BadRequest", "invalid continue token: continue key is not valid"},
		{"update of nothing", "PUT", podsPath + "/q", strings.Replace(podJSON, `"p"`, `"q"`, 1), nil, 404, "NotFound", `pods "q" not found`},
		{"another uid", "PATCH", podPath, `{"metadata":{"uid":"x"}}`, []string{"Content-Type", merge}, 409, "Conflict", "Precondition failed: UID in precondition: x"},
		{"resources of a container", "PATCH", podPath, `{"spec":{"containers":[{"name":"main","resources":{"requests":{"cpu":"9"}}}]}}`, []string{"Content-Type", strategic}, 422, "Invalid", "pod updates may not change fields other than"},
		{"toleration changed", "PATCH", podPath, `{"spec":{"tolerations":[{"key":"node.kubernetes.io/not-ready","operator":"Equal","value":"x","effect":"NoExecute"}]}}`, []string{"Content-Type", merge}, 422, "Invalid", "existing toleration can not be modified"},
		{"apply without a manager", "PATCH", podPath, podJSON, []string{"Content-Type", "application/apply-patch+yaml"}, 422, "Invalid", "fieldManager: Required value: is required for apply patch"},
		{"another patch", "PATCH", podPath, podJSON, []string{"Content-Type", "application/patch"}, 415, "UnsupportedMediaType", "strategic-merge-patch"},
		{"logs", "GET", podPath + "/log", "", nil, 404, "NotFound", "it runs no containers"},
		{"exec", "POST", podPath + "/exec", "", nil, 404, "NotFound", "it runs no containers"},
		{"binding to nothing", "POST", podPath + "/binding", `{"metadata":{"name":"p"},"target":{}}`, nil, 422, "Invalid", "target.name: Required value"},
		{"system namespace", "DELETE", "/api/v1/namespaces/default", "", nil, 403, "Forbidden", "this namespace may not be deleted"},
		{"priority above the users'", "POST", "/apis/scheduling.k8s.io/v1/priorityclasses", `{"metadata":{"name":"c"},"value":2000000000}`, nil, 422, "Invalid", "maximum allowed value of a user defined priority is 1000000000"},
		{"budget of both kinds", "POST", budgetPath, `{"metadata":{"name":"b"},"spec":{"minAvailable":1,"maxUnavailable":1}}`, nil, 422, "Invalid", "minAvailable and maxUnavailable cannot be both set"},
		{"budget of nonsense", "POST", budgetPath, `{"metadata":{"name":"b"},"spec":{"minAvailable":"120%"}}`, nil, 422, "Invalid", "must not be greater than 100%"},
		{"a web page's request", "GET", podsPath, "", []string{"Origin", "http://example.com"}, 403, "Forbidden", "programs on this host"},
		{"a foreign host name", "GET", podsPath, "", []string{"Host", "rebound.example.com"}, 403, "Forbidden", "programs on this host"},
		{"initial events without a match", "GET", podsPath + "?watch=true&sendInitialEvents=true", "", nil, 422, "Invalid", "requires setting resourceVersionMatch to NotOlderThan"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := s.call(t, c.method, c.path, c.body, c.headers...)
			message, _ := got.object["message"].(string)
			if got.code != c.code || got.object["kind"] != "Status" || got.object["status"] != "Failure" || got.object["reason"] != c.reason || !strings.Contains(message, c.message) {
				t.Errorf("got %d %s; want %d %s with %q", got.code, got.body, c.code, c.reason, c.message)
			}
		})
	}
}

// withPod is a server with one pod.
func withPod(t *testing.T) *server {
	s := serve(t, "")
	if got := s.call(t, "POST", podsPath, podJSON, "Content-Type", "application/json"); got.code != http.StatusCreated {
		t.Fatal(got.body)
	}
	return s
}

func TestUnknownFieldIsAWarningUnlessAskedOtherwise(t *testing.T) {
	s := withPod(t)
	body := `{"metadata":{"name":"q"},"spec":{"colour":"red","containers":[{"name":"a","image":"x"}]}}`
	if got := s.call(t, "POST", podsPath+"?dryRun=All", body); got.code != 201 || !strings.Contains(got.header.Get("Warning"), `unknown field`) {
		t.Errorf("got %d with warning %q", got.code, got.header.Get("Warning"))
	}
	if got := s.call(t, "POST", podsPath+"?dryRun=All&fieldValidation=Ignore", body); got.code != 201 || got.header.Get("Warning") != "" {
		t.Errorf("ignored: got %d with warning %q", got.code, got.header.Get("Warning"))
	}
	if got := s.call(t, "GET", podsPath+"/q", ""); got.code != 404 {
		t.Errorf("a dry run left something: %s", got.body)
	}
}

func TestManagedFieldsAreNeverKept(t *testing.T) {
	s := serve(t, "")
	got := s.call(t, "POST", podsPath, strings.Replace(podJSON, `"name":"p"`, `"name":"p","managedFields":[{"manager":"x","operation":"Update","apiVersion":"v1"}]`, 1))
	if got.code != 201 || strings.Contains(got.body, "managedFields") {
		t.Errorf("got %d %s", got.code, got.body)
	}
}

func TestProbesAndDiscoveryAnswer(t *testing.T) {
	s := serve(t, "")
	for path, want := range map[string]string{
		"/healthz": "ok", "/livez": "ok", "/readyz": "ok", "/version": `"gitVersion":"v1.37`,
		"/api": `"versions":["v1"]`, "/apis": `"groupVersion":"policy/v1"`, "/apis/apps": `"kind":"APIGroup"`,
		"/api/v1": `"name":"pods/eviction"`, "/apis/apps/v1": `"shortNames":["rs"]`,
		"/openapi/v2": `"io.k8s.api.core.v1.Pod"`, "/openapi/v3": `"/openapi/v3/api/v1"`, "/openapi/v3/apis/policy/v1": `"io.k8s.api.policy.v1.PodDisruptionBudget"`,
	} {
		if got := s.call(t, "GET", path, ""); got.code != 200 || !strings.Contains(got.body, want) {
			t.Errorf("%s: got %d %.200s", path, got.code, got.body)
		}
	}
}
