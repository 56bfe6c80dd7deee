package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/evictd/evictd/internal/cli"
	"github.com/evictd/evictd/internal/require"
)

// said is what a command line came to.
type said struct {
	code     int
	out, err string
}

// say runs one command line, as main does.
func say(t *testing.T, stdin string, args ...string) said {
	t.Helper()
	var out, errs bytes.Buffer
	code := execute(t.Context(), args, strings.NewReader(stdin), &out, &errs)
	return said{code, out.String(), errs.String()}
}

func execute(ctx context.Context, args []string, in io.Reader, out, errs io.Writer) int {
	root := newCommand()
	root.SetIn(in)
	root.SetOut(out)
	root.SetErr(errs)
	return cli.Execute(ctx, root, args)
}

// files writes the inputs of a test into a directory of its own and goes there.
func files(t *testing.T, contents map[string]string) {
	t.Helper()
	t.Chdir(t.TempDir())
	for name, text := range contents {
		require.NoError(t, os.WriteFile(name, []byte(text), 0o644))
	}
}

const (
	configHeader   = "apiVersion: evictd.io/v1alpha1\nkind: EvictdConfiguration\n"
	scenarioHeader = "apiVersion: evictd.io/v1alpha1\nkind: Scenario\n"
	scenario       = scenarioHeader + `
metadata: {name: %NAME%}
spec:
  config: {evictionHard: {memory.available: 1Gi}, mergeDefaultEvictionSettings: true}
  node: {capacity: {memory: 2Gi}}
  pods: [{metadata: {name: a}, spec: {containers: [{name: c}]}}]
  steps: [{at: 0s, signals: {memory.available: 500Mi}, usage: {default/a: {memory: 1Gi}}}]
`
	pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {containers: [{name: c, image: i}]}\n"
)

func named(name string) string { return strings.ReplaceAll(scenario, "%NAME%", name) }

func TestBadInputIsRefusedWithAClearErrorForEachFault(t *testing.T) {
	files(t, map[string]string{
		"kind.yaml":     "apiVersion: v1\nkind: Nope\n",
		"good.yaml":     configHeader,
		"bad.yaml":      configHeader + "evictionHard: {memory.available: 1Zi, x: 1Gi}\nstateDirectory: /\n",
		"big.yaml":      configHeader + "evictionHard: {memory.available: 2Gi}\nmergeDefaultEvictionSettings: true\n",
		"scenario.yaml": scenarioHeader + "spec: {node: {capacity: {memory: 2Gi}}, pods: [], steps: [{at: 0s, colour: red}, {at: soon}]}\n",
		"fine.yaml":     named("fine"),
		"pods.yaml":     pod + "---\napiVersion: v1\nkind: Pod\nmetadata: {name: b}\nspec: {containers: 3}\n---\nkind: Nope\n",
		"socket":        "",
	})
	virtual := []string{"run", "--dry-run", "--mode", "observe", "--node-memory", "1Gi", "--state-dir", "state", "--cri-endpoint", "none", "--status-address", "none"}
	for _, c := range []struct {
		args []string
		err  []string
	}{
		{[]string{"nope"}, []string{`unknown command "nope" for "evictd"; evictd --help lists the commands`}},
		{[]string{"statu"}, []string{`unknown command "statu" for "evictd"; evictd --help lists the commands`}},
		{[]string{"--nope"}, []string{`unknown flag: --nope; evictd --help lists the flags`}},

		{[]string{"simulate"}, []string{`requires at least 1 arg(s), only received 0; expected evictd simulate FILE... [flags]`}},
		{[]string{"simulate", "--nope"}, []string{`unknown flag: --nope; evictd simulate --help lists the flags`}},
		{[]string{"simulate", "missing.yaml"}, []string{`open missing.yaml: no such file or directory`}},
		{[]string{"simulate", "-o", "xml", "fine.yaml"}, []string{`invalid argument "xml" for "-o, --output" flag: expected text|json`}},
		{[]string{"simulate", "fine.yaml", "scenario.yaml", "missing.yaml"}, []string{
			`scenario.yaml: spec.steps[1].at: time: invalid duration "soon"`,
			`scenario.yaml: unknown field "spec.steps[0].colour"`,
			`open missing.yaml: no such file or directory`,
		}},

		{[]string{"check-config"}, []string{`accepts 1 arg(s), received 0; expected evictd check-config FILE [flags]`}},
		{[]string{"check-config", "good.yaml", "bad.yaml"}, []string{`accepts 1 arg(s), received 2; expected evictd check-config FILE [flags]`}},
		{[]string{"check-config", "-o", "yaml", "good.yaml"}, []string{`invalid argument "yaml" for "-o, --output" flag: expected text|json`}},
		{[]string{"check-config", "missing.yaml"}, []string{`open missing.yaml: no such file or directory`}},
		{[]string{"check-config", "kind.yaml"}, []string{`kind.yaml: apiVersion "v1", kind "Nope": expected evictd.io/v1alpha1 EvictdConfiguration or kubelet.config.k8s.io/v1beta1 KubeletConfiguration`}},
		{[]string{"check-config", "bad.yaml"}, []string{
			`bad.yaml: unknown field "stateDirectory"`,
			`bad.yaml: evictionHard[memory.available]: Invalid value: "1Zi": not a quantity: quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'`,
			`bad.yaml: evictionHard[x]: Invalid value: "1Gi": unsupported eviction signal "x"`,
		}},
		{[]string{"check-config", "--eviction-soft", "memory.available<1Gi", "good.yaml"}, []string{
			`good.yaml: evictionSoftGracePeriod[memory.available]: Required value: a soft threshold needs a grace period`}},

		{[]string{"oom-score"}, []string{`accepts 1 arg(s), received 0; expected evictd oom-score FILE [flags]`}},
		{[]string{"oom-score", "pods.yaml"}, []string{`--memory-capacity "": expected a positive quantity such as 4Gi`}},
		{[]string{"oom-score", "--memory-capacity", "0", "pods.yaml"}, []string{`--memory-capacity "0": expected a positive quantity such as 4Gi`}},
		{[]string{"oom-score", "--memory-capacity", "-1", "pods.yaml"}, []string{`--memory-capacity "-1": expected a positive quantity such as 4Gi`}},
		{[]string{"oom-score", "--memory-capacity", "much", "pods.yaml"}, []string{`--memory-capacity "much": expected a positive quantity such as 4Gi`}},
		{[]string{"oom-score", "--memory-capacity", "4Gi", "missing.yaml"}, []string{`open missing.yaml: no such file or directory`}},
		{[]string{"oom-score", "--memory-capacity", "4Gi", "pods.yaml"}, []string{
			`pods.yaml: document 2: spec.containers: expected a list, found number`,
			`pods.yaml: document 3: kind "Nope" of apiVersion "" is not a v1 Pod`,
		}},

		{[]string{"doctor", "x"}, []string{`unknown command "x" for "evictd doctor"; expected evictd doctor [flags]`}},
		{[]string{"doctor", "-o", "yaml"}, []string{`invalid argument "yaml" for "-o, --output" flag: expected text|json`}},
		{[]string{"version", "x"}, []string{`unknown command "x" for "evictd version"; expected evictd version [flags]`}},
		{[]string{"status", "x"}, []string{`unknown command "x" for "evictd status"; expected evictd status [flags]`}},
		{[]string{"status", "--status-address", "none"}, []string{`--status-address "none": expected unix:PATH, IP:PORT or none`}},
		{[]string{"status", "--status-address", "localhost"}, []string{`--status-address "localhost": expected unix:PATH, IP:PORT or none`}},

		{[]string{"run", "x"}, []string{`unknown command "x" for "evictd run"; expected evictd run [flags]`}},
		{[]string{"run", "--nope"}, []string{`unknown flag: --nope; evictd run --help lists the flags`}},
		{[]string{"run", "--config", "missing.yaml"}, []string{`open missing.yaml: no such file or directory`}},
		{[]string{"run", "--config", "kind.yaml"}, []string{`kind.yaml: apiVersion "v1", kind "Nope": expected evictd.io/v1alpha1 EvictdConfiguration or kubelet.config.k8s.io/v1beta1 KubeletConfiguration`}},
		{[]string{"run", "--housekeeping-interval", "soon"}, []string{`invalid argument "soon" for "--housekeeping-interval" flag: time: invalid duration "soon"`}},
		{[]string{"run", "--eviction-hard", "memory.available"}, []string{`invalid argument "memory.available" for "--eviction-hard" flag: "memory.available": expected name<value`}},
		{
			append(virtual, "--soft-eviction", "perhaps", "--cri-endpoint", "unix:x", "--housekeeping-interval", "-1s", "--hard-eviction-grace-period", "2s", "--eviction-hard", "x<1Gi"),
			[]string{
				`--eviction-hard[x]: Invalid value: "1Gi": unsupported eviction signal "x"`,
				`--soft-eviction "perhaps": expected api, request or direct`,
				`--cri-endpoint "unix:x": expected unix:PATH with an absolute path, or none`,
				`--housekeeping-interval -1s: must not be negative`,
				`--hard-eviction-grace-period 2s: expected 0s to 1s`,
			},
		},
		{append(virtual, "--mode", "bystander"), []string{`--mode: unknown mode "bystander", want one of native, takeover, backstop, observe`}},
		{append(virtual, "--node-memory", "none"), []string{`--node-memory "none": expected a positive quantity such as 4Gi`}},
		{append(virtual, "--cgroup-root", "/"), []string{`--node-memory and --cgroup-root exclude each other: the memory is either given or measured`}},
		{append(virtual, "--config", "big.yaml"), []string{`big.yaml: evictionHard[memory.available]: Invalid value: "2Gi": not below the capacity of memory.available, 1Gi`}},
		{append(virtual, "--status-address", "localhost:80"), []string{`--status-address "localhost:80": expected unix:PATH, IP:PORT or none`}},
		{append(virtual[:len(virtual)-1:len(virtual)-1], "0.0.0.0:0"), []string{`--status-address "0.0.0.0:0": others than this host can reach it; expected --status-tls-cert-file, --status-tls-private-key-file and --status-client-ca-file beside it, or unix:PATH, a loopback IP:PORT or none`}},
		{append(virtual, "--status-address", "127.0.0.1:0", "--status-tls-cert-file", "a"), []string{`--status-tls-private-key-file: expected a file`, `--status-client-ca-file: expected a file`}},
		{append(virtual, "--status-address", "unix:socket"), []string{`--status-address: socket is in the way and is no socket`}},
	} {
		t.Run(strings.Join(c.args, " "), func(t *testing.T) {
			got := say(t, "", c.args...)
			var want strings.Builder
			for _, line := range c.err {
				want.WriteString("evictd: " + line + "\n")
			}
			if got.code != cli.ExitBadInput || got.out != "" || got.err != want.String() {
				t.Errorf("exit %d, printed %q and\n%s\nwant exit 2, nothing and\n%s", got.code, got.out, got.err, want.String())
			}
		})
	}
}

func TestWithoutACommandTheCommandsAreListed(t *testing.T) {
	got := say(t, "")
	if got.code != 0 || got.err != "" {
		t.Errorf("exit %d, %q", got.code, got.err)
	}
	for _, name := range []string{"run", "status", "simulate", "check-config", "oom-score", "doctor", "version"} {
		if !regexp.MustCompile(`(?m)^  ` + name + ` +[A-Z]`).MatchString(got.out) {
			t.Errorf("%s is missing:\n%s", name, got.out)
		}
	}
}

func TestVersionIsOneLine(t *testing.T) {
	if got := say(t, "", "version"); got != (said{0, version + "\n", ""}) {
		t.Errorf("got %+v", got)
	}
}

func TestDoctorShowsWhatIsLostWhereSomethingIsMissing(t *testing.T) {
	got := say(t, "", "doctor", "-o", "json")
	var document struct{ Findings []finding }
	decoder := json.NewDecoder(strings.NewReader(got.out))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&document); err != nil || got.code != 0 || got.err != "" {
		t.Fatalf("exit %d, %v, %s%s", got.code, err, got.out, got.err)
	}
	text := say(t, "", "doctor").out
	names := map[string]bool{}
	for _, f := range document.Findings {
		if f.Name == "" || f.Is == "" || f.OK != (f.Lost == "") || names[f.Name] {
			t.Errorf("%+v", f)
		}
		names[f.Name] = true
		if !strings.Contains(text, f.Name) || !strings.Contains(text, f.Lost) {
			t.Errorf("the text leaves out %+v:\n%s", f, text)
		}
	}
	for _, name := range []string{"cgroups", "pressure stall information", "CAP_KILL", "container runtime"} {
		if !names[name] {
			t.Errorf("nothing about %s", name)
		}
	}
}

func TestSeveralScenariosFollowEachOtherUnderTheirNames(t *testing.T) {
	files(t, map[string]string{"one.yaml": named("one")})
	single := say(t, "", "simulate", "-o", "json", "one.yaml")
	if single.code != 0 || !strings.HasPrefix(single.out, `{"at":"0s","thresholdsMet":[`) || strings.Count(single.out, "\n") != 1 {
		t.Fatalf("%+v", single)
	}
	if got := say(t, named("one"), "simulate", "-o", "json", "-"); got != single {
		t.Errorf("from standard input: %+v, want %+v", got, single)
	}
	several := say(t, named("two"), "simulate", "-o", "json", "one.yaml", "-")
	if want := `{"scenario":"one"}` + "\n" + single.out + `{"scenario":"two"}` + "\n" + single.out; several.out != want {
		t.Errorf("got\n%s\nwant\n%s", several.out, want)
	}
	text := say(t, named("two"), "simulate", "one.yaml", "-")
	if text.code != 0 || !strings.HasPrefix(text.out, "one\n") || !strings.Contains(text.out, "\ntwo\n") {
		t.Errorf("%+v", text)
	}
}

func TestPassesInWhichNothingHappensAreOneLine(t *testing.T) {
	got := say(t, `apiVersion: evictd.io/v1alpha1
kind: Scenario
spec:
  config: {evictionHard: {memory.available: 1Gi}}
  steps:
  - {at: 0s, signals: {memory.available: 3Gi}}
  - {at: 10s, signals: {memory.available: 2Gi}}
  - {at: 20s, signals: {memory.available: 512Mi}}
  - {at: 30s, signals: {memory.available: 2Gi}}
  - {at: 40s, signals: {memory.available: 2Gi}}
`, "simulate", "-")
	var begins []string
	for line := range strings.Lines(got.out) {
		begins = append(begins, strings.Join(strings.Fields(line)[:3], " "))
	}
	want := []string{"0s no change", "20s memory.available 512Mi", "30s memory.available 2Gi", "40s no change"}
	if !strings.Contains(got.out, "0s        no change until 10s\n") || !slices.Equal(begins, want) {
		t.Errorf("%+v", got)
	}
}

func TestTheScoresStandInManifestOrderInitContainersFirst(t *testing.T) {
	pods := `
apiVersion: v1
kind: Pod
metadata: {name: b}
spec:
  initContainers: [{name: init, image: i}, {name: sidecar, image: i, restartPolicy: Always}]
  containers: [{name: main, image: i, resources: {requests: {memory: 1Gi}}}, {name: other, image: i, resources: {requests: {memory: 2Gi}}}]
---
apiVersion: v1
kind: Pod
metadata: {name: a, namespace: other}
spec:
  containers: [{name: c, image: i, resources: {limits: {memory: 1Gi, cpu: 1}}}]
`
	want := `{"pod":"default/b","container":"init","qosClass":"Burstable","oomScoreAdj":999}
{"pod":"default/b","container":"sidecar","qosClass":"Burstable","oomScoreAdj":750}
{"pod":"default/b","container":"main","qosClass":"Burstable","oomScoreAdj":750}
{"pod":"default/b","container":"other","qosClass":"Burstable","oomScoreAdj":500}
{"pod":"other/a","container":"c","qosClass":"Guaranteed","oomScoreAdj":-997}
`
	if got := say(t, pods, "oom-score", "--memory-capacity", "4Gi", "-"); got != (said{0, want, ""}) {
		t.Errorf("got %+v\nwant\n%s", got, want)
	}
	if got := say(t, pods, "oom-score", "--memory-capacity", "4Gi", "-o", "text", "-"); got.code != 0 || !strings.Contains(got.out, "-997  Guaranteed  other/a c\n") {
		t.Errorf("as text: %+v", got)
	}
}

func TestWhatCannotBeReadOrWrittenIsAFault(t *testing.T) {
	for _, args := range [][]string{{"version"}, {"doctor", "-o", "json"}, {"oom-score", "--memory-capacity", "4Gi", "-"}, {"check-config", "-"}, {"simulate", "-"}} {
		input := map[string]string{"oom-score": pod, "check-config": configHeader, "simulate": named("one")}[args[0]]
		var errs bytes.Buffer
		if code := execute(context.Background(), args, strings.NewReader(input), broken{}, &errs); code != cli.ExitFault || errs.String() != "evictd: "+io.ErrClosedPipe.Error()+"\n" {
			t.Errorf("%v to a broken pipe: exit %d, %s", args, code, errs.String())
		}
		if input == "" {
			continue
		}
		errs.Reset()
		if code := execute(context.Background(), args, broken{}, io.Discard, &errs); code != cli.ExitFault || errs.String() != "evictd: read standard input: "+io.ErrClosedPipe.Error()+"\n" {
			t.Errorf("%v from a broken pipe: exit %d, %s", args, code, errs.String())
		}
	}
}

type broken struct{}

func (broken) Read([]byte) (int, error)  { return 0, io.ErrClosedPipe }
func (broken) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }
