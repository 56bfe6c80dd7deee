package collect

import (
	"bufio"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"github.com/evictd/evictd/internal/require"
	"github.com/evictd/evictd/stats"
)

func TestASessionAndItsDescendantsAreThePod(t *testing.T) {
	host := t.TempDir()
	stat := func(pid, state, parent, session, threads string) {
		put(t, host+"/proc/"+pid+"/stat", pid+" (a) b) "+state+" "+parent+" 0 "+session+" 0 -1 0 0 0 0 0 0 0 0 0 20 0 "+threads+" 0 1 2 3\n")
		put(t, host+"/proc/"+pid+"/status", "Name:\tx\nVmRSS:\t 900 kB\nRssAnon:\t 100 kB\nRssFile:\t 700 kB\nRssShmem:\t 10 kB\n")
	}
	stat("10", "S", "1", "10", "1") // the leader
	stat("11", "S", "10", "10", "4")
	stat("12", "S", "1", "10", "1")  // reparented, of the session
	stat("13", "S", "11", "13", "2") // a session of its own, but a descendant
	stat("14", "Z", "10", "10", "1")
	stat("20", "S", "1", "20", "7")
	stat("30", "S", "31", "0", "1") // a loop, as a racing scan may show
	stat("31", "S", "30", "0", "1")
	put(t, host+"/proc/self/stat", "nonsense")
	put(t, host+"/proc/40/stat", "40 (cut")
	p := NewProcesses(host)
	require.NoError(t, p.Scan())
	var got stats.Pod
	p.pod(10, &got)
	if got.Memory != stats.Known(4*110<<10) || got.Processes != stats.Known(4) || got.Threads != stats.Known(8) {
		t.Errorf("got %v", got)
	}
	if used := p.Usage([]int{10, 13, 20}); used != stats.Known(5*110<<10) {
		t.Errorf("pods that overlap: got %v", used)
	}
	if p.pod(99, &got); got.Processes != stats.Known(0) {
		t.Errorf("a pod without processes: got %v", got)
	}
}

func TestANodeWithoutCgroupsUsesWhatItsPodsProcessesUse(t *testing.T) {
	leader := exec.Command("sh", "-c", "x=$(head -c 20000000 /dev/zero | tr '\\0' x); sh -c 'echo ready; exec sleep 300' & read end; kill $!")
	leader.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	in, err := leader.StdinPipe()
	require.NoError(t, err)
	out, err := leader.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, leader.Start())
	t.Cleanup(func() {
		in.Close()
		leader.Wait()
	})
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	processes := NewProcesses("")
	n, logged := newNode(t, NodeConfig{Virtual: &VirtualMemory{
		Capacity: 1 << 30, Processes: processes, Leaders: func() []int { return []int{leader.Process.Pid} },
	}}, Paths{NodeFs: "/"})
	p := NewPod(PodConfig{Processes: processes, Leader: leader.Process.Pid, Containers: []string{"c"}})
	var node stats.Node
	var pod stats.Pod
	n.Read(&node, Ask{Disks: true})
	if err := p.Read(&pod); err != nil || logged.Len() > 0 {
		t.Fatalf("got %v, logged %s", err, logged)
	}
	if pod.Processes != stats.Known(2) || pod.Threads != stats.Known(2) || pod.Containers[0].Memory.IsKnown() {
		t.Errorf("pod: got %v", pod)
	}
	if used := pod.Memory.Or(0); used < 20_000_000 || used > 200<<20 {
		t.Errorf("20 MB show as %d", used)
	}
	if used := node.Memory.Usage.Or(0); used < 20_000_000 || used > 200<<20 {
		t.Errorf("node: 20 MB show as %d", used)
	}
	node.Memory.Usage = stats.Amount{}
	if node.Memory != (stats.Memory{Limit: stats.Known(1 << 30)}) || !node.Tasks.Running.IsKnown() || node.PodsMemory != (stats.Memory{}) {
		t.Errorf("node: got %v", node)
	}
}

func FuzzProcessStatus(f *testing.F) {
	own, err := os.ReadFile("/proc/self/status")
	if err != nil {
		f.Skip("skipped: needs /proc:", err)
	}
	f.Add(string(own))
	f.Add("RssAnon:\t99999999999999999999 kB\n")
	f.Fuzz(func(t *testing.T, s string) {
		if n := parseResident(s); n < 0 {
			t.Fatalf("%d out of %q", n, s)
		}
	})
}

func BenchmarkScanOfAllProcesses(b *testing.B) {
	p := NewProcesses("")
	for b.Loop() {
		require.NoError(b, p.Scan())
	}
}
