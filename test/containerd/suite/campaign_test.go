package suite_test

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evictd/evictd/test/containerd/node"
)

// usage of a process: processor time and resident memory (proc_pid_stat(5),
// proc_pid_status(5)).
func usage(t *testing.T, pid int) (cpu time.Duration, resident string) {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+2:]))
	for _, field := range fields[11:13] {
		ticks, err := strconv.Atoi(field)
		if err != nil {
			t.Fatal(err)
		}
		cpu += time.Duration(ticks) * 10 * time.Millisecond
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(status)) {
		if strings.HasPrefix(line, "VmRSS:") || strings.HasPrefix(line, "RssAnon:") {
			resident += " " + strings.Join(strings.Fields(line), " ")
		}
	}
	return cpu, resident
}

func TestCampaignManyContainersCostLittle(t *testing.T) {
	if os.Getenv("EVICTD_CAMPAIGN") != "1" {
		t.Skip("skipped: runs hundreds of containers: EVICTD_CAMPAIGN=1 runs it")
	}
	crictl, err := node.Program("crictl")
	if err != nil {
		t.Skip("skipped:", err)
	}
	const pods, containers, span = 10, 25, 30 * time.Second
	n := node.Start(t, node.Built, node.Options{})
	for i := range pods {
		m := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("many-", i)}}
		for c := range containers {
			m.Spec.Containers = append(m.Spec.Containers, v1.Container{Name: fmt.Sprint("c", c)})
		}
		n.Run(m)
	}
	for name, threshold := range map[string]string{"no pressure": "1Mi", "a threshold that is met all the time": "500Mi"} {
		e := n.Evictd("--dry-run", "--eviction-hard=memory.available<"+threshold, "--housekeeping-interval=10s")
		e.AwaitPods(pods)
		evictd, agent := e.Pids()
		calls := e.Status().Runtime.Calls
		<-time.After(span / 3) // the first listing and survey are over
		cpu, _ := usage(t, evictd)
		agentCPU, _ := usage(t, agent)
		<-time.After(span)
		after, resident := usage(t, evictd)
		agentAfter, agentResident := usage(t, agent)
		t.Logf("%d containers, %s: in %v evictd used %v of a processor,%s", pods*containers, name, span, after-cpu, resident)
		t.Logf("its agent %v,%s", agentAfter-agentCPU, agentResident)
		for method, now := range e.Status().Runtime.Calls {
			if count := now.Count - calls[method].Count; count > 0 {
				t.Logf("%s: %d calls, %.1f ms each", method, count, 1000*(now.Seconds-calls[method].Seconds)/float64(count))
			}
		}
		e.Stop()
	}
	stats := exec.CommandContext(t.Context(), crictl, "--runtime-endpoint", n.Endpoint(), "stats", "-a", "-o", "json")
	began := time.Now()
	if out, err := stats.CombinedOutput(); err != nil {
		t.Fatalf("crictl stats: %v: %s", err, out)
	}
	t.Logf("crictl stats -a: %v, %v of a processor", time.Since(began), stats.ProcessState.UserTime()+stats.ProcessState.SystemTime())
	load, _ := os.ReadFile("/proc/loadavg")
	t.Logf("load %s", strings.TrimSpace(string(load)))
}
