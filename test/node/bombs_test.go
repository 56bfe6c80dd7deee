package node_test

import (
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/evictd/evictd/nodestatus"
	"github.com/evictd/evictd/stats"
	"github.com/evictd/evictd/test/vm/machine"
)

const machineHard = "evictionHard: {memory.available: 200Mi}"

func TestMachineLetsTheServiceDoAllItCan(t *testing.T) {
	n := newMachine(t)
	n.protect(machineHard)
	stdout, _, _ := evictctl(t, "doctor")
	t.Log(stdout)
	wanted := []string{"pidfd", "process_mrelease", "cgroup.kill", "pressure stall information", "pressure triggers off the 2 s grid",
		"CAP_SYS_RESOURCE", "realtime priority", "no other eviction manager"}
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
	guaranteed := n.start("guaranteed", podSpec{request: "64Mi", limit: "64Mi"})
	within := n.start("within", podSpec{request: "128Mi"})
	bomb := n.start("bomb", podSpec{})
	guaranteed.do("hold 32")
	within.do("hold 100")
	d := n.protect(machineHard)
	d.awaitPods(memorySignal, guaranteed, within, bomb)
	await(t, "the guaranteed pod to be safest from the kernel", func() bool { return score(t, guaranteed.pid()) == -997 })
	bomb.tell("leak 0 768")
	e := d.awaitEnd(bomb)
	t.Logf("signalled %v after the crossing, gone %v after that, freed %s", e.Signalled.Sub(e.Crossed.Time), e.Gone.Sub(e.Signalled.Time), e.Freed)
	d.awaitCondition(v1.NodeMemoryPressure, memoryTaint, false)
	d.mustHaveEvicted(bomb)
	mustLive(t, guaranteed, within)
}

func TestMachineEndsAVictimThatIgnoresItsSignalAndHasNoProcessor(t *testing.T) {
	n := newMachine(t)
	weight := n.starve()
	before := content(t, weight)
	stubborn := n.start("stubborn", podSpec{})
	stubborn.do("ignore-term")
	stubborn.do("hold 400")
	busy := n.start("busy", podSpec{request: "16Mi"})
	busy.do("shell while :; do :; done & while :; do :; done")
	d := n.protect("evictionHard: {memory.available: 50Mi}")
	d.awaitPods(memorySignal, stubborn, busy)
	n.configure("evictionHard: {memory.available: 600Mi}")
	machine.Systemctl(t, "reload", machine.Service)
	e := d.awaitEnd(stubborn)
	t.Logf("killed %v after the signal", e.Gone.Sub(e.Signalled.Time))
	mustEndBy(t, stubborn, syscall.SIGKILL)
	await(t, "the class's weight to be put back", func() bool { return content(t, weight) == before })
	d.mustHaveEvicted(stubborn)
	mustLive(t, busy)
}

func TestMachineSurvivesAForkBomb(t *testing.T) {
	n := newMachine(t)
	bomb := n.start("bomb", podSpec{request: "64Mi"})
	big := n.start("big", podSpec{})
	big.do("hold 100")
	d := n.protect(fmt.Sprintf("evictionHard: {pid.available: '%d'}", pidsLeft(t)-300))
	d.awaitPods("pid.available", bomb, big)
	bomb.tell("shell bomb() { bomb | bomb & }; bomb")
	e := d.awaitEnd(bomb)
	if e.Signal != "pid.available" {
		t.Errorf("unexpected eviction %+v", e)
	}
	d.awaitCondition(v1.NodePIDPressure, v1.TaintNodePIDPressure, false)
	d.mustHaveEvicted(bomb)
	mustLive(t, big)
}

// pidsLeft is how many tasks more the machine can have.
func pidsLeft(t *testing.T) int {
	t.Helper()
	number := func(text string) int {
		n, err := strconv.Atoi(text)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	most := min(number(content(t, "/proc/sys/kernel/pid_max")), number(content(t, "/proc/sys/kernel/threads-max")))
	_, now, _ := strings.Cut(strings.Fields(content(t, "/proc/loadavg"))[3], "/")
	return most - number(now)
}

func TestMachineRelievesItsDisk(t *testing.T) {
	for _, fill := range []struct {
		signal, threshold, order string
	}{
		{"nodefs.available", "16Mi", "fill %s/much 52"},
		{"nodefs.inodesFree", "10%", "files %s 1900"},
	} {
		t.Run(fill.signal, func(t *testing.T) {
			n := newMachine(t)
			disk := t.TempDir() // one that takes no time to write to
			mustRun(t, "mount", "-t", "tmpfs", "-o", "size=64m,nr_inodes=2000", "tmpfs", disk)
			t.Cleanup(func() { mustRun(t, "umount", "--lazy", disk) })
			filler, small, idle := n.startOn(disk)
			d := n.protect(fmt.Sprintf("nodefs: %s\nevictionHard: {%s: %s}", disk, fill.signal, fill.threshold))
			d.awaitPods(fill.signal, filler, small, idle)
			filler.tell(fill.order, filler.volume(disk, "scratch"))
			filler.cleanUp(disk)
			mustHaveRelieved(d, filler, fill.signal, "The node was low on resource: ")
			mustLive(t, small, idle)
		})
	}
}

func TestMachineReloadsWhatIsRightAndRefusesWhatIsWrong(t *testing.T) {
	n := newMachine(t)
	greedy := n.start("greedy", podSpec{})
	greedy.do("hold 300")
	d := n.protect("evictionHard: {memory.available: 50Mi}")
	d.awaitPods(memorySignal, greedy)
	n.configure("evictionHard: {memory.available: lots}")
	if out, err := exec.Command("systemctl", "reload", machine.Service).CombinedOutput(); err == nil {
		t.Errorf("a wrong configuration is taken: %s", out)
	}
	mustLive(t, greedy)
	n.configure("evictionHard: {memory.available: 600Mi}")
	machine.Systemctl(t, "reload", machine.Service)
	d.awaitEnd(greedy)
	d.mustHaveEvicted(greedy)
}

func TestMachineGoesOnWithItsVictimAfterEvictdWasKilled(t *testing.T) {
	n := newMachine(t)
	weight := n.starve()
	before := content(t, weight)
	stubborn := n.start("stubborn", podSpec{})
	stubborn.do("ignore-term")
	stubborn.do("shell while :; do :; done")
	d := n.protect(machineHard)
	d.awaitPods(memorySignal, stubborn)
	main := machine.Show(t, "MainPID")
	stubborn.tell("leak 0 768")
	d.await("the eviction", func(s *nodestatus.Status) bool { return len(s.Evictions) > 0 })
	machine.Signal(t, "KILL")
	stubborn.mustDie()
	await(t, "evictd to be started again", func() bool { return machine.Show(t, "MainPID") != main && content(t, weight) == before })
	d.awaitCondition(v1.NodeMemoryPressure, memoryTaint, false)
}

func TestMachineTellsWhatTheKernelKillsAtAPodsOwnLimit(t *testing.T) {
	n := newMachine(t)
	limited := n.start("limited", podSpec{request: "32Mi"})
	group, err := n.cgroups.Open(limited.group)
	if err == nil {
		err = group.SetMemoryLimit(stats.Known(48 * mib))
		group.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	d := n.restart(machineHard)
	d.awaitPods(memorySignal, limited)
	// Again and again, for what was killed before the first look is not news.
	limited.do("shell while :; do head -c 100M /dev/zero | tail >/dev/null; done")
	s := d.await("the kill to be told", func(s *nodestatus.Status) bool { return len(s.KernelKills) > 0 })
	k := s.KernelKills[0]
	if k.UID != limited.UID || k.Limit != "pod" && k.Limit != "unknown" || k.Processes == 0 { // before systemd 253 by the counters alone
		t.Errorf("told is %+v", k)
	}
	d.mustHaveEvicted()
}
