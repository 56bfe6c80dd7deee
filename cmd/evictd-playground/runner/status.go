package runner

import (
	"fmt"
	"slices"
	"syscall"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// container is the state of one container of a pod.
type container struct {
	spec     *v1.Container
	pid      int // of the process that runs; 0 for none
	began    metav1.Time
	refused  *v1.ContainerStateWaiting // why it cannot run; nil where it can
	failed   *v1.ContainerStateWaiting // why its last start failed; nil where it did not
	last     *v1.ContainerStateTerminated
	restarts int32
	kills    int64 // by the kernel for lack of memory, until its last end
}

// ended says how a process ended (kubelet: 128 and the signal for one that was
// killed).
func (c *container) ended(at metav1.Time, status syscall.WaitStatus, outOfMemory bool) {
	code, reason := int32(status.ExitStatus()), "Completed"
	if status.Signaled() {
		code = 128 + int32(status.Signal())
	}
	if code != 0 {
		reason = "Error"
	}
	if outOfMemory {
		reason = "OOMKilled"
	}
	c.last = &v1.ContainerStateTerminated{ExitCode: code, Reason: reason, StartedAt: c.began, FinishedAt: at, ContainerID: c.id()}
	c.pid = 0
}

func (c *container) id() string { return fmt.Sprintf("process://%d", c.pid) }

// over says whether the container has ended and is not to run again.
func (c *container) over(policy v1.RestartPolicy) bool {
	return c.pid == 0 && c.last != nil &&
		(policy == v1.RestartPolicyNever || policy == v1.RestartPolicyOnFailure && c.last.ExitCode == 0)
}

func (c *container) status(over bool) v1.ContainerStatus {
	running := c.pid != 0
	s := v1.ContainerStatus{Name: c.spec.Name, Image: c.spec.Image, ImageID: c.spec.Image, RestartCount: c.restarts, Ready: running, Started: &running}
	switch {
	case running:
		s.State.Running, s.ContainerID = &v1.ContainerStateRunning{StartedAt: c.began}, c.id()
		s.LastTerminationState.Terminated = c.last
	case c.refused != nil:
		s.State.Waiting = c.refused
	case c.failed != nil && !over:
		s.State.Waiting = c.failed
	case c.last != nil && over:
		s.State.Terminated, s.ContainerID = c.last, c.last.ContainerID
	case c.last != nil:
		s.State.Waiting = &v1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}
		s.LastTerminationState.Terminated, s.ContainerID = c.last, c.last.ContainerID
	default:
		s.State.Waiting = &v1.ContainerStateWaiting{Reason: "ContainerCreating"}
	}
	return s
}

// report brings a pod's status up to date. A phase that is final stays, with its
// reason and message and every condition that is another's: the evicting program's status
// is final (kubelet, status manager). gone says that no process is left
// and none will come.
func report(pod *v1.Pod, containers []*container, gone bool, now metav1.Time) {
	s := &pod.Status
	if s.StartTime == nil {
		s.StartTime = &now
	}
	s.HostIP = "127.0.0.1"
	s.ContainerStatuses = nil
	running, ready, over, failed := false, true, true, false
	for _, c := range containers {
		done := gone || c.over(pod.Spec.RestartPolicy)
		s.ContainerStatuses = append(s.ContainerStatuses, c.status(done))
		running = running || c.pid != 0 || c.last != nil
		ready = ready && c.pid != 0
		over = over && done
		failed = failed || c.last == nil || c.last.ExitCode != 0
	}
	switch {
	case final(s.Phase):
	case over && failed:
		s.Phase = v1.PodFailed
	case over:
		s.Phase = v1.PodSucceeded
	case running:
		s.Phase = v1.PodRunning
	default:
		s.Phase = v1.PodPending
	}
	setCondition(s, v1.PodReadyToStartContainers, !over, now)
	setCondition(s, v1.PodInitialized, true, now)
	setCondition(s, v1.ContainersReady, ready, now)
	setCondition(s, v1.PodReady, ready, now)
}

func final(phase v1.PodPhase) bool { return phase == v1.PodFailed || phase == v1.PodSucceeded }

// setCondition moves the time of the transition only when the status changes.
func setCondition(s *v1.PodStatus, kind v1.PodConditionType, holds bool, now metav1.Time) {
	status := v1.ConditionFalse
	if holds {
		status = v1.ConditionTrue
	}
	i := slices.IndexFunc(s.Conditions, func(c v1.PodCondition) bool { return c.Type == kind })
	if i < 0 {
		s.Conditions = append(s.Conditions, v1.PodCondition{Type: kind})
		i = len(s.Conditions) - 1
	}
	if c := &s.Conditions[i]; c.Status != status {
		c.Status, c.LastTransitionTime = status, now
	}
}
