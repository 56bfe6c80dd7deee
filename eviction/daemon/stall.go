package daemon

import "os"

// withoutStalls says what is missing for memory.stall; "" if nothing is.
func (d *Daemon) withoutStalls() string {
	if d.node.cgroups == nil {
		return "the memory of the node is not that of cgroups"
	}
	if _, err := os.ReadFile(d.node.collect.Host + "/proc/pressure/memory"); err != nil {
		return "the kernel has no pressure stall information: " + err.Error()
	}
	return ""
}
