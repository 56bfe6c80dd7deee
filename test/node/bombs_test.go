package node_test

import (
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/evictd/evictd/cgroup"
	"github.com/evictd/evictd/internal/require"
	"github.com/evictd/evictd/internal/sandbox"
	"github.com/evictd/evictd/nodestatus"
	"github.com/evictd/evictd/stats"
	"github.com/evictd/evictd/test/harness"
	"github.com/evictd/evictd/test/vm/machine"
)

const machineHard = "evictionHard: {memory.available: 200Mi}"

func TestMachineLetsTheServiceDoAllItCan(t *testing.T) {
	n := newMachine(t)
	protect(n, machineHard)
	stdout, _, _ := evictctl(t, "doctor")
	t.Log(stdout)
	wanted := []string{"pidfd", "process_mrelease", "cgroup.kill", "pressure stall information", "pressure triggers off the 2 s grid",
		"CAP_SYS_RESOURCE", "CAP_SYS_PTRACE", "CAP_IPC_LOCK", "realtime priority", "no other eviction manager"}
	for _, what := range wanted {
		if !strings.Contains(stdout, "ok  "+what) {
			t.Errorf("evictd doctor does not find %s", what)
		}
	}
	if threads := realtimeThreads(t, machine.Show(t, "MainPID")); threads == 0 {
		t.Error("no thread of evictd goes before others")
	}
	if adj := content(t, "/proc/"+machine.Show(t, "MainPID")+"/oom_score_adj"); adj != "-999" {
		t.Errorf("oom_score_adj of evictd is %s", adj)
	}
}

func TestMachineSurvivesAMemoryBombWithAllPodsWithinTheirRequests(t *testing.T) {
	n := newMachine(t)
	guaranteed := n.Start("guaranteed", sandbox.Spec{Request: "64Mi", Limit: "64Mi"})
	within := n.Start("within", sandbox.Spec{Request: "128Mi"})
	bomb := n.Start("bomb", sandbox.Spec{})
	guaranteed.Do("hold 32Mi")
	within.Do("hold 100Mi")
	d := protect(n, machineHard)
	d.AwaitPods(memorySignal, guaranteed, within, bomb)
	if n.Driver != sandbox.Systemd { // see mustScore
		harness.Await(t, "the guaranteed pod to be safest from the kernel", func() bool { return score(t, guaranteed.PID()) == -997 })
	}
	bomb.Send("leak 0 768Mi")
	e := d.AwaitGone(bomb)
	t.Logf("signalled %v after the crossing, gone %v after that, freed %s", e.Signalled.Sub(e.Crossed.Time), e.Gone.Sub(e.Signalled.Time), e.Freed)
	d.AwaitCondition(v1.NodeMemoryPressure, memoryTaint, false)
	d.MustHaveEvicted(bomb)
	harness.MustRun(t, guaranteed, within)
}

func TestMachineEndsAVictimThatIgnoresItsSignalAndHasNoProcessor(t *testing.T) {
	n := newMachine(t)
	weight := starve(n)
	before := content(t, weight)
	stubborn := n.Start("stubborn", sandbox.Spec{})
	stubborn.Do("ignore-term")
	stubborn.Do("hold 400Mi")
	busy := n.Start("busy", sandbox.Spec{Request: "16Mi"})
	busy.Do("shell while :; do :; done & while :; do :; done")
	d := protect(n, "evictionHard: {memory.available: 50Mi}")
	d.AwaitPods(memorySignal, stubborn, busy)
	configure(n, "evictionHard: {memory.available: 600Mi}")
	machine.Systemctl(t, "reload", machine.Service)
	e := d.AwaitGone(stubborn)
	t.Logf("killed %v after the signal", e.Gone.Sub(e.Signalled.Time))
	stubborn.MustHaveEndedBy(syscall.SIGKILL)
	harness.Await(t, "the class's weight to be put back", func() bool { return content(t, weight) == before })
	d.MustHaveEvicted(stubborn)
	harness.MustRun(t, busy)
}

func TestMachineSurvivesAForkBomb(t *testing.T) {
	n := newMachine(t)
	bomb := n.Start("bomb", sandbox.Spec{Request: "64Mi"})
	big := n.Start("big", sandbox.Spec{})
	big.Do("hold 100Mi")
	d := protect(n, fmt.Sprintf("evictionHard: {pid.available: '%d'}", pidsLeft(t)-300))
	d.AwaitPods("pid.available", bomb, big)
	bomb.Send("shell bomb() { bomb | bomb & }; bomb")
	e := d.AwaitGone(bomb)
	if e.Signal != "pid.available" {
		t.Errorf("unexpected eviction %+v", e)
	}
	d.AwaitCondition(v1.NodePIDPressure, v1.TaintNodePIDPressure, false)
	d.MustHaveEvicted(bomb)
	harness.MustRun(t, big)
}

// pidsLeft is how many tasks more the machine can have.
func pidsLeft(t *testing.T) int {
	t.Helper()
	number := func(text string) int {
		n, err := strconv.Atoi(text)
		require.NoError(t, err)
		return n
	}
	most := min(number(content(t, "/proc/sys/kernel/pid_max")), number(content(t, "/proc/sys/kernel/threads-max")))
	_, now, _ := strings.Cut(strings.Fields(content(t, "/proc/loadavg"))[3], "/")
	return most - number(now)
}

// TestMachineRelievesItsDisk has the service, with the capabilities of its unit, find what pods hold.
//
// rule: M.17
func TestMachineRelievesItsDisk(t *testing.T) {
	for _, fill := range []struct {
		name, signal, threshold, order string
	}{
		{"bytes", "nodefs.available", "16Mi", "write %s/much 52Mi"},
		{"a deleted file that is open", "nodefs.available", "16Mi", "unlinked %s/much 52Mi"},
		{"inodes", "nodefs.inodesFree", "10%", "files %s 1900"},
	} {
		t.Run(fill.name, func(t *testing.T) {
			n := newMachine(t)
			disk := t.TempDir() // one that takes no time to write to
			mustRun(t, "mount", "-t", "tmpfs", "-o", "size=64m,nr_inodes=2000", "tmpfs", disk)
			t.Cleanup(func() { mustRun(t, "umount", "--lazy", disk) })
			filler, small, idle := startOn(n, disk)
			d := protect(n, fmt.Sprintf("nodefs: %s\nevictionHard: {%s: %s}", disk, fill.signal, fill.threshold))
			d.AwaitPods(fill.signal, filler, small, idle)
			filler.Send(fill.order, filler.Volume(disk, "scratch"))
			cleanUp(filler, disk)
			mustHaveRelieved(d, filler, fill.signal, "The node was low on resource: ")
			harness.MustRun(t, small, idle)
		})
	}
}

func TestMachineReloadsWhatIsRightAndRefusesWhatIsWrong(t *testing.T) {
	n := newMachine(t)
	greedy := n.Start("greedy", sandbox.Spec{})
	greedy.Do("hold 300Mi")
	d := protect(n, "evictionHard: {memory.available: 50Mi}")
	d.AwaitPods(memorySignal, greedy)
	configure(n, "evictionHard: {memory.available: lots}")
	if out, err := exec.Command("systemctl", "reload", machine.Service).CombinedOutput(); err == nil {
		t.Errorf("a wrong configuration is taken: %s", out)
	}
	harness.MustRun(t, greedy)
	configure(n, "evictionHard: {memory.available: 600Mi}")
	machine.Systemctl(t, "reload", machine.Service)
	d.AwaitGone(greedy)
	d.MustHaveEvicted(greedy)
}

func TestMachineContinuesWithItsVictimAfterEvictdWasKilled(t *testing.T) {
	n := newMachine(t)
	weight := starve(n)
	before := content(t, weight)
	stubborn := n.Start("stubborn", sandbox.Spec{})
	stubborn.Do("ignore-term")
	stubborn.Do("shell while :; do :; done")
	d := protect(n, machineHard)
	d.AwaitPods(memorySignal, stubborn)
	main := machine.Show(t, "MainPID")
	stubborn.Send("leak 0 768Mi")
	d.Await("the eviction", func(s *nodestatus.Status) bool { return len(s.Evictions) > 0 })
	machine.Signal(t, "KILL")
	stubborn.AwaitEnd()
	harness.Await(t, "evictd to be started again", func() bool { return machine.Show(t, "MainPID") != main && content(t, weight) == before })
	d.AwaitCondition(v1.NodeMemoryPressure, memoryTaint, false)
}

func TestMachineReportsWhatTheKernelKillsAtAPodsOwnLimit(t *testing.T) {
	n := newMachine(t)
	limited := n.Start("limited", sandbox.Spec{Request: "32Mi"})
	n.Make(limited.Group, cgroup.Limits{Memory: stats.Known(48 * harness.MiB)})
	d := restart(n, machineHard)
	d.AwaitPods(memorySignal, limited)
	// Again and again, for what was killed before the first look is not news.
	limited.Do("shell while :; do head -c 100M /dev/zero | tail >/dev/null; done")
	s := d.Await("the kill to be reported", func(s *nodestatus.Status) bool { return len(s.KernelKills) > 0 })
	k := s.KernelKills[0]
	if k.UID != limited.UID || k.Limit != "pod" && k.Limit != "unknown" || k.Processes == 0 { // before systemd 253 by the counters alone
		t.Errorf("reported is %+v", k)
	}
	d.MustHaveEvicted()
}
