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
		{"unknown path", "GET", "/api/v1/gadgets", "", nil, 404, "NotFound", "could not find the requested resource"},
		{"unknown group", "GET", "/apis/batch/v1/jobs", "", nil, 404, "NotFound", "could not find the requested resource"},
		{"unknown pod", "GET", podsPath + "/none", "", nil, 404, "NotFound", `pods "none" not found`},
		{"unknown namespace", "POST", "/api/v1/namespaces/none/pods", podJSON, nil, 404, "NotFound", `namespaces "none" not found`},
		{"name taken", "POST", podsPath, podJSON, nil, 409, "AlreadyExists", `pods "p" already exists`},
		{"no name", "POST", podsPath, `{"spec":{"containers":[{"name":"main","image":"app"}]}}`, nil, 422, "Invalid", "metadata.name: Required value: name or generateName is required"},
		{"no containers", "POST", podsPath, `{"metadata":{"name":"q"}}`, nil, 422, "Invalid", "spec.containers: Required value"},
		{"bad name", "POST", podsPath, strings.Replace(podJSON, `"p"`, `"Q/.."`, 1), nil, 422, "Invalid", `metadata.name: Invalid value: "Q/.."`},
		{"two containers of one name", "POST", podsPath, `{"metadata":{"name":"q"},"spec":{"containers":[{"name":"a","image":"x"},{"name":"a","image":"x"}]}}`, nil, 422, "Invalid", `spec.containers[1].name: Duplicate value: "a"`},
		{"request above limit", "POST", podsPath, `{"metadata":{"name":"q"},"spec":{"containers":[{"name":"a","image":"x","resources":{"requests":{"cpu":"2"},"limits":{"cpu":"1"}}}]}}`, nil, 422, "Invalid", "must be less than or equal to cpu limit of 1"},
		{"unknown priority class", "POST", podsPath, `{"metadata":{"name":"q"},"spec":{"priorityClassName":"none","containers":[{"name":"a","image":"x"}]}}`, nil, 403, "Forbidden", "no PriorityClass with name none was found"},
		{"unknown runtime class", "POST", podsPath, `{"metadata":{"name":"q"},"spec":{"runtimeClassName":"none","containers":[{"name":"a","image":"x"}]}}`, nil, 403, "Forbidden", `RuntimeClass "none" not found`},
		{"another namespace", "POST", podsPath, strings.Replace(podJSON, `"name":"p"`, `"name":"q","namespace":"kube-system"`, 1), nil, 400, "BadRequest", "does not match the namespace sent on the request"},
		{"another kind", "POST", podsPath, `{"apiVersion":"v1","kind":"Node","metadata":{"name":"n"}}`, nil, 400, "BadRequest", "(v1, Kind=Node) does not match the expected one (v1, Kind=Pod)"},
		{"no JSON", "POST", podsPath, `{"metadata":`, nil, 400, "BadRequest", "cannot be handled as a Pod"},
		{"unknown field, strictly", "POST", podsPath + "?fieldValidation=Strict", `{"metadata":{"name":"q"},"spec":{"contaners":[]}}`, nil, 400, "BadRequest", `strict decoding error: unknown field "spec.contaners"`},
		{"unknown media type", "POST", podsPath, "a=b", []string{"Content-Type", "text/plain"}, 415, "UnsupportedMediaType", "accepted media types include"},
		{"unacceptable", "GET", podsPath, "", []string{"Accept", "text/html"}, 406, "NotAcceptable", "only the following media types are accepted"},
		{"too large", "POST", podsPath, strings.Repeat(" ", 3<<20+1), nil, 413, "RequestEntityTooLarge", "limit is 3145728"},
		{"resource version on a new object", "POST", podsPath, `{"metadata":{"name":"q","resourceVersion":"1"},"spec":{"containers":[{"name":"a","image":"x"}]}}`, nil, 400, "BadRequest", "resourceVersion should not be set"},
		{"unknown field selector", "GET", podsPath + "?fieldSelector=spec.color%3Dred", "", nil, 400, "BadRequest", "field label not supported: spec.color"},
		{"bad label selector", "GET", podsPath + "?labelSelector=%3D%3D", "", nil, 400, "BadRequest", ""},
		{"future resource version", "GET", podsPath + "?resourceVersion=99999999999", "", nil, 504, "Timeout", "Too large resource version"},
		{"continue", "GET", podsPath + "?continue=x", "", nil, 410, "Expired", ""},
		{"update under another name", "PUT", podPath, strings.Replace(podJSON, `"p"`, `"q"`, 1), nil, 400, "BadRequest", "the name of the object (q) does not match the name on the URL (p)"},
		{"update of nothing", "PUT", podsPath + "/q", strings.Replace(podJSON, `"p"`, `"q"`, 1), nil, 404, "NotFound", `pods "q" not found`},
		{"old version", "PATCH", podPath, `{"metadata":{"resourceVersion":"1"}}`, []string{"Content-Type", merge}, 409, "Conflict", "the object has been modified; please apply your changes to the latest version and try again"},
		{"another uid", "PATCH", podPath, `{"metadata":{"uid":"x"}}`, []string{"Content-Type", merge}, 409, "Conflict", "Precondition failed: UID in precondition: x"},
		{"resources of a container", "PATCH", podPath, `{"spec":{"containers":[{"name":"main","resources":{"requests":{"cpu":"9"}}}]}}`, []string{"Content-Type", strategic}, 422, "Invalid", "pod updates may not change fields other than"},
		{"node by patch", "PATCH", podPath, `{"spec":{"nodeName":"n1"}}`, []string{"Content-Type", merge}, 422, "Invalid", "pod updates may not change fields other than"},
		{"toleration taken away", "PATCH", podPath, `{"spec":{"tolerations":null}}`, []string{"Content-Type", merge}, 422, "Invalid", "existing toleration can not be modified"},
		{"bad patch", "PATCH", podPath, `[{"op":"replace","path":"/nowhere/x","value":1}]`, []string{"Content-Type", jsonPatch}, 400, "BadRequest", "the patch cannot be applied"},
		{"apply", "PATCH", podPath, podJSON, []string{"Content-Type", "application/apply-patch+yaml"}, 415, "UnsupportedMediaType", "strategic-merge-patch"},
		{"logs", "GET", podPath + "/log", "", nil, 404, "NotFound", "it runs no containers"},
		{"exec", "POST", podPath + "/exec", "", nil, 404, "NotFound", "it runs no containers"},
		{"method of a subresource", "GET", podPath + "/binding", "", nil, 405, "MethodNotAllowed", ""},
		{"binding to nothing", "POST", podPath + "/binding", `{"metadata":{"name":"p"},"target":{}}`, nil, 422, "Invalid", "target.name: Required value"},
		{"binding of nothing", "POST", podsPath + "/q/binding", `{"metadata":{"name":"q"},"target":{"name":"n1"}}`, nil, 404, "NotFound", `pods "q" not found`},
		{"system namespace", "DELETE", "/api/v1/namespaces/default", "", nil, 403, "Forbidden", "this namespace may not be deleted"},
		{"deletion of another", "DELETE", podPath, `{"preconditions":{"uid":"x"}}`, nil, 409, "Conflict", "Precondition failed: UID in precondition: x"},
		{"priority above the users'", "POST", "/apis/scheduling.k8s.io/v1/priorityclasses", `{"metadata":{"name":"c"},"value":2000000000}`, nil, 422, "Invalid", "maximum allowed value of a user defined priority is 1000000000"},
		{"budget of both kinds", "POST", budgetPath, `{"metadata":{"name":"b"},"spec":{"minAvailable":1,"maxUnavailable":1}}`, nil, 422, "Invalid", "minAvailable and maxUnavailable cannot be both set"},
		{"budget of nonsense", "POST", budgetPath, `{"metadata":{"name":"b"},"spec":{"minAvailable":"120%"}}`, nil, 422, "Invalid", "a percentage of at most 100%"},
		{"event without its fields", "POST", "/apis/events.k8s.io/v1/namespaces/default/events", `{"metadata":{"name":"e"}}`, nil, 422, "Invalid", "reportingController: Required value"},
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

func TestRefusalNamesEveryFaultyField(t *testing.T) {
	got := withPod(t).call(t, "POST", podsPath, `{"metadata":{"name":"q"},"spec":{"containers":[{"image":"x"},{"name":"b"}]}}`)
	details, _ := got.object["details"].(map[string]any)
	causes, _ := details["causes"].([]any)
	var fields []string
	for _, cause := range causes {
		fields = append(fields, cause.(map[string]any)["field"].(string))
	}
	if strings.Join(fields, " ") != "spec.containers[0].name spec.containers[1].image" {
		t.Errorf("causes are of %v: %s", fields, got.body)
	}
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

func TestPatchesOfEachKindChangeTheObject(t *testing.T) {
	for _, c := range []struct{ contentType, patch string }{
		{strategic, `{"spec":{"containers":[{"name":"main","image":"app:2"}]}}`},
		{merge, `{"spec":{"containers":[{"name":"main","image":"app:2"}]}}`},
		{jsonPatch, `[{"op":"replace","path":"/spec/containers/0/image","value":"app:2"}]`},
	} {
		t.Run(c.contentType, func(t *testing.T) {
			s := withPod(t)
			got := s.call(t, "PATCH", podPath, c.patch, "Content-Type", c.contentType)
			if got.code != 200 || !strings.Contains(got.body, `"image":"app:2"`) || !strings.Contains(got.body, `"generation":2`) {
				t.Errorf("got %d %s", got.code, got.body)
			}
			version := got.object["metadata"].(map[string]any)["resourceVersion"]
			if again := s.call(t, "PATCH", podPath, c.patch, "Content-Type", c.contentType); again.object["metadata"].(map[string]any)["resourceVersion"] != version {
				t.Error("a patch that changes nothing made a new version")
			}
		})
	}
}

func TestWritesToTheObjectLeaveItsStatusAloneAndTheOtherWayRound(t *testing.T) {
	s := withPod(t)
	s.call(t, "PATCH", podPath, `{"status":{"phase":"Running"}}`, "Content-Type", merge)
	if got := s.call(t, "GET", podPath, ""); !strings.Contains(got.body, `"phase":"Pending"`) {
		t.Errorf("a write to the object changed its status: %s", got.body)
	}
	s.call(t, "PATCH", podPath+"/status", `{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"main","image":"other"}]},"status":{"phase":"Running"}}`, "Content-Type", merge)
	if got := s.call(t, "GET", podPath, ""); !strings.Contains(got.body, `"phase":"Running"`) || strings.Contains(got.body, "other") || !strings.Contains(got.body, `"a":"b"`) {
		t.Errorf("a write to the status: %s", got.body)
	}
}

func TestManagedFieldsAreNeverKept(t *testing.T) {
	s := serve(t, "")
	got := s.call(t, "POST", podsPath, strings.Replace(podJSON, `"name":"p"`, `"name":"p","managedFields":[{"manager":"x","operation":"Update","apiVersion":"v1"}]`, 1))
	if got.code != 201 || strings.Contains(got.body, "managedFields") {
		t.Errorf("got %d %s", got.code, got.body)
	}
}

func TestGeneratedNamesDiffer(t *testing.T) {
	s := serve(t, "")
	names := map[any]bool{}
	for range 5 {
		got := s.call(t, "POST", podsPath, strings.Replace(podJSON, `"name":"p"`, `"generateName":"p-"`, 1))
		name, _ := got.object["metadata"].(map[string]any)["name"].(string)
		if names[name] = true; !strings.HasPrefix(name, "p-") {
			t.Errorf("got %d, name %q", got.code, name)
		}
	}
	if len(names) != 5 {
		t.Errorf("five pods have %d names", len(names))
	}
}

func TestDeletingAllDeletesWhatTheSelectorMatches(t *testing.T) {
	s := serve(t, "")
	for _, name := range []string{"a", "b", "c"} {
		s.call(t, "POST", podsPath, strings.Replace(podJSON, `"name":"p"`, `"name":"`+name+`","labels":{"n":"`+name+`"}`, 1))
	}
	if got := s.call(t, "DELETE", podsPath+"?labelSelector=n+in+(a,b)", ""); got.code != 200 {
		t.Fatal(got.body)
	}
	if got := s.call(t, "GET", podsPath, ""); strings.Count(got.body, `"name":"main"`) != 1 || !strings.Contains(got.body, `"name":"c"`) {
		t.Errorf("left: %s", got.body)
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

func TestWatchBeginsWithWhatThereIsAndSaysWhenThatWasAll(t *testing.T) {
	s := withPod(t)
	got := s.call(t, "GET", podsPath+"?watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true&timeoutSeconds=1", "")
	frames := strings.Split(strings.TrimSpace(got.body), "\n")
	if got.code != 200 || len(frames) != 2 || !strings.HasPrefix(frames[0], `{"type":"ADDED","object":{"kind":"Pod"`) ||
		!strings.HasPrefix(frames[1], `{"type":"BOOKMARK"`) || !strings.Contains(frames[1], `"k8s.io/initial-events-end":"true"`) {
		t.Errorf("got %d\n%s", got.code, got.body)
	}
}
