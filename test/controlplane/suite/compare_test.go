package suite_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/evictd/evictd/internal/campaign"
	"github.com/evictd/evictd/internal/require"
	"github.com/evictd/evictd/internal/shrink"
	"github.com/evictd/evictd/test/controlplane/apiserver"
)

// side is one of the compared servers.
type side struct {
	*apiserver.Server
	client *http.Client
	host   string
}

// outcome is what a server has answered: to each request, and by its watches.
type outcome struct {
	answers []any
	watches map[string][]any
}

// sides are servers of their own: a kube-apiserver with the admission plugins of the embedded API, without
// finalizers of claims, which only kube-controller-manager removes, and the embedded API.
var sides = []func(t testing.TB) (*apiserver.Server, error){
	func(testing.TB) (*apiserver.Server, error) {
		return apiserver.NewKubeAPIServer("--enable-admission-plugins=PodTolerationRestriction", "--disable-admission-plugins=StorageObjectInUseProtection")
	},
	embedded,
}

// newSide starts a server for one test: what the random requests have made stays in it.
func newSide(t *testing.T, start func(testing.TB) (*apiserver.Server, error)) *side {
	server := started(t, start)
	t.Cleanup(func() { require.NoError(t, server.Stop()) })
	return sideOf(t, server)
}

func sideOf(t *testing.T, server *apiserver.Server) *side {
	config, err := server.Config(apiserver.Admin)
	require.NoError(t, err)
	client, err := rest.HTTPClientFor(config)
	require.NoError(t, err)
	t.Cleanup(client.CloseIdleConnections)
	return &side{server, client, config.Host}
}

// TestRandomRequestsAreAnsweredAsByAKubeAPIServer sends the same random requests to both servers.
func TestRandomRequestsAreAnsweredAsByAKubeAPIServer(t *testing.T) {
	compareWorlds(t, campaign.Seed(t, 1), 40)
}

func TestCampaignRandomRequestsAreAnsweredAsByAKubeAPIServer(t *testing.T) {
	campaign.Only(t)
	compareWorlds(t, campaign.Seed(t, uint64(time.Now().UnixNano())), campaign.Size(2000, 2))
}

func compareWorlds(t *testing.T, seed uint64, worlds int) {
	kube, embedded := newSide(t, sides[0]), newSide(t, sides[1])
	run := 0
	differs := func(w world) string {
		run++
		namespace := fmt.Sprintf("random-%d-%d", seed, run)
		return difference(w, kube.run(t, namespace, w), embedded.run(t, namespace, w))
	}
	for i := range uint64(worlds) {
		w := newWorld(seed + i)
		found := differs(w)
		if found == "" {
			continue
		}
		t.Logf("before it is shrunk: %s", found)
		text, err := json.Marshal(w)
		require.NoError(t, err)
		text = shrink.JSON(text, func(less []byte) bool {
			var w world
			return json.Unmarshal(less, &w) == nil && w.isWhole() && differs(w) != ""
		})
		w = world{} // Unmarshal keeps the fields that the text leaves out
		require.NoError(t, json.Unmarshal(text, &w))
		t.Fatalf("EVICTD_SEED=%d: %s\nof the requests\n%s", seed+i, differs(w), text)
	}
	t.Logf("%d worlds from EVICTD_SEED=%d are the same", worlds, seed)
}

// isWhole says that each request has a method and a path.
func (w world) isWhole() bool {
	return !slices.ContainsFunc(w.Requests, func(r request) bool { return !strings.Contains(r.Request, " ") })
}

// difference is the first one in a world, empty where there is none.
func difference(w world, kube, embedded outcome) string {
	if len(kube.answers) != len(embedded.answers) {
		return "one of the servers refuses the limits"
	}
	for i := range kube.answers {
		if !reflect.DeepEqual(kube.answers[i], embedded.answers[i]) {
			return fmt.Sprintf("%s %s\n%s", w.Requests[i].Request, w.Requests[i].Body, strings.Join(unequal("", kube.answers[i], embedded.answers[i]), "\n"))
		}
	}
	for _, kind := range watched {
		if !reflect.DeepEqual(kube.watches[kind], embedded.watches[kind]) {
			return fmt.Sprintf("the watch of %s\n%s", kind, strings.Join(unequal("", any(kube.watches[kind]), any(embedded.watches[kind])), "\n"))
		}
	}
	return ""
}

// unequal are the parts in which two answers differ, with their paths.
func unequal(path string, kube, embedded any) (found []string) {
	switch k := kube.(type) {
	case []any:
		if e, ok := embedded.([]any); ok && len(k) == len(e) {
			for i := range k {
				found = append(found, unequal(fmt.Sprint(path, "[", i, "]"), k[i], e[i])...)
			}
			return found
		}
	case map[string]any:
		if e, ok := embedded.(map[string]any); ok {
			for _, name := range slices.Sorted(maps.Keys(k)) {
				found = append(found, unequal(path+"."+name, k[name], e[name])...)
			}
			for _, name := range slices.Sorted(maps.Keys(e)) {
				if _, has := k[name]; !has {
					found = append(found, unequal(path+"."+name, nil, e[name])...)
				}
			}
			return found
		}
	}
	if !reflect.DeepEqual(kube, embedded) {
		found = append(found, fmt.Sprintf("  %s: kube-apiserver %s, embedded %s", path, text(kube), text(embedded)))
	}
	return found
}

func text(v any) string {
	out, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(out)
}

var unknownPlace = regexp.MustCompile(`\{(rv|uid):[^}]*\}`)

// run sends a world's requests, each after the answer to the one before.
func (s *side) run(t *testing.T, namespace string, w world) outcome {
	t.Helper()
	kept := map[string]string{"ns": namespace}
	s.must(t, request{Request: "POST /api/v1/namespaces", Body: json.RawMessage(`{"metadata":{"name":"` + namespace + `"}}`)}, kept)
	if !s.prepare(t, w, kept) {
		return outcome{}
	}
	begins := map[string]string{}
	for _, kind := range watched {
		docs := s.must(t, request{Request: "GET " + resources[kind]}, kept)
		begins[kind], _ = field(docs, "metadata.resourceVersion")
	}
	out := outcome{watches: map[string][]any{}}
	applied := map[string]bool{}
	for _, r := range w.Requests {
		r.Body = json.RawMessage(forget(string(r.Body), kept))
		code, docs, err := r.send(s.client, s.host, kept)
		require.NoError(t, err)
		if path, _, _ := strings.Cut(r.Request, "?"); code == http.StatusConflict && strings.Contains(string(r.Body), "{rv:poddisruptionbudgets/") {
			// The embedded API counts the pods of the budget beside the requests, and the version counts that.
			_, path, _ = strings.Cut(path, " ")
			read := request{Request: "GET " + path}
			found, now, err := read.send(s.client, s.host, kept)
			require.NoError(t, err)
			s.answer(read, found, now, kept, applied)
			code, docs, err = r.send(s.client, s.host, kept)
			require.NoError(t, err)
		}
		out.answers = append(out.answers, s.answer(r, code, docs, kept, applied))
	}
	for _, kind := range watched {
		out.watches[kind] = s.watch(t, kind, begins[kind], kept, applied)
	}
	return out
}

// forget removes what a request names and the server has not.
func forget(body string, kept map[string]string) string {
	return unknownPlace.ReplaceAllStringFunc(body, func(place string) string {
		if kept[strings.Trim(place, "{}")] == "" {
			return ""
		}
		return place
	})
}

func (s *side) must(t *testing.T, r request, kept map[string]string) []any {
	t.Helper()
	code, docs, err := r.send(s.client, s.host, kept)
	require.NoError(t, err)
	if code >= 300 {
		t.Fatalf("%s: %d %s", r.Request, code, text(docs))
	}
	return docs
}

// prepare makes the quota and the limits of a world, and waits until they are enforced: kube-apiserver
// learns of them by a watch. It returns false where the world has limits that the server refuses.
func (s *side) prepare(t *testing.T, w world, kept map[string]string) bool {
	t.Helper()
	refused := func(path string, body object) func() bool {
		body["metadata"] = object{"name": "probe"}
		return func() bool {
			probe := random{}.sends("POST", path+"?dryRun=All", "", body)
			code, _, err := probe.send(s.client, s.host, kept)
			require.NoError(t, err)
			return code == http.StatusForbidden
		}
	}
	makes := func(r request) bool {
		code, _, err := r.send(s.client, s.host, kept)
		require.NoError(t, err)
		return code < http.StatusMultipleChoices
	}
	if w.Limits != nil {
		if !makes(random{}.sends("POST", resources["limitranges"], "", object{"metadata": object{"name": "limits"}, "spec": object{"limits": append(slices.Clone(w.Limits), smallClaims)}})) {
			return false
		}
		await(t, "the LimitRange to be enforced", refused(resources["persistentvolumeclaims"],
			object{"spec": object{"accessModes": []string{"ReadWriteOnce"}, "resources": object{"requests": object{"storage": "100Gi"}}}}))
	}
	if w.Quota == nil {
		return true
	}
	const quotas = "/api/v1/namespaces/{ns}/resourcequotas"
	hard, used := maps.Clone(w.Quota), object{}
	hard[noSecrets] = "0"
	for name := range hard {
		used[name] = "0"
	}
	if !makes(random{}.sends("POST", quotas, "", object{"metadata": object{"name": "quota"}, "spec": object{"hard": hard}})) ||
		!makes(random{}.sends("PATCH", quotas+"/quota/status", "merge", object{"status": object{"hard": hard, "used": used}})) {
		return false
	}
	await(t, "the ResourceQuota to be enforced", refused("/api/v1/namespaces/{ns}/secrets", object{}))
	return true
}

// answer is what is compared of an answer: of a refusal the code, the reason and the fields that
// are wrong, else all fields.
func (s *side) answer(r request, code int, docs []any, kept map[string]string, applied map[string]bool) any {
	if len(docs) != 1 {
		return []any{code, docs}
	}
	doc, isObject := docs[0].(map[string]any)
	if !isObject {
		return code
	}
	if doc["kind"] == "Status" && code >= 300 {
		return []any{code, refusalOf(doc)}
	}
	changed := s.remember(r, code, doc, kept, applied)
	if strings.HasPrefix(r.Request, "POST") { // a dry run, maybe, beside an object of the name
		applied = nil
	}
	return []any{code, changed, s.settled(doc, applied, strings.HasPrefix(r.Request, "DELETE"))}
}

// refusalOf is what programs read of a Status, and the message of admission plugins, which people read.
func refusalOf(status map[string]any) any {
	details, _ := status["details"].(map[string]any)
	var causes []string
	list, _ := details["causes"].([]any)
	for _, cause := range list {
		cause := cause.(map[string]any)
		causes = append(causes, fmt.Sprint(cause["reason"], " ", cause["field"]))
	}
	slices.Sort(causes)
	message := ""
	if said, _ := status["message"].(string); strings.Contains(said, "quota") || strings.Contains(said, "usage per") || strings.Contains(said, "ratio per") {
		message = said
	}
	name, _ := details["name"].(string)
	return []any{status["reason"], uid.ReplaceAllString(name, "(uid)"), details["group"], details["kind"], causes, message}
}

// remember keeps the version and the uid of the object of an answer, and says whether the answer has a new
// version of it.
func (s *side) remember(r request, code int, doc map[string]any, kept map[string]string, applied map[string]bool) bool {
	meta, _ := doc["metadata"].(map[string]any)
	name, _ := meta["name"].(string)
	method, path, _ := strings.Cut(r.Request, " ")
	path, query, _ := strings.Cut(path, "?")
	kind := ""
	for each, at := range resources {
		if strings.HasPrefix(path, at) {
			kind = each
		}
	}
	if kind == "" || name == "" || meta["resourceVersion"] == nil {
		return false
	}
	place := kind + "/" + strings.TrimPrefix(name, kept["ns"]+"-")
	version, _ := meta["resourceVersion"].(string)
	changed := kept["rv:"+place] != version
	if strings.Contains(query, "dryRun=All") || method == "DELETE" && strings.Contains(string(r.Body), "All") {
		return false
	}
	kept["rv:"+place], kept["uid:"+place] = version, fmt.Sprint(meta["uid"])
	if code == http.StatusCreated {
		applied[kind+"/"+name] = method == "PATCH"
	}
	// Other objects have managers in kube-apiserver only, a deletion without grace is one change, not two,
	// kube-apiserver stores a claim and a job again at the first update, with defaults, and the embedded API counts
	// the pods of a budget.
	return changed && applied[kind+"/"+name] && method != "DELETE" && !slices.Contains([]string{"persistentvolumeclaims", "jobs", "poddisruptionbudgets"}, kind)
}

// settled is an object as it is compared: the managers of fields only where the object was made by an
// application, and without what a deletion at once leaves.
func (s *side) settled(doc map[string]any, applied map[string]bool, deleted bool) any {
	meta, _ := doc["metadata"].(map[string]any)
	kinds := map[string]string{"ConfigMap": "configmaps", "Pod": "pods", "Deployment": "deployments", "Job": "jobs", "PersistentVolumeClaim": "persistentvolumeclaims",
		"PodDisruptionBudget": "poddisruptionbudgets", "Node": "nodes", "PriorityClass": "priorityclasses"}
	kind, _ := doc["kind"].(string)
	managed := any(nil)
	if applied[kinds[kind]+"/"+fmt.Sprint(meta["name"])] {
		managed = managers(meta["managedFields"])
	}
	if grace, terminating := meta["deletionGracePeriodSeconds"].(float64); terminating && grace == 0 && meta["finalizers"] == nil {
		delete(meta, "deletionGracePeriodSeconds")
		delete(meta, "deletionTimestamp")
		delete(meta, "generation")
	}
	if deleted && meta["deletionTimestamp"] == nil {
		delete(meta, "generation")
	}
	delete(meta, "selfLink")
	if kind == "PodDisruptionBudget" { // the embedded API counts its pods beside the requests
		delete(doc, "status")
	}
	if items, isList := doc["items"].([]any); isList && kind == "PodDisruptionBudgetList" {
		for _, item := range items {
			delete(item.(map[string]any), "status")
		}
	}
	if kind == "Namespace" { // the embedded API deletes its objects without a finalizer
		delete(doc, "spec")
	}
	if spec, _ := doc["spec"].(map[string]any); kind == "Node" && spec["taints"] != nil {
		withoutConditionTaints(spec)
	}
	if meta["continue"] != nil {
		meta["continue"] = "(token)"
	}
	return []any{settle(doc), managed}
}

// withoutConditionTaints removes the taints that follow from conditions, which the embedded API sets at once and a
// controller that kube-apiserver does not have later.
func withoutConditionTaints(spec map[string]any) {
	taints, _ := spec["taints"].([]any)
	taints = slices.DeleteFunc(taints, func(taint any) bool {
		key, _ := taint.(map[string]any)["key"].(string)
		return strings.HasPrefix(key, "node.kubernetes.io/")
	})
	if spec["taints"] = taints; len(taints) == 0 {
		delete(spec, "taints")
	}
}

// managers are the managers of an object, without the times and the order that the times give.
func managers(of any) any {
	list, _ := of.([]any)
	texts := make([]string, len(list))
	for i, entry := range list {
		delete(entry.(map[string]any), "time")
		texts[i] = text(entry)
	}
	slices.Sort(texts)
	return strings.Join(texts, "\n")
}

// watch is what a watch from a version on has of a kind, up to an object that is made for it.
func (s *side) watch(t *testing.T, kind, from string, kept map[string]string, applied map[string]bool) (events []any) {
	t.Helper()
	body := map[string]object{
		"configmaps": {}, "pods": {"spec": object{"containers": []any{object{"name": "c", "image": "i", "resources": object{"requests": object{"cpu": "1m"}, "limits": object{"cpu": "2m"}}}}}},
		"deployments": {"spec": object{"selector": object{"matchLabels": object{"l": "l"}}, "template": object{"metadata": object{"labels": object{"l": "l"}}, "spec": object{"containers": []any{object{"name": "c", "image": "i"}}}}}},
	}[kind]
	body["metadata"] = object{"name": "last"}
	last := random{}.sends("POST", resources[kind], "", body)
	code, _, err := last.send(s.client, s.host, kept)
	require.NoError(t, err)
	path := strings.ReplaceAll(resources[kind], "{ns}", kept["ns"]) + "?watch=true&resourceVersion=" + from
	if code != http.StatusCreated { // a quota or limits forbid it
		path += "&timeoutSeconds=1"
	}
	response, err := s.client.Get(s.host + path)
	require.NoError(t, err)
	defer response.Body.Close()
	lines := bufio.NewReader(response.Body)
	for {
		line, err := lines.ReadBytes('\n')
		if len(bytes.TrimSpace(line)) == 0 && err != nil {
			return oneDeletion(events)
		}
		var event struct {
			Type   string         `json:"type"`
			Object map[string]any `json:"object"`
		}
		require.NoError(t, json.Unmarshal(line, &event))
		meta, _ := event.Object["metadata"].(map[string]any)
		if meta["name"] == "last" {
			return oneDeletion(events)
		}
		events = append(events, []any{event.Type, s.settled(event.Object, map[string]bool{}, event.Type == "DELETED")})
	}
}

// oneDeletion leaves out the change that marks an object as deleted where the next change of
// the object removes it, as with a deletion without grace, and changes of nothing but the managers of fields.
func oneDeletion(events []any) (kept []any) {
	last := map[string]any{}
	for i, event := range events {
		if i+1 < len(events) && event.([]any)[0] == "MODIFIED" && events[i+1].([]any)[0] == "DELETED" && reflect.DeepEqual(event.([]any)[1], events[i+1].([]any)[1]) {
			continue
		}
		if what := event.([]any); what[0] == "MODIFIED" && reflect.DeepEqual(last[nameOf(event)], what[1]) {
			continue
		}
		last[nameOf(event)] = event.([]any)[1]
		kept = append(kept, event)
	}
	return kept
}

func nameOf(event any) string {
	object := event.([]any)[1].([]any)[0].(map[string]any)
	return fmt.Sprint(object["metadata"].(map[string]any)["name"])
}
