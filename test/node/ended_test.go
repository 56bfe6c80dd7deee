package node_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/evictd/evictd/internal/require"
	"github.com/evictd/evictd/internal/sandbox"
	"github.com/evictd/evictd/test/harness"
)

// TestThePageCacheOfAVictimEvictsNoSecondPod has a pod read a file so often that workingSet counts its page cache as used. The
// kernel would keep that after the end of the pod: evictd has it freed, and evicts no other pod for it.
//
// rule: M.167
func TestThePageCacheOfAVictimEvictsNoSecondPod(t *testing.T) {
	t.Parallel()
	evictsOnlyTheReader(t, harness.NewNode(t, 512*harness.MiB, nodePIDs))
}

// TestMachineThePageCacheOfAVictimEvictsNoSecondPod is the same on cgroup v2, where memory.reclaim frees it.
//
// rule: M.167
func TestMachineThePageCacheOfAVictimEvictsNoSecondPod(t *testing.T) {
	evictsOnlyTheReader(t, boundedInMachine(t))
}

func evictsOnlyTheReader(t *testing.T, n *harness.Node) {
	t.Helper()
	bystander, reader := n.Start("bystander", sandbox.Spec{}), n.Start("reader", sandbox.Spec{})
	bystander.Do("hold 16Mi")
	d := n.Evictd(sandbox.EvictionHard("memory.available<256Mi"), noTransition, sandbox.Config(configFile(t, "memoryModel: workingSet")))
	d.AwaitPods(memorySignal, bystander, reader)
	reader.Send("read %s 3", require.FileOnDisk(t, 280*harness.MiB))
	d.AwaitGone(reader)
	// evictd reports the eviction after a second even if page cache is still being freed; an emulated machine is slow.
	harness.Await(t, "the page cache of the victim to be freed", func() bool { return n.Memory(reader.Group).ActiveFile.Or(0) <= 16*harness.MiB })
	d.AwaitCondition("MemoryPressure", memoryTaint, false)
	d.MustHaveEvicted(reader)
	harness.MustRun(t, bystander)
}

// TestAPodThatHasEndedByItselfIsNotEvicted leaves the cgroup of a pod, with page cache and a process that has exited and that
// its parent does not reap: the kernel counts that as a task.
//
// rule: M.166
func TestAPodThatHasEndedByItselfIsNotEvicted(t *testing.T) {
	t.Parallel()
	n := harness.NewNode(t, 512*harness.MiB, nodePIDs)
	ended, parent, victim := n.Start("ended", sandbox.Spec{}), n.Start("parent", sandbox.Spec{}), n.Start("victim", sandbox.Spec{})
	ended.Do("read %s 3", require.FileOnDisk(t, 200*harness.MiB))
	parent.Do("fork 1")
	child := slices.DeleteFunc(n.Processes(parent.Group), func(pid int) bool { return pid == parent.PID() })[0]
	require.NoError(t, n.Cgroups.Add(ended.Container(), child))
	d := n.Evictd(sandbox.EvictionHard("memory.available<192Mi"), noTransition, sandbox.Config(configFile(t, "memoryModel: workingSet")))
	d.AwaitPods(memorySignal, ended, parent, victim)
	require.NoError(t, unix.Kill(parent.PID(), unix.SIGSTOP))
	t.Cleanup(func() { _ = unix.Kill(parent.PID(), unix.SIGCONT) }) // it has been killed where the test failed
	require.NoError(t, unix.Kill(child, unix.SIGKILL))
	harness.Await(t, "the child to be a zombie", func() bool {
		return strings.Contains(content(t, fmt.Sprintf("/proc/%d/status", child)), "State:\tZ")
	})
	ended.Send("exit 0")
	<-ended.Ended()
	victim.Send("leak 0 150Mi")
	d.AwaitGone(victim)
	d.MustHaveEvicted(victim)
}
