package scheduleradapter

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/evictd/evictd/internal/require"
)

// The written configuration comes to itself.
// rule: S5.24
func TestAConfigurationIsWrittenCompleteAndReadAgain(t *testing.T) {
	dir := t.TempDir()
	files, err := filepath.Glob("simulate/testdata/config/*.yaml")
	require.NoError(t, err)
	for _, file := range append(files, "") {
		if strings.Contains(file, "fault") {
			continue
		}
		written, again := filepath.Join(dir, "written.yaml"), filepath.Join(dir, "again.yaml")
		for _, step := range [][2]string{{file, written}, {written, again}} {
			args := []string{"--secure-port=0", "--write-config-to", step[1]} // without a command and without an API server
			if step[0] != "" {
				args = append(args, "--config", step[0])
			}
			if code, out, errs := execute(t.Context(), args...); code != 0 || out != "" || !strings.Contains(errs, "configuration written") {
				t.Fatalf("%v: exit %d, %s%s", args, code, out, errs)
			}
		}
		first, second := string(require.ReadFile(t, written)), string(require.ReadFile(t, again))
		if first != second {
			t.Errorf("%s: written is\n%s\nand again\n%s", file, first, second)
		}
		if file == "" {
			continue
		}
		code, out, errs := execute(t.Context(), "check-config", file)
		if code != 0 || out != first {
			t.Errorf("check-config %s: exit %d, %s%s", file, code, out, errs)
		}
		if warns := strings.Contains(errs, "alwaysCheckAllPredicates is left out"); warns != strings.Contains(file, "all-predicates") {
			t.Errorf("check-config %s: %s", file, errs)
		}
	}
}

// Each fault of a configuration or of a flag of kube-scheduler has its file or its flag, and what to do.
// rule: S5.24
func TestFaultsOfAConfigurationNameItsFile(t *testing.T) {
	dir := t.TempDir()
	name := func(file, text string) string {
		path := filepath.Join(dir, file)
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	const head = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
	certificates := name("certificates.yaml", head+"extenders:\n- {urlPrefix: 'http://one', ignorable: true}\n- {urlPrefix: 'https://two', enableHTTPS: true, tlsConfig: {caFile: /none/ca.pem, certFile: /none/cert.pem}}\n")
	policy := name("policy.json", `{"apiVersion": "v1", "kind": "Policy", "extenders": [{"urlPrefix": "https://three", "enableHttps": true, "tlsConfig": {"caFile": "/none/ca.pem"}}]}`)
	field := name("field.yaml", head+"parallelsim: 3\n")
	nodes := name("nodes.yaml", "apiVersion: v1\nkind: Node\nmetadata: {name: a}\n")
	run := []string{"run", "--server=http://127.0.0.1:1", "--status-address=none"}
	for _, test := range []struct {
		args []string
		says []string
	}{
		{[]string{"check-config", certificates}, []string{certificates + ": extenders[1] (https://two): tlsConfig.caFile: open /none/ca.pem", certificates + ": extenders[1] (https://two): tlsConfig.certFile: open /none/cert.pem"}},
		{append(run, "--config", certificates), []string{certificates + ": extenders[1] (https://two): tlsConfig.caFile: open /none/ca.pem"}},
		{[]string{"simulate", "--config", certificates, nodes}, []string{certificates + ": extenders[1] (https://two): tlsConfig.caFile: open /none/ca.pem"}},
		{[]string{"check-config", policy}, []string{policy + ": extenders[0] (https://three): tlsConfig.caFile: open /none/ca.pem"}},
		{[]string{"check-config", field}, []string{field + `: unknown field "parallelsim"`}},
		{[]string{"check-config", filepath.Join(dir, "none")}, []string{"no such file"}},
		{[]string{"check-config"}, []string{"accepts 1 arg"}},
		{[]string{"check-config", "--feature-gates=a", field}, []string{"expected NAME=true or NAME=false"}},
		{[]string{"--config", field, "--write-config-to", filepath.Join(dir, "x")}, []string{field + `: unknown field "parallelsim"`}},
		{[]string{"--write-config-to", filepath.Join(dir, "none/x")}, []string{"--write-config-to: open " + dir + "/none/x: no such file"}},
		{[]string{"--policy-config-file", policy}, []string{"--policy-config-file", "use --config, which reads a Policy too"}},
		{[]string{"run", "--policy-configmap=policy"}, []string{"--policy-configmap", "write the Policy to a file, and use --config"}},
		{[]string{"--algorithm-provider=ClusterAutoscalerProvider"}, []string{"--algorithm-provider", "use --config"}},
		{[]string{"--port=0"}, []string{"--port", "use --secure-port"}},
		{append(slices.Clone(run), "--logging-format=xml"), []string{"--logging-format xml: expected text or json"}},
	} {
		code, out, errs := execute(t.Context(), test.args...)
		for _, part := range test.says {
			if code != 2 || out != "" || !strings.Contains(errs, part) {
				t.Errorf("%v: exit %d, %s%s\nwant %s", test.args, code, out, errs, part)
			}
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "x")); err == nil {
		t.Error("a configuration with a fault is written")
	}
}

// rule: S5.24
func TestTheLogMayBeJSON(t *testing.T) {
	code, _, errs := execute(t.Context(), "--logging-format=json", "--kube-api-qps=5", "--write-config-to", filepath.Join(t.TempDir(), "x"))
	lines := strings.Split(strings.TrimSpace(errs), "\n")
	if code != 0 || len(lines) != 2 || !strings.HasPrefix(lines[0], `{"time":`) || !strings.Contains(lines[0], `"level":"WARN","msg":"configuration","warning":"--kube-api-qps has no effect`) || !strings.Contains(lines[1], `"msg":"configuration written"`) {
		t.Errorf("exit %d, %s", code, errs)
	}
}
