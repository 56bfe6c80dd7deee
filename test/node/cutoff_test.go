package node_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/evictd/evictd/internal/kubeclient"
	"github.com/evictd/evictd/internal/require"
	"github.com/evictd/evictd/internal/sandbox"
	"github.com/evictd/evictd/nodestatus"
	"github.com/evictd/evictd/test/harness"
	"github.com/evictd/evictd/test/harness/kube"
	"github.com/evictd/evictd/test/vm/machine"
)

// The machine that is cut off, and booted again by test/vm with the disk it had.
const (
	cutOffDir  = "/var/lib/evictd/cut-off"
	cutOffNode = "machine"
	apiService = "evictd-apiserver.service"
	apiSocket  = "/run/evictd/api.sock"
)

// apiOfMachine is the embedded API as the package installs it.
func apiOfMachine(t *testing.T) *kube.API {
	t.Helper()
	machine.Systemctl(t, "start", apiService)
	cfg, err := kubeclient.Config("", "unix:"+apiSocket)
	require.NoError(t, err)
	return &kube.API{Interface: kubernetes.NewForConfigOrDie(cfg), Node: cutOffNode, Namespace: metav1.NamespaceDefault}
}

// TestCutOffInTheMiddleOfAnEviction ends with a victim in its grace period that is not
// yet reported to the API server. Nothing is cleaned up: the power is cut then.
func TestCutOffInTheMiddleOfAnEviction(t *testing.T) {
	n := theMachine(t)
	n.Dir = cutOffDir
	require.NoError(t, os.MkdirAll(n.Manifests(), 0o755))
	a := apiOfMachine(t)
	created := a.Create(n, "stubborn", sandbox.Spec{Grace: 600}, nil)
	d := protect(n, fmt.Sprintf(`server: unix:%s
memoryModel: available
evictionHard: {memory.available: 50Mi}
evictionSoft: {memory.available: %dMi}
evictionSoftGracePeriod: {memory.available: 100ms}
evictionMaxPodGracePeriod: 600
evictionPressureTransitionPeriod: 30m`, apiSocket, meminfo(t, "MemAvailable")-150))
	// The test's own pods would end with it.
	script := filepath.Join(n.Dir, "pod")
	err := os.WriteFile(script, fmt.Appendf(nil, `mkdir -p %[1]s && echo $$ >%[1]s/cgroup.procs && trap '' TERM
while ! [ -e %[2]s/go ]; do sleep 0.1; done
head -c 250M /dev/zero | tail | sleep 1000
`, n.Cgroups.Mount("memory")+n.PodGroup(created), n.Dir), 0o644)
	require.NoError(t, err)
	mustRun(t, "systemd-run", "--unit=stubborn", "sh", script)
	d.AwaitPods(memorySignal, &harness.Pod{Pod: created})
	a.AwaitCondition(t, v1.NodeMemoryPressure, memoryTaint, false)
	syscall.Sync()
	machine.Systemctl(t, "stop", apiService)
	require.NoError(t, os.WriteFile(filepath.Join(n.Dir, "go"), nil, 0o644))
	d.Await("an eviction that is not reported", func(s *nodestatus.Status) bool {
		return len(s.Evictions) == 1 && s.Evictions[0].Gone.IsZero() && s.API.Untold > 0
	})
	harness.Await(t, "the eviction to be in the journal", func() bool { return strings.Contains(content(t, machine.JournalFile), string(created.UID)) })
}

func TestAfterCutOffTheEvictionIsReportedAndThePressureHeld(t *testing.T) {
	n := theMachine(t)
	a := apiOfMachine(t)
	harness.Await(t, "evictd to be back by itself", func() bool { return machine.Show(t, "ActiveState") == "active" })
	d := &harness.Evictd{Process: harness.At(n.T, machine.StatusSocket)}
	harness.Await(t, "the eviction before the cut to be reported to the API server", func() bool {
		pod := a.Pod(t, "stubborn")
		return pod.Status.Phase == v1.PodFailed && pod.Status.Reason == "Evicted" && strings.HasPrefix(pod.Status.Message, "The node was low on resource: memory. ")
	})
	a.AwaitCondition(t, v1.NodeMemoryPressure, memoryTaint, true) // held for half an hour, though there is none
	s := d.Await("everything to be reported", reported)
	if at := slices.IndexFunc(s.Signals, func(s nodestatus.SignalStatus) bool { return s.Name == memorySignal }); at < 0 || s.Signals[at].Thresholds[0].Met {
		t.Errorf("signals %+v", s.Signals)
	}
	pods, err := a.CoreV1().Pods(a.Namespace).List(t.Context(), metav1.ListOptions{})
	if err != nil || len(pods.Items) != 1 {
		t.Errorf("pods %v, %v", pods, err)
	}
}
