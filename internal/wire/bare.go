package wire

import "time"

// BareSet is all the containers that runc runs on this host, whoever had it run
// them. It replaces the one before.
type BareSet struct {
	Containers []Bare `json:"containers,omitempty"`
}

// Bare is a container as runc keeps it. What it does not say is empty or zero.
type Bare struct {
	ID      string    `json:"id"`
	Created time.Time `json:"created"`
	// Cgroup is the directory of the container's group: of the unified hierarchy, or
	// of the memory controller's.
	Cgroup            string `json:"cgroup,omitempty"`
	MemoryLimit       int64  `json:"memoryLimit,omitempty"`       // bytes
	MemoryReservation int64  `json:"memoryReservation,omitempty"` // bytes
	CPUQuota          int64  `json:"cpuQuota,omitempty"`          // microseconds a period
	CPUPeriod         uint64 `json:"cpuPeriod,omitempty"`
	OOMScoreAdj       *int   `json:"oomScoreAdj,omitempty"`
	// What the runtime of a pod says that the container is part of.
	Sandbox   string `json:"sandbox,omitempty"`
	UID       string `json:"uid,omitempty"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name,omitempty"`
	Container string `json:"container,omitempty"`
}
