package node_test

import (
	"strings"
	"testing"

	"github.com/evictd/evictd/internal/sandbox"
	"github.com/evictd/evictd/test/harness"
	"github.com/evictd/evictd/test/vm/machine"
)

// rule: M.112
// rule: M.113
func TestAnnotationsWithoutEffectAreReported(t *testing.T) {
	t.Parallel()
	n := harness.NewNode(t, nodeMemory, nodePIDs)
	pod := n.Start("pod", sandbox.Spec{Annotations: map[string]string{"evictd.io/eviction": "never", "evictd.io/oom-group": "yes"}})
	grouped := n.Start("grouped", sandbox.Spec{Annotations: map[string]string{"evictd.io/oom-group": "true"}})
	d := n.Evictd(hardMemory)
	d.AwaitPods(memorySignal, pod, grouped)
	for _, why := range []string{
		`annotation evictd.io/eviction: \"never\": expected first or last`, `annotation evictd.io/oom-group: \"yes\": expected true or false`,
	} {
		d.AwaitLog(why)
	}
	if _, v2 := n.Cgroups.OOMGroupFile(grouped.Group); !v2 {
		d.AwaitLog("the kernel has memory.oom.group on cgroup v2 only")
	}
}

// TestMachineSetsMemoryOOMGroup has evictd be killed, and then stop.
//
// rule: M.113
func TestMachineSetsMemoryOOMGroup(t *testing.T) {
	n := newMachine(t)
	annotated := func(value string) map[string]string { return map[string]string{"evictd.io/oom-group": value} }
	together := n.Start("together", sandbox.Spec{Annotations: annotated("true")})
	other := n.Start("other", sandbox.Spec{Annotations: annotated("false")})
	together.Do("hold 0") // its cgroup exists
	other.Do("hold 0")
	files := map[*harness.Pod]string{}
	for _, p := range []*harness.Pod{together, other} {
		file, v2 := n.Cgroups.OOMGroupFile(p.Container())
		if !v2 {
			t.Skip("skipped: only cgroup v2 has memory.oom.group")
		}
		files[p] = file
		if group := strings.TrimSpace(content(t, file)); group != "0" {
			t.Skip("skipped: needs containers whose memory.oom.group is 0, not", group)
		}
	}
	is := func(value string) func() bool {
		return func() bool { return strings.TrimSpace(content(t, files[together])) == value }
	}
	protect(n, machineHard)
	harness.Await(t, "the container to have its group", is("1"))
	machine.Signal(t, "KILL")
	awaitRestored(t)
	harness.Await(t, "the next evictd to set it", is("1"))
	machine.Systemctl(t, "stop", machine.Service)
	harness.Await(t, "it to be restored", is("0"))
	if group := strings.TrimSpace(content(t, files[other])); group != "0" {
		t.Errorf("memory.oom.group of a pod that asks for none is %s", group)
	}
}
