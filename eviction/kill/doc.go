// Package kill ends pods: SIGTERM, the grace period, SIGKILL, process_mrelease(2),
// and confirms that no process is left. It decides nothing, calls no container
// runtime, starts no program and never blocks its caller. It needs pidfds (Linux 5.3).
//
// Every process is signalled through a pidfd that was compared with a second listing of
// the cgroup, so that no reused process id is signalled. The pidfds of the pods that rank
// first are opened beforehand (Prepare): nothing is opened between decision and first
// signal. Timers of the kernel keep the grace period, since those of the Go runtime are
// up to a millisecond late. SIGKILL uses cgroup.kill where the kernel has it.
//
// A dying process needs processor time, which a throttled pod or a pod with a low weight
// does not get. With SIGKILL the weight of the pod's cgroup is raised, those of the cgroups between
// it and the pods' cgroup to four fifths of the processor at most, and its quota is removed, until the pod is
// gone or overdue. A pod of cgroup v1 that forks faster
// than it is listed is frozen for one round. The Target records each such write before
// it is made (eviction/undo) and undoes it after the kill.
//
// A pod that still runs 10 s after its grace period (Overdue) is reported as failed; its
// kill continues.
package kill
