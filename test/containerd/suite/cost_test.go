package suite_test

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/evictd/evictd/test/containerd/node"
)

// What the node of the campaign runs: as many pods as a node takes, nearly.
const (
	crowdPods       = 100
	containersOfPod = 5
	measured        = time.Minute
)

// crowd starts the pods of the campaign.
func crowd(n *node.Node) {
	for i := range crowdPods {
		m := &v1.Pod{}
		m.Name = fmt.Sprint("p", i)
		for c := range containersOfPod {
			m.Spec.Containers = append(m.Spec.Containers, v1.Container{Name: fmt.Sprint("c", c)})
		}
		n.Run(m)
	}
}

// What evictd, its agent and containerd use in a minute with 500 containers, at
// evictd's own pace of ten seconds a pass, and what one `crictl stats` uses.
func TestCampaignCostOfFiveHundredContainers(t *testing.T) {
	if os.Getenv("EVICTD_CAMPAIGN") != "1" {
		t.Skip("skipped: takes minutes; EVICTD_CAMPAIGN=1 runs it")
	}
	crictl, err := node.Program("crictl")
	if err != nil {
		t.Skip("skipped:", err)
	}
	n := node.Start(t, node.Built, node.Options{Memory: 1024 * node.MiB})
	crowd(n)
	t.Logf("%d containers in %d pods, load %s", crowdPods*containersOfPod, crowdPods, load(t))
	for _, run := range []struct {
		name      string
		arguments []string
	}{
		{"calm", nil},
		{"memory pressure, decided at every pass and not carried out", []string{"--dry-run", "--eviction-hard=memory.available<1000Mi"}},
	} {
		e := n.Evictd(append([]string{"--housekeeping-interval=10s"}, run.arguments...)...)
		e.AwaitPods(crowdPods)
		evictd, agent := e.Pids()
		pids := map[string]int{"evictd": evictd, "evictd-agent": agent, "containerd": n.Pid()}
		before := map[string]time.Duration{}
		for name, pid := range pids {
			before[name] = processor(t, pid)
		}
		<-time.After(measured)
		var line []string
		for _, name := range []string{"evictd", "evictd-agent", "containerd"} {
			line = append(line, fmt.Sprint(name, " ", processor(t, pids[name])-before[name], " ", resident(t, pids[name])>>20, " MiB"))
		}
		t.Logf("%s, CPU in %v and resident memory: %s; load %s", run.name, measured, strings.Join(line, ", "), load(t))
		e.Stop()
	}
	var took, client, runtime []time.Duration
	for range 6 {
		begun, before := time.Now(), processor(t, n.Pid())
		stats := exec.CommandContext(t.Context(), crictl, "--runtime-endpoint", n.Endpoint(), "--timeout", "60s", "stats", "-o", "json")
		if out, err := stats.CombinedOutput(); err != nil {
			t.Fatalf("crictl stats: %v\n%s", err, out)
		}
		took, client = append(took, time.Since(begun)), append(client, stats.ProcessState.UserTime()+stats.ProcessState.SystemTime())
		runtime = append(runtime, processor(t, n.Pid())-before)
	}
	t.Logf("crictl stats, median of 6: %v, of CPU its own %v and containerd's %v; load %s", median(took), median(client), median(runtime), load(t))
}

func median(of []time.Duration) time.Duration {
	slices.Sort(of)
	return of[len(of)/2]
}

func load(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		t.Fatal(err)
	}
	return strings.Fields(string(text))[0]
}

// processor is the CPU time of a process: fields 14 and 15 of /proc/PID/stat, in
// hundredths of a second, see proc_pid_stat(5).
func processor(t *testing.T, pid int) time.Duration {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	return time.Duration(number(t, fields[11])+number(t, fields[12])) * 10 * time.Millisecond
}

// resident is the second field of /proc/PID/statm, in bytes.
func resident(t *testing.T, pid int) int64 {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		t.Fatal(err)
	}
	return number(t, strings.Fields(string(text))[1]) * int64(syscall.Getpagesize())
}

func number(t *testing.T, text string) int64 {
	t.Helper()
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}
