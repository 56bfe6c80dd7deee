package extender_test

import (
	"bytes"
	"crypto/tls"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	configv1 "k8s.io/kube-scheduler/config/v1"
	wire "k8s.io/kube-scheduler/extender/v1"

	"github.com/evictd/evictd/internal/wait"
	"github.com/evictd/evictd/scheduleradapter/config"
	"github.com/evictd/evictd/scheduleradapter/extender"
	"github.com/evictd/evictd/scheduleradapter/framework"
	"github.com/evictd/evictd/scheduleradapter/nodetable"
	"github.com/evictd/evictd/scheduleradapter/plugins/plugintest"
)

func node(name string) *v1.Node {
	return &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"is": name}}}
}

func pod(name string) *v1.Pod {
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name)}}
}

// service answers each verb with JSON, fixed or computed from the request.
type service map[string]func(body []byte) string

func says(answer string) func([]byte) string { return func([]byte) string { return answer } }

func (s service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	answer := s[strings.TrimPrefix(r.URL.Path, "/base/")]
	if err != nil || answer == nil || r.Method != http.MethodPost || r.Header.Get("Content-Type") != "application/json" {
		http.Error(w, "what?", http.StatusBadRequest)
		return
	}
	fmt.Fprint(w, answer(body))
}

// serve starts a service and makes its Extender.
func serve(t *testing.T, handler http.Handler, change func(*config.Extender)) *extender.Extender {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	return client(t, server.URL, change)
}

func client(t *testing.T, url string, change func(*config.Extender)) *extender.Extender {
	t.Helper()
	cfg := config.Extender{
		URLPrefix: url + "/base/", FilterVerb: "filter", PrioritizeVerb: "prioritize", BindVerb: "bind", PreemptVerb: "preempt",
		Weight: 1, NodeCacheCapable: true, HTTPTimeout: wait.Limit,
	}
	if change != nil {
		change(&cfg)
	}
	all, err := extender.NewAll([]config.Extender{cfg}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return all[0]
}

func ignorable(cfg *config.Extender) { cfg.Ignorable = true }

func withNodes(cfg *config.Extender) { cfg.NodeCacheCapable = false }

// rule: S8.1
// rule: S8.4
func TestAServiceFiltersAndScores(t *testing.T) {
	for _, test := range []struct {
		name     string
		change   func(*config.Extender)
		filter   string
		scores   string
		rejected map[string]string
		total    map[string]int64
	}{
		{
			"by name", nil, `{"NodeNames":["a","b"],"FailedNodes":{"c":"no gpu left"},"FailedAndUnresolvableNodes":{"d":"no gpu"}}`, `[{"Host":"a","Score":10},{"Host":"b","Score":3}]`,
			map[string]string{"c": "no gpu left", "d": "never: no gpu"}, map[string]int64{"a": 100, "b": 30},
		},
		{
			"by object", withNodes, `{"Nodes":{"items":[{"metadata":{"name":"a"}},{"metadata":{"name":"d"}}]},"FailedNodes":{"b":"x","c":"x"}}`, `[{"Host":"a","Score":1}]`,
			map[string]string{"b": "x", "c": "x"}, map[string]int64{"a": 10, "d": 0},
		},
		{
			"what is unresolvable and failed is unresolvable", nil, `{"NodeNames":["a","b","c"],"FailedNodes":{"d":"x"},"FailedAndUnresolvableNodes":{"d":"y"}}`, `[]`,
			map[string]string{"d": "never: y"}, map[string]int64{"a": 0, "b": 0, "c": 0},
		},
		{
			"a host that was not asked about is no matter", nil, `{"NodeNames":["a","b","c","d"],"FailedNodes":{"absent":"x"}}`, `[{"Host":"absent","Score":5},{"Host":"a","Score":5}]`,
			nil, map[string]int64{"a": 50, "b": 0, "c": 0, "d": 0},
		},
		{
			"scores out of range count for nothing", nil, `{"NodeNames":["a","b","c","d"]}`, `[{"Host":"a","Score":5},{"Host":"b","Score":1000}]`,
			nil, map[string]int64{"a": 0, "b": 0, "c": 0, "d": 0},
		},
		{
			"no scores at all", nil, `{"NodeNames":["a","b","c","d"]}`, `broken`,
			nil, map[string]int64{"a": 0, "b": 0, "c": 0, "d": 0},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			e := serve(t, service{"filter": says(test.filter), "prioritize": says(test.scores)}, test.change)
			cluster := plugintest.New(t, node("a"), node("b"), node("c"), node("d"))
			v := cluster.Evaluate(e, cluster.Digest(pod("p")))
			if !v.Status.OK() || !maps.Equal(v.Rejected, test.rejected) || !maps.Equal(v.Scores, test.total) {
				t.Errorf("status %q, rejected %v, scores %v; expected %v, %v", v.Status.Message(), v.Rejected, v.Scores, test.rejected, test.total)
			}
		})
	}
}

func TestANodeOfWhichNothingIsSaidIsFilteredOut(t *testing.T) {
	e := serve(t, service{"filter": says(`{}`)}, nil)
	cluster := plugintest.New(t, node("a"))
	v := cluster.Evaluate(e, cluster.Digest(pod("p")))
	if want := "never: node(s) were filtered out by " + e.Name(); v.Rejected["a"] != want {
		t.Errorf("rejected %v, expected %s", v.Rejected, want)
	}
	if names, _ := v.Cycle.Rejectors(); !slices.Equal(names, []string{e.Name()}) {
		t.Errorf("rejectors %v", names)
	}
}

func TestTheExtenderReceivesThePodAndTheFeasibleNodes(t *testing.T) {
	for _, cached := range []bool{true, false} {
		var asked wire.ExtenderArgs
		echo := func(body []byte) string {
			asked = wire.ExtenderArgs{}
			if err := json.Unmarshal(body, &asked); err != nil {
				t.Error(err)
			}
			return `{"NodeNames":["a"],"Nodes":{"items":[{"metadata":{"name":"a"}}]}}`
		}
		e := serve(t, service{"filter": echo, "prioritize": says(`[]`)}, func(cfg *config.Extender) { cfg.NodeCacheCapable = cached })
		cluster := plugintest.New(t, node("a"))
		cluster.Evaluate(e, cluster.Digest(pod("p")))
		switch {
		case asked.Pod == nil || asked.Pod.Name != "p":
			t.Errorf("asked about %+v", asked.Pod)
		case cached && (asked.Nodes != nil || asked.NodeNames == nil || !slices.Equal(*asked.NodeNames, []string{"a"})):
			t.Errorf("names: asked %+v", asked)
		case !cached && (asked.NodeNames != nil || asked.Nodes == nil || len(asked.Nodes.Items) != 1 || asked.Nodes.Items[0].Labels["is"] != "a"):
			t.Errorf("objects: asked %+v", asked)
		}
	}
}

// rule: S8.2
// rule: S8.3
func TestAFaultFailsTheAttemptUnlessIgnorable(t *testing.T) {
	breaksOff := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "1000")
		fmt.Fprint(w, `{"NodeNames":["a"`)
		if err := http.NewResponseController(w).Flush(); err == nil {
			panic(http.ErrAbortHandler)
		}
	})
	delays := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if _, err := io.Copy(io.Discard, r.Body); err == nil {
			<-r.Context().Done()
		}
	})
	hasty := func(cfg *config.Extender) { cfg.HTTPTimeout = 50 * time.Millisecond }
	for _, test := range []struct {
		name    string
		handler http.Handler
		change  func(*config.Extender)
		message string
	}{
		{"refuses", http.NotFoundHandler(), nil, "status 404 Not Found; expected 200"},
		{"redirects", http.RedirectHandler("/elsewhere", http.StatusFound), nil, "status 302 Found; expected 200"},
		{"accepts only", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusAccepted) }), nil, "status 202 Accepted; expected 200"},
		{"breaks off", breaksOff, nil, "read response"},
		{"delays", delays, hasty, "Client.Timeout exceeded"},
		{"talks nonsense", service{"filter": says("<html>")}, nil, "read response"},
		{"says nothing", service{"filter": says("")}, nil, "EOF"},
		{"names an error", service{"filter": says(`{"Error":"out of order"}`)}, nil, "out of order"},
		{"names an unknown node", service{"filter": says(`{"NodeNames":["a","absent"]}`)}, nil, `claims a filtered node "absent" which is not found in the input node list`},
		{"sends an unknown node", service{"filter": says(`{"Nodes":{"items":[{"metadata":{"name":"absent"}}]}}`)}, withNodes, `claims a filtered node "absent"`},
	} {
		t.Run(test.name, func(t *testing.T) {
			for _, ignored := range []bool{false, true} {
				e := serve(t, test.handler, func(cfg *config.Extender) {
					if test.change != nil {
						test.change(cfg)
					}
					cfg.Ignorable, cfg.PrioritizeVerb = ignored, "nothing"
				})
				cluster := plugintest.New(t, node("a"), node("b"))
				v := cluster.Evaluate(e, cluster.Digest(pod("p")))
				switch {
				case ignored && (!v.Status.OK() || len(v.Rejected) > 0):
					t.Errorf("ignorable: status %q, rejected %v", v.Status.Message(), v.Rejected)
				case !ignored && (v.Status.Code != framework.Error || !strings.Contains(v.Status.Message(), test.message)):
					t.Errorf("status %q; expected an error with %q", v.Status.Message(), test.message)
				}
			}
		})
	}
}

func TestFaultsInARowAreLoggedOnce(t *testing.T) {
	var log bytes.Buffer
	answer := "nonsense"
	server := httptest.NewServer(service{"filter": func([]byte) string { return answer }, "prioritize": says("[]")})
	defer server.Close()
	all, err := extender.NewAll([]config.Extender{{URLPrefix: server.URL + "/base", FilterVerb: "filter", PrioritizeVerb: "prioritize", Ignorable: true, NodeCacheCapable: true}}, slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	cluster := plugintest.New(t, node("a"))
	ask := func() { cluster.Evaluate(all[0], cluster.Digest(pod("p"))) }
	for range 3 {
		all[0].PreFilter(&framework.Cycle{Pod: cluster.Digest(pod("p"))})
		ask()
	}
	answer = `{"NodeNames":["a"]}`
	ask()
	ask()
	if lines := strings.Count(log.String(), "\n"); lines != 2 || !strings.Contains(log.String(), "extender responds again") {
		t.Errorf("log:\n%s\nexpected one line of the fault and one of its end", &log)
	}
}

// rule: S8.5
func TestAServiceManagesResources(t *testing.T) {
	e := serve(t, http.NotFoundHandler(), func(cfg *config.Extender) { cfg.ManagedResources = []string{"example.com/gpu"} })
	cluster := plugintest.New(t, node("a"))
	if v := cluster.Evaluate(e, cluster.Digest(pod("p"))); !v.Status.OK() || v.Scores != nil {
		t.Errorf("asked about a pod without the resource: %q, %v", v.Status.Message(), v.Scores)
	}
	if s := e.Bind(t.Context(), framework.Assignment{Pod: cluster.Digest(pod("p"))}); s.Code != framework.Skip {
		t.Errorf("bind: %v, expected skip", s)
	}
	one := v1.ResourceList{"example.com/gpu": resource.MustParse("1")}
	for _, spec := range []v1.PodSpec{
		{Containers: []v1.Container{{}, {Resources: v1.ResourceRequirements{Requests: one}}}},
		{Containers: []v1.Container{{Resources: v1.ResourceRequirements{Limits: one}}}},
		{InitContainers: []v1.Container{{Resources: v1.ResourceRequirements{Requests: one}}}},
	} {
		p := pod("p")
		p.Spec = spec
		if v := cluster.Evaluate(e, cluster.Digest(p)); v.Status.Code != framework.Error {
			t.Errorf("not asked about %+v", spec)
		}
	}
}

// rule: S8.6
func TestAServiceBinds(t *testing.T) {
	var asked wire.ExtenderBindingArgs
	answer := `{}`
	e := serve(t, service{"bind": func(body []byte) string {
		if err := json.Unmarshal(body, &asked); err != nil {
			t.Error(err)
		}
		return answer
	}}, nil)
	cluster := plugintest.New(t, node("a"))
	a := framework.Assignment{Pod: cluster.Digest(pod("p")), Node: cluster.Table.Node(cluster.Table.Row(nodetable.Intern("a")))}
	if s := e.Bind(t.Context(), a); !s.OK() {
		t.Errorf("bind: %s", s.Message())
	}
	if want := (wire.ExtenderBindingArgs{PodName: "p", PodNamespace: "default", PodUID: "p", Node: "a"}); asked != want {
		t.Errorf("asked %+v, expected %+v", asked, want)
	}
	answer = `{"Error":"taken"}`
	if s := e.Bind(t.Context(), a); s.Code != framework.Error || !strings.HasSuffix(s.Message(), "bind: taken") {
		t.Errorf("bind: %v", s)
	}
}

// rule: S8.7
func TestAServiceHasASayInPreemption(t *testing.T) {
	for _, test := range []struct {
		name     string
		change   func(*config.Extender)
		answer   string
		expected string // node: victims (violations), or the error
	}{
		{"agrees", nil, `{"NodeNameToMetaVictims":{"a":{"Pods":[{"UID":"a1"},{"UID":"a2"}],"NumPDBViolations":1},"b":{"Pods":[{"UID":"b1"}]}}}`, "a: a1 a2 (1), b: b1 (0)"},
		{"drops a node and a victim", nil, `{"NodeNameToMetaVictims":{"a":{"Pods":[{"UID":"a2"}]}}}`, "a: a2 (0)"},
		{"names another victim of the node", nil, `{"NodeNameToMetaVictims":{"b":{"Pods":[{"UID":"b2"}]}}}`, "b: b2 (0)"},
		{"agrees with none", nil, `{}`, ""},
		{"names an unknown node", nil, `{"NodeNameToMetaVictims":{"absent":{"Pods":[{"UID":"a1"}]}}}`, "names 1 nodes for preemption that were not in the input"},
		{"names an unknown pod", nil, `{"NodeNameToMetaVictims":{"a":{"Pods":[{"UID":"b1"}]}}}`, `claims to preempt pod (UID: b1) on node "a", but the pod is not found on that node`},
		{"names nothing for a pod", nil, `{"NodeNameToMetaVictims":{"a":{"Pods":[null]}}}`, "is not found on that node"},
		{"names no victim", nil, `{"NodeNameToMetaVictims":{"a":{"Pods":[]}}}`, `expected at least one victim pod on node "a"`},
		{"names no victim and is ignorable", ignorable, `{"NodeNameToMetaVictims":{"a":null,"b":{"Pods":[{"UID":"b1"}]}}}`, "b: b1 (0)"},
		{"fails and is ignorable", ignorable, `nonsense`, "a: a1 a2 (1), b: b1 (0)"},
	} {
		t.Run(test.name, func(t *testing.T) {
			for _, cached := range []bool{true, false} {
				var asked wire.ExtenderPreemptionArgs
				e := serve(t, service{"preempt": func(body []byte) string {
					if err := json.Unmarshal(body, &asked); err != nil {
						t.Error(err)
					}
					return test.answer
				}}, func(cfg *config.Extender) {
					if test.change != nil {
						test.change(cfg)
					}
					cfg.NodeCacheCapable = cached
				})
				got := preempt(t, e)
				if got != test.expected && (test.expected == "" || !strings.Contains(got, test.expected)) {
					t.Errorf("candidates %q, expected %q", got, test.expected)
				}
				if len(asked.NodeNameToMetaVictims) != 2 && cached || len(asked.NodeNameToVictims) != 2 && !cached {
					t.Errorf("asked %+v", asked)
				}
			}
		})
	}
}

// preempt calls an extender with two candidates and prints the result.
func preempt(t *testing.T, e *extender.Extender) string {
	t.Helper()
	cluster := plugintest.New(t, node("a"), node("b"))
	row := func(name string) nodetable.Row { return cluster.Table.Row(nodetable.Intern(name)) }
	for _, name := range []string{"a1", "a2", "b1", "b2"} {
		cluster.Place(pod(name), name[:1])
	}
	find := func(uid types.UID) *nodetable.Pod { p, _ := cluster.Table.Find(uid); return p }
	left, err := e.Preempt(&framework.Cycle{Table: cluster.Table, Pod: cluster.Digest(pod("p"))}, []framework.Candidate{
		{Row: row("a"), Victims: []*nodetable.Pod{find("a1"), find("a2")}, Violations: 1}, {Row: row("b"), Victims: []*nodetable.Pod{find("b1")}},
	})
	if err != nil {
		return err.Error()
	}
	var texts []string
	for _, candidate := range left {
		var text strings.Builder
		text.WriteString(cluster.Table.Node(candidate.Row).Name.Value() + ":")
		for _, victim := range candidate.Victims {
			text.WriteString(" " + victim.Object.Name)
		}
		texts = append(texts, fmt.Sprintf("%s (%d)", text.String(), candidate.Violations))
	}
	return strings.Join(texts, ", ")
}

// rule: S8.8
func TestAServerIsVerifiedUnlessTheFileSaysOtherwise(t *testing.T) {
	server := httptest.NewUnstartedServer(service{"filter": says(`{"NodeNames":["a"]}`), "prioritize": says("[]")})
	server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	server.StartTLS()
	defer server.Close()
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	file := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(file, ca, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name  string
		tls   configv1.ExtenderTLSConfig
		fault string
	}{
		{"the system's certificates do not know it", configv1.ExtenderTLSConfig{}, "certificate"},
		{"a CA in the configuration", configv1.ExtenderTLSConfig{CAData: ca}, ""},
		{"a CA in a file", configv1.ExtenderTLSConfig{CAFile: file}, ""},
		{"another name", configv1.ExtenderTLSConfig{CAData: ca, ServerName: "example.com"}, ""},
		{"a name that it does not have", configv1.ExtenderTLSConfig{CAData: ca, ServerName: "elsewhere.test"}, "certificate"},
		{"insecure", configv1.ExtenderTLSConfig{Insecure: true}, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			e := client(t, server.URL, func(cfg *config.Extender) { cfg.TLS = test.tls })
			cluster := plugintest.New(t, node("a"))
			v := cluster.Evaluate(e, cluster.Digest(pod("p")))
			if v.Status.OK() != (test.fault == "") || !strings.Contains(v.Status.Message(), test.fault) {
				t.Errorf("status %q, expected %q", v.Status.Message(), test.fault)
			}
		})
	}
}

func TestAClientCertificateIsShown(t *testing.T) {
	server := httptest.NewUnstartedServer(service{"filter": says(`{"NodeNames":["a"]}`), "prioritize": says("[]")})
	server.TLS = &tls.Config{ClientAuth: tls.RequireAnyClientCert}
	server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	server.StartTLS()
	defer server.Close()
	cert, key := pair(t)
	ask := func(change func(*configv1.ExtenderTLSConfig)) framework.Status {
		e := client(t, server.URL, func(cfg *config.Extender) {
			cfg.TLS.Insecure = true
			change(&cfg.TLS)
		})
		cluster := plugintest.New(t, node("a"))
		return cluster.Evaluate(e, cluster.Digest(pod("p"))).Status
	}
	if s := ask(func(cfg *configv1.ExtenderTLSConfig) { cfg.CertData, cfg.KeyData = cert, key }); !s.OK() {
		t.Errorf("with a certificate: %s", s.Message())
	}
	if s := ask(func(*configv1.ExtenderTLSConfig) {}); s.Code != framework.Error {
		t.Errorf("without one: %v", s)
	}
}

func TestEveryFaultOfTheConfigurationIsNamed(t *testing.T) {
	_, err := extender.NewAll([]config.Extender{
		{Path: "extenders[0]", URLPrefix: "127.0.0.1:80"},
		{Path: "extenders[1]", URLPrefix: "https://a", TLS: configv1.ExtenderTLSConfig{CAFile: "/nowhere/ca"}},
		{Path: "extenders[2]", URLPrefix: "https://b", TLS: configv1.ExtenderTLSConfig{CAData: []byte("no PEM")}},
		{Path: "extenders[3]", URLPrefix: "https://c", TLS: configv1.ExtenderTLSConfig{CertData: []byte("no PEM"), KeyData: []byte("no PEM")}},
	}, slog.New(slog.DiscardHandler))
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{`extenders[0].urlPrefix "127.0.0.1:80": expected a URL that begins with http:// or https://`, "extenders[1] (https://a): tlsConfig.caFile: open /nowhere/ca", "extenders[2] (https://b): tlsConfig: no certificate in caData", "extenders[3] (https://c): tlsConfig: client certificate"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, expected also %q", err, want)
		}
	}
}

func TestNamesDiffer(t *testing.T) {
	all, err := extender.NewAll([]config.Extender{{URLPrefix: "http://a"}, {URLPrefix: "http://a"}}, slog.New(slog.DiscardHandler))
	if err != nil || all[0].Name() != "extender/http://a" || all[1].Name() != "extender/http://a#2" {
		t.Errorf("names %v, %v", all, err)
	}
}

func TestAServiceThatIsNotThereIsAFault(t *testing.T) {
	e := client(t, "http://127.0.0.1:1", nil)
	cluster := plugintest.New(t, node("a"))
	if v := cluster.Evaluate(e, cluster.Digest(pod("p"))); v.Status.Code != framework.Error || !strings.Contains(v.Status.Message(), "connection refused") {
		t.Errorf("status %v", v.Status)
	}
}
