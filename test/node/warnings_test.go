package node_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/evictd/evictd/internal/require"
	"github.com/evictd/evictd/internal/sandbox"
	"github.com/evictd/evictd/nodestatus"
	"github.com/evictd/evictd/test/harness"
)

// warned is a configuration under which the pods of the namespace default are warned.
func warned(n *harness.Node, thresholds string) string {
	file := filepath.Join(n.Dir, "warned.yaml")
	require.NoError(n.T, os.WriteFile(file, []byte(`apiVersion: evictd.io/v1alpha1
kind: EvictdConfiguration
evictionPressureTransitionPeriod: 1s
housekeepingInterval: 1s
warningNamespaces: [default]
warningLead: 1s
warningInterval: 2s
`+thresholds), 0o644))
	return sandbox.Config(file)
}

const softMemory = "evictionHard: {memory.available: 16Mi}\nevictionSoft: {memory.available: 160Mi}\nevictionSoftGracePeriod: {memory.available: 10m}\n"

// TestAWarnedPodGivesMemoryBack has a pod free what it holds at the warning, and write a file at its end.
//
// rule: M.121
// rule: M.122
// rule: M.125
// rule: M.127
func TestAWarnedPodGivesMemoryBack(t *testing.T) {
	t.Parallel()
	n := harness.NewNode(t, nodeMemory, nodePIDs)
	pod := n.Start("cache", sandbox.Spec{Annotations: map[string]string{"evictd.io/notify": "SIGUSR1,SIGUSR2"}})
	deaf := n.Start("deaf", sandbox.Spec{Annotations: map[string]string{"evictd.io/notify": "file:" + filepath.Join(n.Dir, "none")}})
	pod.Do("on USR1 hold 1Mi")
	over := filepath.Join(n.Dir, "over")
	pod.Do("on USR2 note %s", over)
	state := t.TempDir()
	d := n.Evictd(warned(n, softMemory), sandbox.StateDir(state))
	d.AwaitPods(memorySignal, pod, deaf)
	text := evictd(n, "explain", "deaf", "--status-address=unix:"+n.Socket())
	if want := "where memory is short, or a container of it reaches its limit within 1s"; !strings.Contains(text, want) {
		t.Errorf("explain does not say that the pod may be warned %s:\n%s", want, text)
	}
	pod.Do("hold 150Mi")
	harness.Await(t, "the end of the warning", func() bool {
		_, err := os.Stat(over)
		return err == nil
	})
	d.Await("the condition to end", func(s *nodestatus.Status) bool {
		return len(s.Steps) == 0 && s.Conditions[0].Type == v1.NodeMemoryPressure && s.Conditions[0].Status == v1.ConditionFalse
	})
	d.MustHaveEvicted()
	harness.Await(t, "the end of the warning to be counted", func() bool { return strings.Contains(d.Metrics(), `outcome="over",step="warn"} 1`) })
	if text := d.Metrics(); !strings.Contains(text, `outcome="taken",step="warn"}`) {
		t.Errorf("no warning was counted:\n%s", text)
	}
	d.AwaitLog("annotation evictd.io/notify: container c: openat2 ")
	harness.MustRun(t, pod, deaf)
	d.Stop()
	if text := evictd(n, "why", "cache", sandbox.StateDir(state)); !strings.Contains(text, "default/cache was not evicted") ||
		!strings.Contains(text, "container c of default/cache: memory.available is") || !strings.Contains(text, "end of warn") {
		t.Errorf("evictd why:\n%s", text)
	}
}

// TestTheNextEvictdEndsAWarning has evictd be killed, and then stop, while pods are warned by a file.
//
// rule: M.121
// rule: M.124
// rule: M.126
func TestTheNextEvictdEndsAWarning(t *testing.T) {
	t.Parallel()
	n := harness.NewNode(t, nodeMemory, nodePIDs)
	file := func(name string) string {
		path := filepath.Join(n.Dir, name)
		require.NoError(t, os.WriteFile(path, nil, 0o600))
		return path
	}
	atLimit, atSoft := file("at-limit"), file("at-soft")
	begins := func(file, text string) func() bool {
		return func() bool { return strings.HasPrefix(content(t, file), text) }
	}
	pod := n.Start("leaker", sandbox.Spec{Limit: "140Mi", Annotations: map[string]string{"evictd.io/notify": "file:" + atLimit}})
	d := n.Evictd(warned(n, "evictionHard: {memory.available: 16Mi}\n"))
	d.AwaitPods(memorySignal, pod)
	pod.Send("leak 60Mi 120Mi") // less than fifteen sixteenths of the limit: the warning ends with the growth
	harness.Await(t, "a warning of the limit", begins(atLimit, "warning the container uses"))
	d.Kill()
	d = n.Evictd(warned(n, "evictionHard: {memory.available: 16Mi}\n"))
	harness.Await(t, "its end by the next evictd", begins(atLimit, "over"))
	d.Stop()

	other := n.Start("other", sandbox.Spec{Annotations: map[string]string{"evictd.io/notify": "file:" + atSoft}})
	d = n.Evictd(warned(n, softMemory))
	d.AwaitPods(memorySignal, pod, other)
	other.Do("hold 20Mi")
	harness.Await(t, "a warning of the soft threshold", begins(atSoft, "warning memory.available is"))
	d.Await("the step in the status", func(s *nodestatus.Status) bool { return len(s.Steps) == 2 })
	d.Stop()
	if text := content(t, atSoft); text != "over" {
		t.Errorf("after the end of evictd the file has %q", text)
	}
	harness.MustRun(t, pod, other)
}
