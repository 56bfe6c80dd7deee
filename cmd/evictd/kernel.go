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

// memoryController says what /proc/cgroups has of the memory controller: lines of a name, a hierarchy, a number of
// cgroups, and whether it is enabled.
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

// consistencyFinding says whether the kernel counts stalled tasks correctly. Linux 6.12 before 6.12.10 loses count of
// tasks that are woken up while they are taken off their queue, and a kernel that has noticed says so in its log
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

// kernelMessages are what the kernel's log has now; empty if it cannot be read. A read returns one message.
func kernelMessages(path string) string {
	file, err := syscall.Open(path, syscall.O_RDONLY|syscall.O_NONBLOCK|syscall.O_CLOEXEC, 0)
	if err != nil {
		return ""
	}
	defer syscall.Close(file)
	var messages strings.Builder
	message := make([]byte, 8192) // CONSOLE_EXT_LOG_MAX
	for {
		switch n, err := syscall.Read(file, message); {
		case err == syscall.EPIPE || err == syscall.EINTR: // EPIPE: messages were overwritten
		case err != nil || n == 0:
			return messages.String()
		default:
			messages.Write(message[:n])
		}
	}
}
