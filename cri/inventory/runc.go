package inventory

// RuncContainer is a container as runc's state file has it. What that does not say is empty
// or zero.
type RuncContainer struct {
	ID string `json:"id"`
	// Cgroup is the directory of the container's group: of the unified hierarchy, or
	// of the memory controller's.
	Cgroup            string `json:"cgroup,omitempty"`
	MemoryLimit       int64  `json:"memoryLimit,omitempty"`       // bytes
	MemoryReservation int64  `json:"memoryReservation,omitempty"` // bytes
	CPUQuota          int64  `json:"cpuQuota,omitempty"`          // microseconds a period
	CPUPeriod         uint64 `json:"cpuPeriod,omitempty"`
	// The pod that the container is part of, by the labels of its runtime.
	Sandbox   string `json:"sandbox,omitempty"`
	UID       string `json:"uid,omitempty"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name,omitempty"`
	Container string `json:"container,omitempty"`
}
