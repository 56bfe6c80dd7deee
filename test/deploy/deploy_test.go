// Package deploy_test holds what is in deploy/ to helm, kustomize and a real kube-apiserver.
package deploy_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/evictd/evictd/internal/golden"
	"github.com/evictd/evictd/internal/require"
	"github.com/evictd/evictd/test/controlplane/apiserver"
	"github.com/evictd/evictd/test/harness"
)

const (
	top       = "../.."
	chart     = top + "/deploy/chart/evictd"
	bases     = top + "/deploy/kustomize"
	namespace = "evictd-system"
)

func TestMain(m *testing.M) { os.Exit(harness.Main(m)) }

// tool is helm or kustomize.
func tool(t *testing.T, name string) string {
	t.Helper()
	if why, err := os.ReadFile("bin/unavailable"); err == nil {
		t.Skipf("skipped: %s is not built: %s", name, bytes.TrimSpace(why))
	}
	path, err := filepath.Abs(filepath.Join("bin", name))
	require.NoError(t, err)
	if _, err := os.Stat(path); err != nil {
		t.Skipf("skipped: %s is not built: make helm builds it", name)
	}
	return path
}

// run returns what a program prints; it has no files of the user.
func run(t *testing.T, program string, args ...string) (stdout string, err error) {
	t.Helper()
	home := t.TempDir()
	c := exec.CommandContext(t.Context(), program, args...)
	c.Env = []string{"HOME=" + home, "PATH=" + os.Getenv("PATH")}
	out, err := c.Output()
	if exit, is := errors.AsType[*exec.ExitError](err); is {
		err = errors.New(string(exit.Stderr) + string(out))
	}
	return string(out), err
}

func must(t *testing.T, program string, args ...string) string {
	t.Helper()
	out, err := run(t, program, args...)
	if err != nil {
		t.Fatalf("%s %s: %v", filepath.Base(program), strings.Join(args, " "), err)
	}
	return out
}

func template(t *testing.T, args ...string) string {
	t.Helper()
	return must(t, tool(t, "helm"), append([]string{"template", "evictd", chart, "--namespace=" + namespace}, args...)...)
}

// everything switches on all that is off.
var everything = []string{"--set=podMonitor.enabled=true,prometheusRule.enabled=true,dashboards.enabled=true,scheduler.as=second,node.apiServer=https://10.0.0.1:6443,node.inPod=true"}

func TestTheChartPassesItsLinter(t *testing.T) {
	helm := tool(t, "helm")
	for _, values := range [][]string{nil, everything, {"--set=scheduler.as=extender"}} {
		must(t, helm, append([]string{"lint", "--strict", "--namespace=" + namespace, chart}, values...)...)
	}
}

// rule: S9.13
func TestValuesWithAFaultAreRefused(t *testing.T) {
	helm := tool(t, "helm")
	for _, c := range [][2]string{
		{"node.prefix=opt", "prefix"},
		{"node.config.dryRun=perhaps", "dryRun"},
		{"node.confg.dryRun=true", "confg"},
		{"node.apiServer=10.0.0.1", "apiServer"},
		{"node.inPod=perhaps", "inPod"},
		{"scheduler.as=third", "as"},
		{"image.pullPolicy=Sometimes", "pullPolicy"},
	} {
		_, err := run(t, helm, "template", "evictd", chart, "--namespace="+namespace, "--set="+c[0])
		if err == nil || !strings.Contains(err.Error(), c[1]) {
			t.Errorf("%s: %v; expected it to be refused", c[0], err)
		}
	}
	if _, err := run(t, helm, "template", "evictd", chart, "--namespace=default"); err == nil || !strings.Contains(err.Error(), "expected --namespace evictd-system") {
		t.Errorf("namespace default: %v; expected it to be refused", err)
	}
}

// TestTheBasesAreTheChart holds the kustomize bases, and objects that only the chart has, to what the
// chart makes. make rewrite writes them.
func TestTheBasesAreTheChart(t *testing.T) {
	for file, args := range map[string][]string{
		bases + "/evictd/evictd.yaml":       nil,
		bases + "/scheduler/scheduler.yaml": {"--set=node.enabled=false,scheduler.as=second"},
		bases + "/extender/extender.yaml":   {"--set=node.enabled=false,scheduler.as=extender"},
	} {
		golden.Check(t, file, "# make rewrite writes this file by the chart.\n"+template(t, append(args, "--no-hooks")...))
	}
	golden.Check(t, "testdata/uninstall.yaml", template(t, "--show-only=templates/uninstall.yaml"))
	golden.Check(t, "testdata/node.yaml", template(t, append(everything, "--show-only=templates/node.yaml")...))
}

// rule: S9.13
func TestTheBaseForHostsWithoutSystemdIsTheChartWithAValue(t *testing.T) {
	daemonSet := func(text string) unstructured.Unstructured {
		t.Helper()
		all := slices.DeleteFunc(objects(t, text), func(o unstructured.Unstructured) bool { return o.GetKind() != "DaemonSet" })
		if len(all) != 1 {
			t.Fatalf("%d DaemonSets; expected one", len(all))
		}
		return all[0]
	}
	got, want := daemonSet(must(t, tool(t, "kustomize"), "build", bases+"/in-pod")), daemonSet(template(t, "--set=node.inPod=true"))
	if !reflect.DeepEqual(got, want) {
		t.Errorf("kustomize makes %v; the chart makes %v", got, want)
	}
}

// rule: S9.13
func TestAlertsAndDashboardsOfTheChartAreTheFiles(t *testing.T) {
	found := map[string]bool{}
	for _, o := range objects(t, template(t, everything...)) {
		switch o.GetKind() {
		case "PrometheusRule":
			spec, err := json.Marshal(o.Object["spec"])
			require.NoError(t, err)
			text, err := yaml.ToJSON(require.ReadFile(t, top+"/deploy/alerts/"+o.GetName()+".yaml"))
			require.NoError(t, err)
			var rules any
			require.NoError(t, json.Unmarshal(text, &rules))
			want, err := json.Marshal(rules)
			require.NoError(t, err)
			if !bytes.Equal(spec, want) {
				t.Errorf("PrometheusRule %s is %s; expected %s", o.GetName(), spec, want)
			}
			found[o.GetKind()+o.GetName()] = true
		case "ConfigMap":
			data, _, _ := unstructured.NestedStringMap(o.Object, "data")
			for name, text := range data {
				if filepath.Ext(name) == ".json" && text == string(require.ReadFile(t, top+"/deploy/dashboards/"+name)) {
					found[name] = true
				}
			}
		}
	}
	for _, want := range []string{"PrometheusRuleevictd", "PrometheusRuleevictd-scheduler", "evictd.json", "evictd-scheduler.json"} {
		if !found[want] {
			t.Errorf("the chart has no %s", want)
		}
	}
}

// objects of a stream of YAML documents.
func objects(t *testing.T, text string) []unstructured.Unstructured {
	t.Helper()
	var all []unstructured.Unstructured
	d := yaml.NewYAMLOrJSONDecoder(strings.NewReader(text), 4096)
	for {
		var o unstructured.Unstructured
		err := d.Decode(&o.Object)
		if errors.Is(err, io.EOF) {
			return all
		}
		require.NoError(t, err)
		if len(o.Object) > 0 {
			all = append(all, o)
		}
	}
}

// apiServer is a kube-apiserver that ends with the test, and an application of objects to it.
func apiServer(t *testing.T) (server *apiserver.Server, apply func(text string, flags ...string)) {
	t.Helper()
	server, err := apiserver.NewKubeAPIServer()
	if _, unavailable := errors.AsType[*apiserver.UnavailableError](err); unavailable {
		t.Skip("skipped:", err)
	}
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, server.Stop()) })
	kubectl, err := apiserver.Program("kubectl")
	require.NoError(t, err)
	return server, func(text string, flags ...string) {
		t.Helper()
		c := exec.CommandContext(t.Context(), kubectl, append(append(server.Args(apiserver.Admin), "apply", "--server-side", "--filename=-"), flags...)...)
		c.Stdin = strings.NewReader(text)
		if out, err := c.CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
	}
}

// rule: S9.14
func TestAnAPIServerAcceptsEveryObject(t *testing.T) {
	_, apply := apiServer(t)
	apply("{apiVersion: v1, kind: Namespace, metadata: {name: evictd-system}}")
	const dryRun = "--dry-run=server"
	kustomize := tool(t, "kustomize")
	for _, base := range []string{"evictd", "in-pod", "scheduler", "extender"} {
		apply(must(t, kustomize, "build", filepath.Join(bases, base)), dryRun)
	}
	apply(template(t, "--set=dashboards.enabled=true,scheduler.as=second"), dryRun)
	apply(string(require.ReadFile(t, top+"/deploy/static/kube-scheduler.yaml")), dryRun)
}
