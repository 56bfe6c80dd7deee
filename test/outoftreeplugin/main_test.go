package main

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/evictd/evictd/scheduleradapter"
)

// simulate runs the command with manifests and returns its output and the recorded
// calls.
func simulate(t *testing.T, config, manifests string, flags ...string) (code int, out, errs string, notes []string) {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{"config.yaml": config, "cluster.yaml": manifests} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	var stdout, stderr bytes.Buffer
	notebook := &notebook{}
	root := command(notebook)
	root.SetOut(&stdout)
	root.SetErr(&stderr)
	args := append([]string{"simulate", "--config", filepath.Join(dir, "config.yaml"), "-o", "json"}, flags...)
	code = scheduleradapter.Execute(t.Context(), root, append(args, filepath.Join(dir, "cluster.yaml")))
	return code, stdout.String(), stderr.String(), notebook.read()
}

const header = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"

// everywhereAlone has Everywhere as the QueueSort plugin, with node n2 preferred.
const everywhereAlone = header + `
profiles:
- plugins:
    multiPoint:
      enabled: [{name: Everywhere}]
      disabled: [{name: PrioritySort}]
    bind:
      enabled: [{name: Everywhere}, {name: DefaultBinder}]
  pluginConfig:
  - name: Everywhere
    args: {prefer: n2}
`

func node(name string) string {
	return "---\napiVersion: v1\nkind: Node\nmetadata: {name: " + name + "}\nstatus: {allocatable: {cpu: '4', memory: 8Gi, pods: '110'}}\n"
}

// pod is a pending pod of one cpu; more is added to its spec, annotations are YAML.
func pod(name, annotations, more string) string {
	return "---\napiVersion: v1\nkind: Pod\nmetadata: {name: " + name + ", uid: " + name + ", annotations: {" + annotations + "}}\n" +
		"spec:\n  containers: [{name: c, image: c, resources: {requests: {cpu: '1'}}}]\n" + more
}

// The contexts of an attempt end: else there are notes.
// rule: S8.20
func TestPluginIsCalledAtEveryPointInOrder(t *testing.T) {
	running := pod("old", "", "  nodeName: n1\n")
	code, out, errs, notes := simulate(t, everywhereAlone, node("n1")+node("n2")+running+pod("p", "", ""))
	if code != 0 || errs != "" {
		t.Fatalf("exit %d, %s", code, errs)
	}
	want := []string{
		"PreEnqueue p", "PreFilter p of 2 nodes",
		"Filter p on n1 with 1 pods, cpu 1000 of 4000", "Filter p on n2 with 0 pods, cpu 0 of 4000",
		"PreScore p of 2 nodes", "Score p on n1", "Score p on n2", "NormalizeScore p of 2 nodes",
		"Reserve p on n2 after FSR", "Permit p on n2 after FSRP", "PreBindPreFlight p on n2", "PreBind p on n2 after FSRPB",
		"Bind p on n2 after FSRPBb", "PostBind p on n2 after FSRPBbp",
	}
	slices.Sort(notes[2:4]) // nodes are filtered concurrently
	slices.Sort(notes[5:7])
	if !slices.Equal(notes, want) {
		t.Errorf("notes\n%s\nwant\n%s", strings.Join(notes, "\n"), strings.Join(want, "\n"))
	}
	for _, part := range []string{`"result":"scheduled","node":"n2"`, `"Everywhere":20,`, `"Everywhere":100,`} {
		if !strings.Contains(out, part) {
			t.Errorf("no %s in %s", part, out)
		}
	}
}

func TestWhatPluginsSayDecides(t *testing.T) {
	n2 := node("n1") + node("n2")
	for _, c := range []struct {
		name, manifests string
		out             []string // parts of the output
		notes           []string // in this order, with others between
	}{
		{"a gate keeps a pod out", n2 + pod("p", "PreEnqueue: 'Unschedulable:closed'", ""),
			[]string{`"result":"gated"`, `"message":"closed"`, `"gated":1`}, nil},
		{"the queue is sorted backwards", n2 + pod("a", "", "") + pod("b", "", ""), nil,
			[]string{"PreFilter b of 2 nodes", "PreFilter a of 2 nodes"}},
		{"PreFilter narrows", n2 + pod("p", "only: n1", ""),
			[]string{`"node":"n1","evaluatedNodes":1`}, []string{"Filter p on n1 with 0 pods, cpu 0 of 4000", "Reserve p on n1 after FR"}},
		{"PreFilter rejects for all nodes", n2 + pod("p", "PreFilter: 'Unschedulable:not today'", ""),
			[]string{`"0/2 nodes are available: not today. preemption: `, `"filtered":{}`},
			[]string{"PreFilter p of 2 nodes", "PostFilter p, 2 nodes unschedulable, n1: Unschedulable not today"}},
		{"a PreFilter that skips takes its Filter along", n2 + pod("p", "PreFilter: Skip, away: '*', Filter: Unschedulable", ""),
			[]string{`"result":"scheduled"`}, nil},
		{"Filter rejects a node", n2 + pod("p", "away: n2, Filter: 'Unschedulable:go away'", ""),
			[]string{`"node":"n1"`, `"filtered":{"n2":{"plugin":"Everywhere","reasons":["go away"],"resolvable":true}}`}, nil},
		{"Filter rejects without a remedy", n2 + pod("p", "away: n2, Filter: 'UnschedulableAndUnresolvable:go away'", ""),
			[]string{`"node":"n1"`, `"reasons":["go away"],"resolvable":false`}, nil},
		{"Filter fails", n2 + pod("p", "away: n1, Filter: 'Error:broken'", ""),
			[]string{`"result":"error"`, `running filter plugin \"Everywhere\": broken`, `"attempt":5`}, nil},
		{"a pod that is pending waits until it is woken, and does not back off", n2 + pod("p", "away: '*', Filter: 'Pending:quota', wakes: other", "") + pod("other", "", ""),
			[]string{`"result":"unschedulable"`, `0/2 nodes are available: 2 quota.`, `"at":"0s","pod":"default/p","profile":"default-scheduler","attempt":2`},
			[]string{"PreFilter p of 2 nodes", "PreFilter other of 2 nodes", "hint p of other", "PreFilter p of 2 nodes"}},
		{"PostFilter nominates", n2 + pod("p", "away: '*', Filter: Unschedulable, nominate: n1", ""),
			[]string{`"result":"nominated"`, `"nominatedNode":"n1"`}, []string{"PostFilter p, 2 nodes unschedulable, n1: Unschedulable "}},
		{"PreScore that skips takes its Score along", n2 + pod("p", "PreScore: Skip", ""), nil,
			[]string{"PreScore p of 2 nodes", "Permit p on"}},
		{"Score fails", n2 + pod("p", "Score: 'Unschedulable:broken'", ""),
			[]string{`"result":"error"`, `running score plugin \"Everywhere\": broken`}, nil},
		{"Reserve refuses", n2 + pod("p", "Reserve: 'Unschedulable:taken'", ""),
			[]string{`"result":"unschedulable"`, `1 taken.`}, []string{"Reserve p on n2 after FSR", "Unreserve p on n2 after FSRU"}},
		{"Permit refuses", n2 + pod("p", "Permit: 'Unschedulable:no'", ""),
			[]string{`"result":"unschedulable"`, `1 no.`}, []string{"Permit p on n2 after FSRP", "Unreserve p on n2 after FSRPU"}},
		{"a pod waits until another lets it go", n2 + pod("b", "Permit: Wait", "") + pod("a", "last: true", ""),
			[]string{`"pod":"default/b","profile":"default-scheduler","attempt":1,"result":"waiting"`, `"scheduled":2`, `"at":"0s","pod":"default/b","profile":"default-scheduler","attempt":1,"result":"scheduled"`},
			[]string{"a lets b go, which waits for [Everywhere]", "Bind b on"}},
		{"a pod waits until its time is over", n2 + pod("p", "Permit: Wait", ""),
			[]string{`"result":"waiting"`, `"at":"1m0s"`, `1 timeout.`}, []string{"Permit p on n2 after FSRP", "Unreserve p on n2 after FSRPU"}},
		{"a pod waits until it is rejected", n2 + pod("b", "Permit: Wait", "") + pod("a", "rejects: b", ""),
			[]string{`"result":"waiting"`, `1 not wanted.`}, []string{"a rejects b: true", "Unreserve b on"}},
		{"PreBindPreFlight skips", n2 + pod("p", "PreBindPreFlight: Skip", ""),
			[]string{`"scheduled":1`}, []string{"PreBindPreFlight p on n2", "Bind p on n2 after FSRPb"}},
		{"PreBind fails", n2 + pod("p", "PreBind: 'Error:no volume'", ""),
			[]string{`"result":"error"`, `running preBind plugin \"Everywhere\": no volume`}, []string{"PreBind p on n2 after FSRPB", "Unreserve p on n2 after FSRPBU"}},
		{"a binding is cancelled", n2 + pod("p", "cancel: true", ""),
			[]string{`"result":"error"`, `"message":"changed its mind"`}, []string{"PreBind p on n2 after FSRPB", "Unreserve p on n2 after FSRPBU"}},
		{"Bind refuses", n2 + pod("p", "Bind: 'Unschedulable:bound elsewhere'", ""),
			[]string{`"result":"unschedulable"`, `bound elsewhere`}, []string{"Bind p on n2 after FSRPBb", "Unreserve p on n2 after FSRPBbU"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			code, out, errs, notes := simulate(t, everywhereAlone, strings.ReplaceAll(c.manifests, ": true", ": 'true'"))
			if code != 0 || errs != "" {
				t.Fatalf("exit %d, %s", code, errs)
			}
			for _, part := range c.out {
				if !strings.Contains(out, part) {
					t.Errorf("no %s in\n%s", part, out)
				}
			}
			left := notes
			for _, want := range c.notes {
				i := slices.IndexFunc(left, func(line string) bool { return strings.HasPrefix(line, want) })
				if i < 0 {
					t.Fatalf("no %q, in order, in\n%s", want, strings.Join(notes, "\n"))
				}
				left = left[i+1:]
			}
		})
	}
}

// withCounting bounds the pods on a node to two, with a PostFilter plugin.
func withCounting(postFilter string) string {
	return header + `
profiles:
- plugins:
    multiPoint:
      enabled: [{name: Counting}]
    postFilter:
      disabled: [{name: '*'}]
      enabled: [{name: ` + postFilter + `}]
  pluginConfig:
  - name: Counting
    args: {limit: 2}
`
}

// important is a spec with a higher priority.
const important = "  priority: 10\n"

// rule: S8.20
func TestWhatIsTriedIsReplayedToPlugins(t *testing.T) {
	cluster := node("n1") + pod("a", "", "  nodeName: n1\n  terminationGracePeriodSeconds: 0\n  priority: 1\n") +
		pod("b", "", "  nodeName: n1\n  terminationGracePeriodSeconds: 0\n") + pod("p", "", important)
	code, out, errs, notes := simulate(t, withCounting("DefaultPreemption"), cluster)
	if code != 0 || errs != "" {
		t.Fatalf("exit %d, %s", code, errs)
	}
	for _, part := range []string{`"result":"nominated"`, `"nominatedNode":"n1","victims":["default/b"]`, `node(s) had pods enough`, `"scheduled":1`, `"preempted":1`} {
		if !strings.Contains(out, part) {
			t.Errorf("no %s in\n%s", part, out)
		}
	}
	// a fits, b does not; the node without b is not tried again.
	want := []string{"for p remove a from n1", "for p remove b from n1", "for p add a to n1", "for p add b to n1"}
	slices.Sort(notes[:2])
	if !slices.Equal(notes, want) {
		t.Errorf("replayed\n%s", strings.Join(notes, "\n"))
	}
}

func TestNominatedPodsAreReplayedToPlugins(t *testing.T) {
	promised := pod("promised", "", important) + "status: {nominatedNodeName: n1}\n"
	cluster := node("n1") + pod("a", "", "  nodeName: n1\n") + strings.Replace(promised, "spec:\n", "spec:\n  schedulerName: other\n", 1) + pod("p", "", "")
	code, out, errs, notes := simulate(t, withCounting("DefaultPreemption"), cluster)
	if code != 0 || !strings.Contains(errs, "no profile is named other") {
		t.Fatalf("exit %d, %s", code, errs)
	}
	if !strings.Contains(out, `node(s) had pods enough`) || len(notes) == 0 || notes[0] != "for p add promised to n1" {
		t.Errorf("%s after %q", out, notes)
	}
}

// Of a PodGroup, the plugin finds the pods before on their nodes, each once; also when it is tried
// again without the victims.
// rule: S8.49
func TestThePodsOfAPodGroupAreOnTheirNodes(t *testing.T) {
	group := "---\napiVersion: scheduling.k8s.io/v1beta1\nkind: PodGroup\nmetadata: {name: g}\nspec: {priority: 10, schedulingPolicy: {gang: {minCount: 2}}}\n"
	member := important + "  schedulingGroup: {podGroupName: g}\n"
	gang := node("n1") + group + pod("p", "", member) + pod("q", "", member)
	running := pod("low", "", "  nodeName: n1\n  terminationGracePeriodSeconds: 0\n")
	for name, cluster := range map[string]string{"fits": gang, "preempts": gang + running} {
		t.Run(name, func(t *testing.T) {
			code, out, errs, notes := simulate(t, withCounting("DefaultPreemption"), cluster, "--feature-gates", "GenericWorkload=true")
			if code != 0 || errs != "" || !strings.Contains(out, `"scheduled":2,"unschedulable":0`) {
				t.Fatalf("exit %d, %s\n%s\n%s", code, errs, out, strings.Join(notes, "\n"))
			}
		})
	}
}

func TestPluginMakesRoomByItself(t *testing.T) {
	cluster := node("n1") + node("n2") + node("n3") +
		pod("a1", "", "  nodeName: n1\n") + pod("b1", "", "  nodeName: n1\n"+important) +
		pod("a2", "", "  nodeName: n2\n"+important) + pod("b2", "", "  nodeName: n2\n"+important) +
		strings.Replace(pod("a3", "", "  nodeName: n3\n"+important), "cpu: '1'", "cpu: '4'", 1) + pod("b3", "", "  nodeName: n3\n") + pod("p", "", important)
	code, out, errs, notes := simulate(t, withCounting("Room"), cluster)
	if code != 0 || errs != "" {
		t.Fatalf("exit %d, %s", code, errs)
	}
	if !strings.Contains(out, `"result":"nominated"`) || !strings.Contains(out, `"nominatedNode":"n1"`) {
		t.Error(out)
	}
	for _, want := range []string{
		"for p remove a1 from n1", "without the others p on n1: Success ", "without the others p on n2: Unschedulable node(s) had pods enough",
		"without the others p on n3: Unschedulable Insufficient cpu",
		`room on [n1]; delete: Delete "http://missing.invalid/api/v1/namespaces/default/pods/victim": there is no API server in simulate`,
	} {
		if !slices.Contains(notes, want) {
			t.Errorf("no %q in\n%s", want, strings.Join(notes, "\n"))
		}
	}
}

func TestNothingInTheHandleIsSilentlyWithoutEffect(t *testing.T) {
	config := header + "profiles: [{plugins: {multiPoint: {enabled: [{name: Handy}]}}}]\n"
	code, out, errs, notes := simulate(t, config, node("n1")+node("n2")+pod("p", "", ""))
	if code != 0 || !strings.Contains(out, `"scheduled":1`) {
		t.Fatalf("exit %d, %s, %s", code, out, errs)
	}
	for _, want := range []string{
		`msg="plugin watches objects without an API server" kind=v1.Secret reason="there is no API server in simulate"`,
		`msg="event is not recorded" reason=Reserved action=Reserving note="by Handy" error="there is no API server in simulate"`,
	} {
		if !strings.Contains(errs, want) {
			t.Errorf("no %s in\n%s", want, errs)
		}
	}
	at := "n1"
	if strings.Contains(out, `"node":"n2"`) {
		at = "n2"
	}
	const missing = "there is no API server in simulate"
	want := []string{
		`client: Get "http://missing.invalid/api/v1/nodes": ` + missing,
		`config: Get "http://missing.invalid": ` + missing,
		"lister: <nil>", "csi: " + missing,
		"claims: claims and devices are not passed to out-of-tree plugins",
		"groups: pod groups are not supported", "group states: pod groups are not supported", "mutations: pod groups are not supported",
		"profile default-scheduler, extenders 0, signed false, claim in use false",
		"promised " + at + `: ""`, "with it 1 pods, without 0", "promised " + at + `: "other"`, "promised " + at + `: ""`,
		"score at once: RunPreScorePlugins was not called for these nodes with this state", "prescore: Success", "score: Success",
		"n1 has the sum of 4 plugins: true", "n2 has the sum of 4 plugins: true", "fits n1: Success", "fits n2: Success",
		"changed node: node n1 differs from the snapshot's: only its pods can be tried",
		"other pod: plugins can run other plugins only for the unchanged pod of the scheduling cycle",
		`unknown node: there is no node "nowhere"`, "no waiting pod: true false",
		"promised while binding: 0", "filter while binding: plugins can run other plugins only inside a scheduling cycle",
	}
	if !slices.Equal(notes, want) {
		t.Errorf("notes\n%s\nwant\n%s", strings.Join(notes, "\n"), strings.Join(want, "\n"))
	}
}

func TestPluginThatPanicsCostsThePodItsAttempt(t *testing.T) {
	config := strings.Replace(withCounting("DefaultPreemption"), "multiPoint:\n      enabled: [{name: Counting}]", "filter:\n      enabled: [{name: Counting}]", 1)
	code, out, errs, _ := simulate(t, config, node("n1")+pod("p", "", ""))
	if code != 0 || !strings.Contains(out, `running filter plugin \"Counting\": panic: not found`) || !strings.Contains(errs, "plugin panics") {
		t.Errorf("exit %d, %s, %s", code, out, errs)
	}
}

func TestFaultyConfigurationsNameTheirFields(t *testing.T) {
	for _, c := range []struct{ name, config, want string }{
		{"a point that the plugin does not implement", "profiles: [{plugins: {filter: {enabled: [{name: Room}]}, score: {enabled: [{name: Room}]}}}]\n",
			`profiles[0].plugins.filter.enabled[0]: Invalid value: "Room": the plugin does not extend filter`},
		{"another of the same profile", "profiles: [{plugins: {filter: {enabled: [{name: Room}]}, score: {enabled: [{name: Room}]}}}]\n",
			`profiles[0].plugins.score.enabled[0]: Invalid value: "Room": the plugin does not extend score`},
		{"an unknown plugin", "profiles: [{plugins: {filter: {enabled: [{name: Roon}]}}}]\n", `"Roon": there is no such plugin`},
		{"arguments that the plugin refuses", "profiles: [{plugins: {multiPoint: {enabled: [{name: Everywhere}]}, queueSort: {disabled: [{name: PrioritySort}]}}, pluginConfig: [{name: Everywhere, args: {prefer: 1}}]}]\n",
			"plugin Everywhere: json: cannot unmarshal number"},
		{"two that sort the queue", "profiles: [{plugins: {multiPoint: {enabled: [{name: Everywhere}]}}}]\n", "2 plugins sort the queue, not one"},
		{"profiles that sort differently", "profiles:\n- schedulerName: a\n- schedulerName: b\n  plugins: {multiPoint: {enabled: [{name: Everywhere}]}, queueSort: {disabled: [{name: PrioritySort}]}}\n",
			`profiles[1].plugins.queueSort: Invalid value: "Everywhere": must be the same for all profiles`},
	} {
		t.Run(c.name, func(t *testing.T) {
			code, out, errs, _ := simulate(t, header+c.config, node("n1"))
			if code != 2 || out != "" || !strings.Contains(errs, c.want) {
				t.Errorf("exit %d, %q, %q, want %q", code, out, errs, c.want)
			}
		})
	}
}
