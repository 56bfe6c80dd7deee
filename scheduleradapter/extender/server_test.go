package extender_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	wire "k8s.io/kube-scheduler/extender/v1"

	"github.com/evictd/evictd/scheduleradapter/config"
	"github.com/evictd/evictd/scheduleradapter/extender"
	"github.com/evictd/evictd/scheduleradapter/framework"
	"github.com/evictd/evictd/scheduleradapter/nodetable"
	"github.com/evictd/evictd/scheduleradapter/plugins/plugintest"
)

// opinion rejects nodes "bad" as unresolvable and "full" as unschedulable.
func opinion(_ context.Context, pod *v1.Pod, nodes []string) (extender.Result, error) {
	if pod.Name == "poison" {
		return extender.Result{}, errors.New("cannot be evaluated")
	}
	v := extender.Result{Rejected: map[string]extender.Rejection{}, Scores: map[string]int64{}}
	for _, name := range nodes {
		switch name {
		case "bad":
			v.Rejected[name] = extender.Rejection{Reason: "short of memory", Unresolvable: true}
		case "full":
			v.Rejected[name] = extender.Rejection{Reason: "full"}
		case "good":
			v.Scores[name] = 79
		}
	}
	return v, nil
}

// ask posts a request to a server with opinion.
func ask(t *testing.T, verb string, request, answer any) {
	t.Helper()
	body, err := json.Marshal(request)
	if err != nil {
		t.Fatal(err)
	}
	w := httptest.NewRecorder()
	extender.NewHandler(opinion).ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/"+verb, bytes.NewReader(body)))
	if w.Code != http.StatusOK {
		t.Fatalf("%s: status %d: %s", verb, w.Code, w.Body)
	}
	if err := json.Unmarshal(w.Body.Bytes(), answer); err != nil {
		t.Fatal(err)
	}
}

// rule: S8.9
func TestTheServerFilters(t *testing.T) {
	all := []string{"good", "bad", "full", "unknown"}
	byName := wire.ExtenderArgs{Pod: pod("p"), NodeNames: &all}
	byObject := wire.ExtenderArgs{Pod: pod("p"), Nodes: &v1.NodeList{}}
	for _, name := range all {
		n := node(name)
		n.Labels = map[string]string{"of": name} // by which kube-scheduler scores
		byObject.Nodes.Items = append(byObject.Nodes.Items, *n)
	}
	for _, args := range []wire.ExtenderArgs{byName, byObject} {
		var result wire.ExtenderFilterResult
		ask(t, "filter", args, &result)
		var passed []string
		if result.NodeNames != nil {
			passed = *result.NodeNames
		} else {
			for _, n := range result.Nodes.Items {
				passed = append(passed, n.Name)
				if n.Labels["of"] != n.Name {
					t.Errorf("node %s has labels %v", n.Name, n.Labels)
				}
			}
		}
		if !slices.Equal(passed, []string{"good", "unknown"}) || !maps.Equal(result.FailedNodes, wire.FailedNodesMap{"full": "full"}) ||
			!maps.Equal(result.FailedAndUnresolvableNodes, wire.FailedNodesMap{"bad": "short of memory"}) {
			t.Errorf("passed %v, failed %v, unresolvable %v", passed, result.FailedNodes, result.FailedAndUnresolvableNodes)
		}
	}
}

// rule: S8.9
func TestTheServerScores(t *testing.T) {
	var list wire.HostPriorityList
	ask(t, "prioritize", wire.ExtenderArgs{Pod: pod("p"), NodeNames: &[]string{"good", "unknown"}}, &list)
	if want := (wire.HostPriorityList{{Host: "good", Score: 7}, {Host: "unknown", Score: 10}}); !slices.Equal(list, want) {
		t.Errorf("scores %v, expected %v", list, want)
	}
}

func TestTheServerKeepsPreemptionOffNodesWhereItDoesNotHelp(t *testing.T) {
	meta := map[string]*wire.MetaVictims{}
	full := map[string]*wire.Victims{}
	for _, name := range []string{"good", "bad", "full"} {
		meta[name] = &wire.MetaVictims{Pods: []*wire.MetaPod{{UID: "v"}}, NumPDBViolations: 1}
		full[name] = &wire.Victims{Pods: []*v1.Pod{pod("v")}, NumPDBViolations: 1}
	}
	for _, args := range []wire.ExtenderPreemptionArgs{{Pod: pod("p"), NodeNameToMetaVictims: meta}, {Pod: pod("p"), NodeNameToVictims: full}} {
		var result wire.ExtenderPreemptionResult
		ask(t, "preempt", args, &result)
		left := slices.Sorted(maps.Keys(result.NodeNameToMetaVictims))
		if good := result.NodeNameToMetaVictims["good"]; !slices.Equal(left, []string{"full", "good"}) || len(good.Pods) != 1 || good.Pods[0].UID != "v" || good.NumPDBViolations != 1 {
			t.Errorf("left %v, %+v", left, good)
		}
	}
}

func TestTheServerRefusesWhatItCannotRead(t *testing.T) {
	for _, test := range []struct {
		method, path, body string
		status             int
	}{
		{"GET", "/filter", "", 405},
		{"POST", "/bind", "{}", 404},
		{"POST", "/filter", "nonsense", 400},
		{"POST", "/filter", "{}", 400},
		{"POST", "/prioritize", `{"NodeNames":["a"]}`, 400},
		{"POST", "/preempt", `{"NodeNameToVictims":{"a":null}}`, 400},
		{"POST", "/filter", `{"Pod":{"metadata":{"name":"poison"}}}`, 500},
	} {
		w := httptest.NewRecorder()
		extender.NewHandler(opinion).ServeHTTP(w, httptest.NewRequest(test.method, test.path, strings.NewReader(test.body)))
		if w.Code != test.status {
			t.Errorf("%s %s %s: status %d, expected %d", test.method, test.path, test.body, w.Code, test.status)
		}
	}
}

// labelFilter is a profile that rejects nodes by a label and scores the others 40.
type labelFilter struct{ framework.Plugin }

func (labelFilter) Name() string { return "labelFilter" }

func (labelFilter) Filter(c *framework.Cycle) framework.Status {
	for _, row := range c.Feasible.Append(nil) {
		if strings.HasPrefix(c.Table.Node(row).Name.Value(), "bad") {
			c.Reject(row, 1, true)
		}
	}
	return framework.Status{}
}

func (labelFilter) Reasons(*nodetable.Pod, uint32) []string { return []string{"this", "that"} }

func (labelFilter) Score(_ *framework.Cycle, _ []nodetable.Row, scores []int64) framework.Status {
	for i := range scores {
		scores[i] = 40
	}
	return framework.Status{}
}

func (labelFilter) Less(framework.Queued, framework.Queued) bool { return false }

func (labelFilter) Bind(context.Context, framework.Assignment) framework.Status {
	return framework.Status{}
}

func TestAnEvaluatorRunsTheFiltersAndScoresOfAProfile(t *testing.T) {
	cluster := plugintest.New(t, node("a"), node("bad"), node("b"))
	var plan framework.Plan
	for _, point := range []framework.Point{framework.QueueSort, framework.Filter, framework.Score, framework.Bind} {
		plan[point] = []framework.Enabled{{Plugin: labelFilter{}}}
	}
	runner, err := framework.New("", &plan)
	if err != nil {
		t.Fatal(err)
	}
	evaluator := extender.NewEvaluator(cluster.Table, runner)
	v, err := evaluator.Evaluate(time.Time{}, pod("p"), []string{"a", "bad", "unknown"})
	if got := fmt.Sprint(v, err); got != "{map[bad:{this, that true}] map[a:40]} <nil>" {
		t.Errorf("result %s", got)
	}
}

func TestOurServerAndOurClientUnderstandEachOther(t *testing.T) {
	for _, cached := range []bool{true, false} {
		server := httptest.NewServer(extender.NewHandler(opinion))
		e := client(t, server.URL, func(cfg *config.Extender) {
			cfg.URLPrefix, cfg.NodeCacheCapable = server.URL, cached
		})
		cluster := plugintest.New(t, node("good"), node("bad"), node("full"), node("unknown"))
		v := cluster.Evaluate(e, cluster.Digest(pod("p")))
		if !v.Status.OK() || !maps.Equal(v.Rejected, map[string]string{"bad": "never: short of memory", "full": "full"}) || !maps.Equal(v.Scores, map[string]int64{"good": 70, "unknown": 100}) {
			t.Errorf("status %s, rejected %v, scores %v", v.Status.Message(), v.Rejected, v.Scores)
		}
		server.Close()
	}
}

// rule: S8.23
func TestALargeRequestIsRefused(t *testing.T) {
	handler := extender.NewHandler(opinion)
	for name, length := range map[string]int64{"its length is known": 80 << 20, "its length is not known": -1} {
		request := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/filter", io.MultiReader(strings.NewReader(`{"Pod":"`), endless('x')))
		request.ContentLength = length
		response := httptest.NewRecorder()
		if handler.ServeHTTP(response, request); response.Code != http.StatusRequestEntityTooLarge {
			t.Errorf("%s: status %d", name, response.Code)
		}
	}
}

func TestWhatIsDecodedOfARequestIsBounded(t *testing.T) {
	many := func(before, one string, n int, after string) string {
		return before + strings.TrimSuffix(strings.Repeat(one+",", n), ",") + after
	}
	for name, c := range map[string]struct {
		verb, body string
		status     int
		want       string
	}{
		"containers":        {"filter", many(`{"Pod":{"spec":{"containers":[`, "{}", 2<<20, "]}}}"), 413, "more than"},
		"fewer containers":  {"filter", many(`{"Pod":{"spec":{"containers":[`, "{}", 20_000, "]}}}"), 413, "the pod has 20003 objects and arrays"},
		"a large pod":       {"filter", `{"Pod":{"metadata":{"name":"` + strings.Repeat("x", 2<<20) + `"}}}`, 413, "the pod has 2097176 bytes"},
		"names":             {"filter", many(`{"Pod":{},"NodeNames":[`, `""`, 100_001, "]}"), 413, "the request has 100001 nodes"},
		"nodes":             {"prioritize", many(`{"Pod":{},"Nodes":{"Items":[`, "{}", 100_001, "]}}"), 413, "the request has 100001 nodes"},
		"victims":           {"preempt", many(`{"Pod":{},"NodeNameToVictims":{`, `"":{}`, 100_001, "}}"), 413, "the request has 100001 nodes"},
		"victims by uid":    {"preempt", many(`{"Pod":{},"NodeNameToMetaVictims":{`, `"":{}`, 100_001, "}}"), 413, "the request has 100001 nodes"},
		"all of it":         {"filter", many(`{"Pod":{},"Other":[`, `[]`, 2<<20, "]}"), 413, "it has 2097155 objects and arrays"},
		"within the bounds": {"filter", many(`{"Pod":{"spec":{"containers":[`, "{}", 19_997, `]}},"NodeNames":["{[\",{"]}`), 200, ""},
	} {
		w := httptest.NewRecorder()
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		extender.NewHandler(opinion).ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/"+c.verb, strings.NewReader(c.body)))
		runtime.ReadMemStats(&after)
		if w.Code != c.status || !strings.Contains(w.Body.String(), c.want) {
			t.Errorf("%s: %d %.100s, want %d with %q", name, w.Code, w.Body, c.status, c.want)
		}
		if took := (after.TotalAlloc - before.TotalAlloc) >> 20; took > 128 {
			t.Errorf("%s: %d MiB", name, took)
		}
	}
}

// endless is a reader of one character.
type endless byte

func (e endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = byte(e)
	}
	return len(p), nil
}
