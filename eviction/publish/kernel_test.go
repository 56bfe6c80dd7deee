package publish_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/evictd/evictd/eviction/publish"
	"github.com/evictd/evictd/internal/wire"
	"github.com/evictd/evictd/nodestatus"
	"github.com/evictd/evictd/oom/watch"
	"github.com/evictd/evictd/stats"
)

// rule: 8.19
func TestAKernelKillIsReportedByLogMetricsStatusAndEvents(t *testing.T) {
	client, now := &keptEvents{}, &fixedSnapshot{}
	p := newFixture(t, publish.Config{Cluster: client}, now)
	s := newReporter()
	now.at(s, s.pass(0, "housekeeping", reading(3*gibi)))
	pod := wire.PodName{UID: "uid-a", Namespace: "default", Name: "a"}
	kill := watch.Kill{At: begun, Pod: "uid-a", Limit: watch.OfPod, Processes: 1, PID: 7, Process: `x\x1b`, Memory: stats.Known(30 * mebi), Cgroup: "/kubepods/poda/c"}
	p.KernelKilled(kill, pod)
	again := kill
	again.At, again.PID = begun.Add(time.Second), 8
	p.KernelKilled(again, pod)
	p.KernelKilled(watch.Kill{At: begun.Add(2 * time.Second), Pod: "uid-a", Limit: watch.OfUnknown, Processes: 40}, pod)
	p.KernelKilled(watch.Kill{At: begun.Add(3 * time.Second), Limit: watch.OfNode, Processes: 1, PID: 9, Process: "sshd", Memory: stats.Known(mebi), Cgroup: "/ssh"}, wire.PodName{})
	kill.At = begun.Add(5 * time.Minute)
	p.KernelKilled(kill, pod)

	at := func(d time.Duration) nodestatus.Time { return nodestatus.Time{Time: begun.Add(d)} }
	want := []nodestatus.KernelKill{
		{Time: at(2 * time.Second), Pod: "default/a", UID: "uid-a", Limit: "pod", Process: `x\x1b`, PID: 8, Memory: "30Mi", Processes: 42},
		{Time: at(3 * time.Second), Cgroup: "/ssh", Limit: "node", Process: "sshd", PID: 9, Memory: "1Mi", Processes: 1},
		{Time: at(5 * time.Minute), Pod: "default/a", UID: "uid-a", Limit: "pod", Process: `x\x1b`, PID: 7, Memory: "30Mi", Processes: 1},
	}
	if got := p.status().KernelKills; !slices.Equal(got, want) {
		t.Errorf("the status has\n%+v, want\n%+v", got, want)
	}
	const note = `The kernel killed process x\x1b (pid 7, 30Mi resident): out of memory: the pod or its container had reached its limit`
	events := []wire.Event{
		{Pod: pod, At: begun, Type: "Warning", Reason: "OOMKilled", Action: "Reporting", Note: note},
		{At: begun.Add(3 * time.Second), Type: "Warning", Reason: "SystemOOM", Action: "Reporting", Note: "System OOM encountered, victim process: sshd, pid: 9"},
		{Pod: pod, At: begun.Add(5 * time.Minute), Type: "Warning", Reason: "OOMKilled", Action: "Reporting", Note: note},
	}
	if !slices.Equal(client.events, events) {
		t.Errorf("events %+v, want %+v", client.events, events)
	}
	p.hasSeries(`evictd_kernel_oom_kills_total{limit="node"} 1`, `evictd_kernel_oom_kills_total{limit="pod"} 3`, `evictd_kernel_oom_kills_total{limit="unknown"} 40`)
	line := func(pod, cgroup, process string, pid int, memory, limit string) string {
		return fmt.Sprintf("level=WARN msg=\"the kernel's OOM killer has killed\" pod=%s cgroup=%s process=%s pid=%d memory=%s limit=%s processes=1\n", pod, cgroup, process, pid, memory, limit)
	}
	ofA := line("default/a", `""`, `x\x1b`, 7, "30Mi", "pod")
	if want := ofA + line(`""`, "/ssh", "sshd", 9, "1Mi", "node") + ofA; p.log.String() != want {
		t.Errorf("the log says\n%s\nwant\n%s", p.log.String(), want)
	}
}

func TestTheStatusKeepsTheLastKernelKills(t *testing.T) {
	now := &fixedSnapshot{}
	p := newFixture(t, publish.Config{}, now)
	s := newReporter()
	now.at(s, s.pass(0, "housekeeping", reading(3*gibi)))
	for i := range 50 {
		p.KernelKilled(watch.Kill{At: begun, Limit: watch.OfOther, Processes: 1, PID: i + 1, Cgroup: fmt.Sprint("/", i)}, wire.PodName{})
	}
	kept := p.status().KernelKills
	if len(kept) != 20 || kept[0].Cgroup != "/30" || kept[19].Cgroup != "/49" {
		t.Errorf("%d are kept: %+v", len(kept), kept)
	}
}
