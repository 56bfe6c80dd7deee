package scheduleradapter

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	wire "k8s.io/kube-scheduler/extender/v1"
)

// attempts are the lines of a simulation without the summary.
func attempts(t *testing.T, cfg, cluster string) (lines []map[string]any) {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{"config.yaml": cfg, "cluster.yaml": cluster} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	code, out, errs := execute(t.Context(), "simulate", "-o", "json", "--config", filepath.Join(dir, "config.yaml"), filepath.Join(dir, "cluster.yaml"))
	if code != 0 {
		t.Fatalf("exit %d: %s", code, errs)
	}
	for line := range strings.Lines(out) {
		fields := map[string]any{}
		if err := json.Unmarshal([]byte(line), &fields); err != nil {
			t.Fatal(err)
		}
		if fields["pod"] != nil {
			lines = append(lines, fields)
		}
	}
	return lines
}

const extended = `apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
extenders:
- urlPrefix: %s
  filterVerb: filter
  prioritizeVerb: prioritize
  preemptVerb: preempt
  bindVerb: bind
  weight: 2
  nodeCacheCapable: true
`

// rule: S8.1
func TestAnExtenderTakesPartInASimulation(t *testing.T) {
	bound := false
	mux := http.NewServeMux()
	mux.HandleFunc("POST /filter", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"NodeNames":["a","b"],"FailedNodes":{"c":"no gpu left"}}`)
	})
	mux.HandleFunc("POST /prioritize", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `[{"Host":"b","Score":10}]`)
	})
	mux.HandleFunc("POST /bind", func(http.ResponseWriter, *http.Request) { bound = true })
	server := httptest.NewServer(mux)
	defer server.Close()
	lines := attempts(t, fmt.Sprintf(extended, server.URL), nodes("a", "b", "c")+waiting("p", 0))
	if len(lines) != 1 || lines[0]["node"] != "b" {
		t.Fatalf("attempts %v", lines)
	}
	name := "extender/" + server.URL
	rejected := lines[0]["filtered"].(map[string]any)["c"].(map[string]any)
	if rejected["plugin"] != name || fmt.Sprint(rejected["reasons"]) != "[no gpu left]" || rejected["resolvable"] != true {
		t.Errorf("c: %v", rejected)
	}
	scores := lines[0]["scores"].(map[string]any)
	if got := scores["b"].(map[string]any)["plugins"].(map[string]any)[name]; got != 200.0 {
		t.Errorf("b scores %v, expected 10 times 10 times the weight 2", got)
	}
	if bound {
		t.Error("a simulation has bound")
	}
}

// rule: S8.7
func TestAnExtenderChoosesVictimsInASimulation(t *testing.T) {
	answer := ""
	mux := http.NewServeMux()
	mux.HandleFunc("POST /filter", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{"NodeNames":["a"]}`) })
	mux.HandleFunc("POST /preempt", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, answer)
	})
	server := httptest.NewServer(mux)
	defer server.Close()
	cfg := strings.Replace(fmt.Sprintf(extended, server.URL), "  filterVerb: filter\n", "", 1)
	cluster := nodes("a", "b") + running("v", "a") + running("w", "b") + waiting("p", 100)
	for _, test := range []struct{ answer, victim, message string }{
		{`{"NodeNameToMetaVictims":{"a":{"Pods":[{"UID":"v"}]}}}`, "[default/v]", ""},
		{`{"NodeNameToMetaVictims":{"b":{"Pods":[{"UID":"w"}]}}}`, "[default/w]", ""},
		{`{}`, "[]", "preemption: no candidate node for preemption"},
	} {
		answer = test.answer
		lines := attempts(t, cfg, cluster)
		if got := fmt.Sprint(lines[0]["victims"]); got != test.victim || !strings.Contains(lines[0]["message"].(string), test.message) {
			t.Errorf("answer %s: victims %s, message %s; expected %s, %s", test.answer, got, lines[0]["message"], test.victim, test.message)
		}
	}
}

func nodes(names ...string) (text string) {
	for _, name := range names {
		text += fmt.Sprintf("---\napiVersion: v1\nkind: Node\nmetadata: {name: %s}\nstatus: {capacity: {cpu: 1, memory: 1Gi, pods: 10}}\n", name)
	}
	return text
}

func running(name, node string) string {
	return fmt.Sprintf("---\napiVersion: v1\nkind: Pod\nmetadata: {name: %s, uid: %s}\nspec: {nodeName: %s, containers: [{name: c, image: i, resources: {requests: {cpu: 1}}}]}\n", name, name, node)
}

func waiting(name string, priority int) string {
	return fmt.Sprintf("---\napiVersion: v1\nkind: Pod\nmetadata: {name: %s}\nspec: {priority: %d, containers: [{name: c, image: i, resources: {requests: {cpu: 1}}}]}\n", name, priority)
}

// rule: S8.25
func TestAnExtenderGetsWholePods(t *testing.T) {
	c := newLiveCluster(t)
	c.node("a")
	received := make(chan v1.Pod, 1)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var args wire.ExtenderArgs
		if err := json.NewDecoder(r.Body).Decode(&args); err != nil {
			t.Error(err)
		}
		select {
		case received <- *args.Pod:
		default:
		}
		fmt.Fprint(w, `{"NodeNames":["a"]}`)
	}))
	defer server.Close()
	file := filepath.Join(t.TempDir(), "config.yaml")
	text := fmt.Sprintf("apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nextenders: [{urlPrefix: %q, filterVerb: filter, nodeCacheCapable: true}]\n", server.URL)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	c.runs("--leader-elect=false", "--config", file)
	c.pod("p", func(p *v1.Pod) {
		p.Spec.Containers[0].Args, p.Spec.Containers[0].Env = []string{"serve"}, []v1.EnvVar{{Name: "MODE", Value: "fast"}}
	})
	c.bound("p")
	pod := <-received
	if container := pod.Spec.Containers[0]; len(container.Args) != 1 || len(container.Env) != 1 {
		t.Errorf("the extender received %+v", container)
	}
}
