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
	// together is how long further kills in a pod are counted without a line and an
	// event of their own: a pod may make thousands of them.
	together = time.Minute
)

// reached says whose limit was.
var reached = map[watch.Limit]string{
	watch.OfNode:    ": the node was out of memory",
	watch.OfPods:    ": the pods together had reached their limit",
	watch.OfPod:     ": the pod or its container had reached its limit",
	watch.OfOther:   ": its cgroup had reached its limit",
	watch.OfUnknown: "",
}

// KernelKilled tells what the kernel has killed in a pod, or in none. It may be
// called from any goroutine.
func (p *Publisher) KernelKilled(k watch.Kill, pod wire.PodName) {
	p.metrics.kernelKills.WithLabelValues(string(k.Limit)).Add(float64(k.Processes))
	told := nodestatus.KernelKill{
		Time: nodestatus.Time{Time: k.At}, UID: pod.UID, Cgroup: k.Cgroup, Limit: string(k.Limit), Process: k.Process, PID: k.PID,
		Memory: text(eviction.MemoryAvailable, k.Memory), Processes: k.Processes,
	}
	if pod != (wire.PodName{}) {
		told.Pod, told.Cgroup = pod.Namespace+"/"+pod.Name, ""
	}
	if !p.list(&told) {
		return
	}
	words := fmt.Sprintf("The kernel killed process %s (pid %d, %s resident) for want of memory", k.Process, k.PID, told.Memory)
	if k.PID == 0 {
		words = fmt.Sprintf("The kernel killed %d processes for want of memory", k.Processes)
	}
	p.log.Warn("the kernel has killed for want of memory", "pod", told.Pod, "cgroup", told.Cgroup, "process", k.Process, "pid", k.PID, "memory", told.Memory, "limit", told.Limit, "processes", k.Processes)
	if k.Limit == watch.OfNode { // the kubelet's event and its words (oomWatcher)
		p.event(wire.Event{
			At: k.At, Type: v1.EventTypeWarning, Reason: "SystemOOM", Action: "Reporting",
			Note: fmt.Sprintf("System OOM encountered, victim process: %s, pid: %d", k.Process, k.PID),
		})
	}
	if told.Pod != "" {
		p.event(wire.Event{Pod: pod, At: k.At, Type: v1.EventTypeWarning, Reason: "OOMKilled", Action: "Reporting", Note: words + reached[k.Limit]})
	}
}

// list adds a kill to those of the status, and says whether it is told by itself.
func (p *Publisher) list(k *nodestatus.KernelKill) (alone bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range slices.Backward(p.kernelKills) {
		last := &p.kernelKills[i]
		if last.UID != k.UID || last.Cgroup != k.Cgroup || last.Limit != k.Limit && k.PID != 0 || k.Time.Sub(last.Time.Time) > together {
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
