package publish

import (
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/evictd/evictd/eviction"
	"github.com/evictd/evictd/internal/wire"
	"github.com/evictd/evictd/nodestatus"
	"github.com/evictd/evictd/oom/watch"
)

const (
	// keptKernelKills bounds those in the status document.
	keptKernelKills = 20
	// kernelKillWindow is how long further OOM kills in a pod are counted without a log
	// line and an event of their own.
	kernelKillWindow = time.Minute
)

// limitText names the limit that was reached.
var limitText = map[watch.Limit]string{
	watch.OfNode:    ": the memory of the node was exhausted",
	watch.OfPods:    ": all pods together had reached their limit",
	watch.OfPod:     ": the pod or its container had reached its limit",
	watch.OfOther:   ": its cgroup had reached its limit",
	watch.OfUnknown: "",
}

// KernelKilled reports an OOM kill of the kernel, in a pod or outside pods. It may be
// called from any goroutine.
func (p *Publisher) KernelKilled(k watch.Kill, pod wire.PodName) {
	p.metrics.kernelKills.WithLabelValues(string(k.Limit)).Add(float64(k.Processes))
	killed := nodestatus.KernelKill{
		Time: nodestatus.Time{Time: k.At}, UID: pod.UID, Cgroup: k.Cgroup, Limit: string(k.Limit), Process: k.Process, PID: k.PID,
		Memory: text(eviction.MemoryAvailable, k.Memory), Processes: k.Processes,
	}
	if pod != (wire.PodName{}) {
		killed.Pod, killed.Cgroup = pod.Namespace+"/"+pod.Name, ""
	}
	if !p.addKernelKill(&killed) {
		return
	}
	words := fmt.Sprintf("The kernel killed process %s (pid %d, %s resident): out of memory", k.Process, k.PID, killed.Memory)
	if k.PID == 0 {
		words = fmt.Sprintf("The kernel killed %d processes: out of memory", k.Processes)
	}
	p.log.Warn("the kernel's OOM killer has killed", "pod", killed.Pod, "cgroup", killed.Cgroup, "process", k.Process, "pid", k.PID, "memory", killed.Memory, "limit", killed.Limit, "processes", k.Processes)
	if k.Limit == watch.OfNode { // the kubelet's event and message (oomWatcher)
		p.event(wire.Event{
			At: k.At, Type: v1.EventTypeWarning, Reason: "SystemOOM", Action: "Reporting",
			Note: fmt.Sprintf("System OOM encountered, victim process: %s, pid: %d", k.Process, k.PID),
		})
	}
	if killed.Pod != "" {
		p.event(wire.Event{Pod: pod, At: k.At, Type: v1.EventTypeWarning, Reason: "OOMKilled", Action: "Reporting", Note: words + limitText[k.Limit]})
	}
}

// addKernelKill adds a kill to those of the status, and says whether it has a log line
// and an event of its own.
func (p *Publisher) addKernelKill(k *nodestatus.KernelKill) (alone bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range slices.Backward(p.kernelKills) {
		last := &p.kernelKills[i]
		if last.UID != k.UID || last.Cgroup != k.Cgroup || last.Limit != k.Limit && k.PID != 0 || k.Time.Sub(last.Time.Time) > kernelKillWindow {
			continue
		}
		last.Processes += k.Processes
		last.Time = k.Time
		if k.PID != 0 {
			last.Process, last.PID, last.Memory = k.Process, k.PID, k.Memory
		}
		return false
	}
	p.kernelKills = append(p.kernelKills, *k)
	p.kernelKills = p.kernelKills[max(0, len(p.kernelKills)-keptKernelKills):]
	return true
}
