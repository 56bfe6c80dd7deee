package node_test

import (
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/evictd/evictd/internal/sandbox"
	"github.com/evictd/evictd/nodestatus"
	"github.com/evictd/evictd/test/harness"
)

// restarts are flags of a node beside a kubelet, which this test stands for.
func restarts(t *testing.T) []string {
	return []string{
		sandbox.Mode("backstop"), sandbox.Config(configFile(t, "containerPressure: restart")), sandbox.EvictionHard("memory.available<64Mi"), noTransition,
	}
}

// startContainers runs a pod of several containers, each with a request of 20 MiB.
func startContainers(n *harness.Node, name string, containers ...string) (m *v1.Pod, running map[string]*harness.Pod) {
	m = n.Manifest(name, sandbox.Spec{})
	m.Spec.Containers = nil
	running = map[string]*harness.Pod{}
	for _, c := range containers {
		requests := v1.ResourceList{v1.ResourceMemory: resource.MustParse("20Mi")}
		m.Spec.Containers = append(m.Spec.Containers, v1.Container{Name: c, Resources: v1.ResourceRequirements{Requests: requests}})
	}
	for _, c := range containers {
		running[c] = n.StartIn(m, path.Join(n.PodGroup(m), c), nil)
	}
	n.Write(m)
	return m, running
}

// TestAContainerIsRestartedInPlaceOfItsPod has one of three containers use up the memory of the node: it alone is
// killed. The kubelet, which this test stands for, starts it again, and it does the same: the pod is evicted, also
// by an evictd that was started since.
//
// rule: M.149
// rule: M.151
// rule: M.154
func TestAContainerIsRestartedInPlaceOfItsPod(t *testing.T) {
	t.Parallel()
	for name, killed := range map[string]bool{"the same evictd": false, "the next evictd": true} {
		t.Run(name, func(t *testing.T) {
			n := harness.NewNode(t, nodeMemory, nodePIDs)
			checkReplay(n)
			m, c := startContainers(n, "web", "app", "proxy", "logs")
			bystander := n.Start("bystander", sandbox.Spec{})
			bystander.Do("hold 8Mi")
			d := n.Evictd(restarts(t)...)
			d.AwaitPods(memorySignal, c["proxy"], bystander)
			c["app"].Send("leak 200Mi 400Mi")
			c["app"].AwaitEnd()
			d.AwaitMetric(`evictd_container_restarts_total{kind="hard",outcome="ended",signal="memory.available"} 1`)
			d.Await("the restart in the status", func(s *nodestatus.Status) bool {
				return len(s.Steps) == 1 && s.Steps[0].Step.Step == "restart" && s.Steps[0].Container == "app" && s.Steps[0].Pod == "default/web"
			})
			d.MustHaveEvicted()
			harness.MustRun(t, c["proxy"], c["logs"], bystander)
			harness.Await(t, "the restart in the recording", func() bool {
				text, err := exec.Command(harness.Program(t, "evictd"), "why", "web", sandbox.StateDir(n.StateDir())).Output()
				return err == nil && strings.Contains(string(text), "default/web was not evicted") &&
					strings.Contains(string(text), "restart container app of default/web: it alone uses more than the pod requested")
			})
			n.Clear(path.Join(n.PodGroup(m), "app"))
			again := n.StartIn(m, path.Join(n.PodGroup(m), "app"), nil)
			if killed {
				d.AwaitJournal()
				d.Kill()
				d = n.Evictd(restarts(t)...)
			}
			d.AwaitPods(memorySignal, c["proxy"], bystander)
			again.Send("leak 200Mi 400Mi")
			e := d.AwaitGone(c["proxy"])
			if !strings.Contains(e.Because, "its container app was restarted") {
				t.Errorf("evicted because %s", e.Because)
			}
			again.AwaitEnd()
			c["logs"].AwaitEnd()
			harness.MustRun(t, bystander)
		})
	}
}

// TestRestartsAreRefusedWhereNoKubeletStartsContainers starts evictd as the only program that manages the pods.
//
// rule: M.155
func TestRestartsAreRefusedWhereNoKubeletStartsContainers(t *testing.T) {
	t.Parallel()
	needNoKubelet(t)
	n := harness.NewNode(t, nodeMemory, nodePIDs)
	flags := append([]string{sandbox.CgroupRoot(n.Group)}, restarts(t)...)
	_, text, code := harness.Finish(t, n.Command(append(flags, sandbox.Mode("native"))...))
	if code != 2 || strings.Count(text, "containerPressure: restart: no kubelet runs here") != 1 {
		t.Errorf("exit code %d\n%s", code, text)
	}
}

// softRestarts are flags as restarts are, of a node whose container is restarted for a soft threshold.
func softRestarts(t *testing.T, grace string) []string {
	return []string{
		sandbox.Mode("backstop"), sandbox.Config(configFile(t, "containerPressure: restart\ncontainerRestartGracePeriod: "+grace)),
		sandbox.EvictionHard("memory.available<8Mi"), sandbox.EvictionSoft("memory.available<96Mi"), sandbox.SoftGrace("memory.available=100ms"), sandbox.Housekeeping("500ms"), noTransition,
	}
}

// startSoftRestart runs a pod whose container app uses more than a soft threshold leaves, and notes SIGTERM in a file. It
// returns when evictd has sent that.
func startSoftRestart(t *testing.T, grace string) (n *harness.Node, c map[string]*harness.Pod, d *harness.Evictd) {
	n = harness.NewNode(t, nodeMemory, nodePIDs)
	_, c = startContainers(n, "web", "app", "proxy", "logs")
	signalled := filepath.Join(n.Dir, "signalled")
	c["app"].Do("on TERM note %s", signalled)
	d = n.Evictd(softRestarts(t, grace)...)
	d.AwaitPods(memorySignal, c["proxy"])
	c["app"].Do("hold 180Mi")
	harness.Await(t, "SIGTERM", func() bool {
		_, err := os.Stat(signalled)
		return err == nil
	})
	d.Await("the restart in the status", func(s *nodestatus.Status) bool { return len(s.Steps) == 1 })
	d.AwaitJournal()
	return n, c, d
}

// TestAContainerThatIgnoresSIGTERMIsKilledAloneAtTheEndOfItsGrace has it handle SIGTERM without an end.
//
// rule: M.153
// rule: M.154
func TestAContainerThatIgnoresSIGTERMIsKilledAloneAtTheEndOfItsGrace(t *testing.T) {
	t.Parallel()
	_, c, d := startSoftRestart(t, "1s")
	c["app"].AwaitEnd()
	c["app"].MustHaveEndedBy(syscall.SIGKILL)
	d.AwaitMetric(`evictd_container_restarts_total{kind="soft",outcome="ended",signal="memory.available"} 1`)
	d.MustHaveEvicted()
	harness.MustRun(t, c["proxy"], c["logs"])
}

// TestAContainerThatIsBeingEndedHasItsGraceUnderTheNextEvictd kills evictd after the container has had SIGTERM. While it
// has its grace, the next evictd evicts no pod for the threshold. If it still runs then, its pod is evicted.
//
// rule: M.134
func TestAContainerThatIsBeingEndedHasItsGraceUnderTheNextEvictd(t *testing.T) {
	t.Parallel()
	for name, ends := range map[string]bool{"it ends": true, "it ignores SIGTERM": false} {
		t.Run(name, func(t *testing.T) {
			grace := "5s"
			if ends {
				grace = "10m"
			}
			n, c, d := startSoftRestart(t, grace)
			d.Kill()
			d = n.Evictd(softRestarts(t, grace)...)
			if !ends {
				if e := d.AwaitGone(c["proxy"]); !strings.Contains(e.Because, "its container app was restarted") {
					t.Errorf("evicted because %s", e.Because)
				}
				c["app"].AwaitEnd()
				c["logs"].AwaitEnd()
				return
			}
			d.AwaitPods(memorySignal, c["proxy"])
			since := d.Await("the threshold to be met", func(s *nodestatus.Status) bool { return s.Conditions[0].Status == v1.ConditionTrue }).Time
			d.Await("the shortage to last", func(s *nodestatus.Status) bool { return s.Time.Sub(since.Time) > 2*time.Second })
			d.MustHaveEvicted()
			c["app"].Do("hold 0")
			c["app"].End()
			d.Await("the threshold not to be met", func(s *nodestatus.Status) bool { return s.Conditions[0].Status == v1.ConditionFalse })
			d.MustHaveEvicted()
			harness.MustRun(t, c["proxy"], c["logs"])
		})
	}
}
