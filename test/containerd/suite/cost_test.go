package suite_test

import (
	"fmt"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/evictd/evictd/internal/campaign"
	"github.com/evictd/evictd/internal/require"
	"github.com/evictd/evictd/test/containerd/node"
)

// What the node of the campaign runs: as many pods as a node takes, nearly.
var (
	crowdPods       = campaign.Size(100, 4)
	containersOfPod = campaign.Size(5, 2)
	measured        = campaign.Size(time.Minute, 2*time.Second)
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

// What evictd, its agent and containerd use in a minute with 500 containers at
// evictd's own pace of ten seconds a pass, what one such pass takes of it, by the
// difference to a pass a second, and what one `crictl stats` uses.
func TestCampaignCostOfFiveHundredContainers(t *testing.T) {
	campaign.Only(t)
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
		var cpu, passes [2]float64
		for i, every := range []string{"10s", "1s"} {
			e := n.Evictd(append([]string{"--housekeeping-interval=" + every}, run.arguments...)...)
			e.AwaitPods(crowdPods)
			pids := map[string]int{"evictd": e.PID(), "evictd-agent": e.Agent(), "containerd": n.Pid()}
			before := map[string]time.Duration{}
			for name, pid := range pids {
				before[name] = processor(t, pid)
			}
			regular, others := passesOf(t, e)
			<-time.After(measured)
			cpu[i] = (processor(t, pids["evictd"]) - before["evictd"]).Seconds()
			regularNow, othersNow := passesOf(t, e)
			passes[i] = regularNow - regular
			var line []string
			for _, name := range []string{"evictd", "evictd-agent", "containerd"} {
				line = append(line, fmt.Sprint(name, " ", processor(t, pids[name])-before[name], " ", resident(t, pids[name])>>20, " MiB"))
			}
			t.Logf("%s, a pass every %s, CPU in %v and resident memory: %s; %v housekeeping passes and %v others; load %s",
				run.name, every, measured, strings.Join(line, ", "), passes[i], othersNow-others, load(t))
			e.Stop()
		}
		t.Logf("%s, CPU of one housekeeping pass: %.0f ms", run.name, 1e3*(cpu[1]-cpu[0])/(passes[1]-passes[0]))
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

// passesOf counts the housekeeping passes, and all others.
func passesOf(t *testing.T, e *node.Evictd) (housekeeping, others float64) {
	t.Helper()
	for line := range strings.Lines(e.Metrics()) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		if !strings.HasPrefix(name, "evictd_passes_total{") {
			continue
		}
		count, err := strconv.ParseFloat(value, 64)
		require.NoError(t, err)
		if strings.Contains(name, `"housekeeping"`) {
			housekeeping += count
		} else {
			others += count
		}
	}
	return housekeeping, others
}

func median(of []time.Duration) time.Duration {
	slices.Sort(of)
	return of[len(of)/2]
}

func load(t *testing.T) string {
	t.Helper()
	text := require.ReadFile(t, "/proc/loadavg")
	return strings.Fields(string(text))[0]
}

// processor is the CPU time of a process: fields 14 and 15 of /proc/PID/stat, in
// hundredths of a second, see proc_pid_stat(5).
func processor(t *testing.T, pid int) time.Duration {
	t.Helper()
	text := require.ReadFile(t, fmt.Sprintf("/proc/%d/stat", pid))
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	return time.Duration(number(t, fields[11])+number(t, fields[12])) * 10 * time.Millisecond
}

// resident is the second field of /proc/PID/statm, in bytes.
func resident(t *testing.T, pid int) int64 {
	t.Helper()
	text := require.ReadFile(t, fmt.Sprintf("/proc/%d/statm", pid))
	return number(t, strings.Fields(string(text))[1]) * int64(syscall.Getpagesize())
}

func number(t *testing.T, text string) int64 {
	t.Helper()
	n, err := strconv.ParseInt(text, 10, 64)
	require.NoError(t, err)
	return n
}
