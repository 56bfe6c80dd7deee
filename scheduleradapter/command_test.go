package scheduleradapter

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/evictd/evictd/internal/require"
	"github.com/evictd/evictd/internal/wait"
)

func execute(ctx context.Context, args ...string) (code int, out, errs string) {
	var stdout, stderr wait.Log // client-go logs a leader on its own goroutine
	root := NewCommand("v1.2.3")
	root.SetOut(&stdout)
	root.SetErr(&stderr)
	code = Execute(ctx, root, args)
	return code, stdout.String(), stderr.String()
}

func TestVersionIsPrinted(t *testing.T) {
	if code, out, errs := execute(t.Context(), "version"); code != 0 || out != "v1.2.3\n" || errs != "" {
		t.Errorf("exit %d, %q, %q", code, out, errs)
	}
}

func TestAnAPIServerThatDoesNotAnswerIsReported(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	kubeconfig := filepath.Join(dir, "kubeconfig")
	text := `{current-context: c, contexts: [{name: c, context: {cluster: c}}], clusters: [{name: c, cluster: {server: "http://127.0.0.1:1"}}]}`
	require.NoError(t, os.WriteFile(kubeconfig, []byte(text), 0o600))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	root, log := NewCommand("v1"), &wait.Log{}
	root.SetErr(log)
	ended := make(chan int)
	go func() {
		ended <- Execute(ctx, root, []string{"run", "--kubeconfig", kubeconfig, "--status-address", "unix:" + filepath.Join(dir, "s.sock")})
	}()
	wait.Until(t, "the log to have it", func() bool { return strings.Contains(log.String(), "connect: connection refused") })
	cancel()
	if code := <-ended; code != 0 {
		t.Errorf("exit code %d: %s", code, log)
	}
}

func TestFaultyCommandLinesAreTheCallersFault(t *testing.T) {
	dir := t.TempDir()
	manifest := filepath.Join(dir, "a.yaml")
	require.NoError(t, os.WriteFile(manifest, []byte("apiVersion: v1\nkind: Node\nmetadata: {name: a}\n"), 0o644))
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"schedule"}, `unknown command "schedule"`},
		{[]string{"simulate"}, "requires at least 1 arg"},
		{[]string{"version", "now"}, "unknown command"},
		{[]string{"simulate", "-o", "yaml", manifest}, "expected text|json"},
		{[]string{"simulate", "--seed", "-1", manifest}, "--seed"},
		{[]string{"simulate", "--for", "-1s", manifest}, "must not be negative"},
		{[]string{"simulate", filepath.Join(dir, "none.yaml")}, "no such file"},
		{[]string{"simulate", "--config", filepath.Join(dir, "none.yaml"), manifest}, "no such file"},
		{[]string{"simulate", "--config", manifest, manifest}, `kind "Node"`},
		{[]string{"run", "--server", "nowhere"}, "expected unix:PATH or a URL"},
		{[]string{"run", "--server", "http://127.0.0.1:1", "--config", manifest}, `kind "Node"`},
		{[]string{"run", "--server", "http://127.0.0.1:1", "--percentage-of-nodes-to-score", "101"}, "expected 0 to 100"},
		{[]string{"run", "--server", "http://127.0.0.1:1", "--status-address", "here"}, "expected unix:PATH, IP:PORT or none"},
	} {
		code, out, errs := execute(t.Context(), c.args...)
		if code != 2 || out != "" || !strings.HasPrefix(errs, "evictd-scheduler: ") || !strings.Contains(errs, c.want) {
			t.Errorf("%v: exit %d, out %q, errors %q, want %q", c.args, code, out, errs, c.want)
		}
	}
}

func TestLeftOutKindsAreWarnedOf(t *testing.T) {
	manifest := filepath.Join(t.TempDir(), "a.yaml")
	require.NoError(t, os.WriteFile(manifest, []byte("apiVersion: v1\nkind: Secret\nmetadata: {name: a}\n"), 0o644))
	code, out, errs := execute(t.Context(), "simulate", manifest)
	if code != 0 || !strings.HasPrefix(out, "0 scheduled") || !strings.Contains(errs, "warning: objects of kinds that are not used: 1 Secret of v1\n") {
		t.Errorf("exit %d, %q, %q", code, out, errs)
	}
}

func TestTheEnvironmentSaysHowManyVolumesAPolicyAllows(t *testing.T) {
	dir := t.TempDir()
	manifest, policy := filepath.Join(dir, "a.yaml"), filepath.Join(dir, "policy.yaml")
	for file, text := range map[string]string{
		manifest: `{apiVersion: v1, kind: List, items: [
			{apiVersion: v1, kind: Node, metadata: {name: a}, status: {allocatable: {cpu: "1", memory: 1Gi, pods: "10"}}},
			{apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {containers: [{name: c, image: i}], volumes: [
				{name: v, awsElasticBlockStore: {volumeID: v}}, {name: w, awsElasticBlockStore: {volumeID: w}}]}}]}`,
		policy: "{apiVersion: v1, kind: Policy, predicates: [{name: MaxEBSVolumeCount}], priorities: []}",
	} {
		require.NoError(t, os.WriteFile(file, []byte(text), 0o644))
	}
	for value, want := range map[string]string{"": "1 scheduled", "1": "0 scheduled", "2": "1 scheduled"} {
		t.Setenv("KUBE_MAX_PD_VOLS", value)
		if code, out, errs := execute(t.Context(), "simulate", "--config", policy, manifest); code != 0 || !strings.Contains(out, want) {
			t.Errorf("%q: exit %d, %q, %q; want %s", value, code, out, errs, want)
		}
	}
}

func TestAnInterruptedSimulationIsAFault(t *testing.T) {
	manifest := filepath.Join(t.TempDir(), "a.yaml")
	require.NoError(t, os.WriteFile(manifest, []byte("apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {containers: [{name: c}]}\n"), 0o644))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if code, out, errs := execute(ctx, "simulate", manifest); code != 1 || out != "" || errs != "evictd-scheduler: context canceled\n" {
		t.Errorf("exit %d, %q, %q", code, out, errs)
	}
}

func TestPluginCannotTakeAnothersName(t *testing.T) {
	for _, name := range []string{"NodeName", "twice"} {
		var errs bytes.Buffer
		root := NewCommand("v1", WithPlugin("twice", nil), WithPlugin(name, nil))
		root.SetErr(&errs)
		if code := Execute(t.Context(), root, []string{"version"}); code != 1 || errs.String() != "evictd-scheduler: a plugin named "+name+" already exists\n" {
			t.Errorf("exit %d, %q", code, errs.String())
		}
	}
}
