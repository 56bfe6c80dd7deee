package daemon

import (
	"os"

	"github.com/evictd/evictd/cgroup"
)

// withoutStalls says what is missing for memory.stall; "" if nothing is.
func (d *Daemon) withoutStalls() string {
	if d.node.cgroups == nil {
		return "the memory of the node is not that of cgroups"
	}
	if _, err := os.ReadFile(d.node.collect.Host + "/proc/pressure/memory"); err != nil {
		return "the kernel has no pressure stall information: " + err.Error()
	}
	if d.node.cgroups.Version() == cgroup.V1 {
		d.log.Info("memory.stall is that of the machine alone, and pods rank for it by what they read back: cgroup v1 has no stalls of cgroups")
	}
	return ""
}
