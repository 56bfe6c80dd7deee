package main

import (
	"fmt"
	"os"
	"strings"
	"syscall"

	"github.com/evictd/evictd/cgroup"
)

// cgroupFinding says where memory is measured, or by the kernel's list of controllers (cgroups(7)) why it is not.
func cgroupFinding(controllers string) finding {
	s, err := cgroup.Discover("")
	if err == nil {
		return finding{Name: "cgroups", OK: true, Is: fmt.Sprintf("%v, memory controller at %s", s.Version(), s.Mount("memory"))}
	}
	is := err.Error()
	if list, err := os.ReadFile(controllers); err == nil {
		is += ": " + memoryController(string(list))
	}
	return finding{"cgroups", false, is, "memory cannot be measured; give --node-memory to measure pods by their processes"}
}

// memoryController explains from the text of /proc/cgroups why memory is not measured. A line of it has a controller's name,
// its hierarchy, its number of cgroups, and 1 if it is enabled.
func memoryController(list string) string {
	for line := range strings.Lines(list) {
		fields := strings.Fields(line)
		switch {
		case len(fields) < 4 || fields[0] != "memory":
		case fields[3] == "0":
			return "the kernel has the memory controller switched off; boot with cgroup_enable=memory (Raspberry Pi: in cmdline.txt, with cgroup_memory=1)"
		default:
			return "the kernel has the memory controller, and no hierarchy is mounted with it"
		}
	}
	return "/proc/cgroups has no memory controller: the kernel was built without it (CONFIG_MEMCG), or is of a container that does not show it"
}

// consistencyFinding reports whether pressure stall information can be believed. Before 6.12.10 the kernels of 6.12 lose count
// of tasks that wake up while they leave their queue, and a kernel that notices this writes a message to its log
// (kernel/sched/psi.c).
func consistencyFinding(release, messages string) finding {
	const name = "pressure stall information is consistent"
	lost := "stalls are shown too high or too low until the machine is booted with another kernel: give memory.stall no threshold, and memoryModel: reclaimAware is not to be relied on"
	var major, minor, patch int
	fmt.Sscanf(release, "%d.%d.%d", &major, &minor, &patch)
	switch {
	case strings.Contains(messages, "psi: inconsistent task state"):
		return finding{name, false, "kernel " + release + " says in its log: psi: inconsistent task state", lost}
	case major == 6 && minor == 12 && patch < 10:
		return finding{name, false, "kernel " + release + " is known to lose count of stalled tasks; expected 6.12.10 or later", lost}
	}
	return finding{Name: name, OK: true, Is: "kernel " + release}
}

// kernelMessages returns the last MiB of the kernel's log (syslog(2)); nothing if the kernel refuses.
func kernelMessages() string {
	const readAll = 3 // SYSLOG_ACTION_READ_ALL
	log := make([]byte, 1<<20)
	n, _ := syscall.Klogctl(readAll, log)
	return string(log[:max(n, 0)])
}
