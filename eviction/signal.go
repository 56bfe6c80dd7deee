package eviction

import (
	"fmt"
	"strconv"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/evictd/evictd/stats"
)

// Signal names a figure of the node that can starve, or (the last three) a limit
// of a pod's own that it can exceed.
type Signal uint8

// The signals of node pressure: the kubelet's nine, then those of evictd alone; the three
// local-storage limits, and the admission of a pod that has arrived. These have no threshold.
const (
	MemoryAvailable Signal = iota
	AllocatableMemoryAvailable
	NodeFsAvailable
	NodeFsInodesFree
	ImageFsAvailable
	ImageFsInodesFree
	ContainerFsAvailable
	ContainerFsInodesFree
	PIDAvailable
	SwapAvailable
	MemoryStall

	EmptyDirLimit
	PodEphemeralStorageLimit
	ContainerEphemeralStorageLimit

	Admission

	// NumSignals counts the signals that a threshold can be set on.
	NumSignals = int(MemoryStall) + 1
)

// Condition is a node condition that starving signals raise.
type Condition uint8

// The conditions: the kubelet's three, and that of memory.stall. NumConditions counts them.
const (
	MemoryPressure Condition = iota
	DiskPressure
	PIDPressure
	MemoryContention

	NumConditions = int(MemoryContention) + 1
)

// Type is the condition's name in the Node API.
func (c Condition) Type() v1.NodeConditionType {
	return [NumConditions]v1.NodeConditionType{v1.NodeMemoryPressure, v1.NodeDiskPressure, v1.NodePIDPressure, "evictd.io/MemoryContention"}[c]
}

func (c Condition) String() string { return string(c.Type()) }

// Names of the resources that ranking and messages use beside those of the
// Kubernetes API. They never leave the node as resource names.
const (
	ResourceInodes v1.ResourceName = "inodes"
	ResourcePIDs   v1.ResourceName = "pids"
	ResourceSwap   v1.ResourceName = "swap"
)

var signals = [...]struct {
	name       string
	condition  Condition
	resource   v1.ResourceName
	filesystem filesystem
	format     resource.Format
}{
	MemoryAvailable:            {"memory.available", MemoryPressure, v1.ResourceMemory, noFs, resource.BinarySI},
	AllocatableMemoryAvailable: {"allocatableMemory.available", MemoryPressure, v1.ResourceMemory, noFs, resource.BinarySI},
	NodeFsAvailable:            {"nodefs.available", DiskPressure, v1.ResourceEphemeralStorage, nodeFs, resource.BinarySI},
	NodeFsInodesFree:           {"nodefs.inodesFree", DiskPressure, ResourceInodes, nodeFs, resource.DecimalSI},
	ImageFsAvailable:           {"imagefs.available", DiskPressure, v1.ResourceEphemeralStorage, imageFs, resource.BinarySI},
	ImageFsInodesFree:          {"imagefs.inodesFree", DiskPressure, ResourceInodes, imageFs, resource.DecimalSI},
	ContainerFsAvailable:       {"containerfs.available", DiskPressure, v1.ResourceEphemeralStorage, containerFs, resource.BinarySI},
	ContainerFsInodesFree:      {"containerfs.inodesFree", DiskPressure, ResourceInodes, containerFs, resource.DecimalSI},
	PIDAvailable:               {"pid.available", PIDPressure, ResourcePIDs, noFs, resource.DecimalSI},
	SwapAvailable:              {"swap.available", MemoryPressure, ResourceSwap, noFs, resource.BinarySI},
	MemoryStall:                {"memory.stall", MemoryContention, v1.ResourceMemory, noFs, resource.DecimalSI},

	EmptyDirLimit:                  {"emptydirfs.limit", DiskPressure, v1.ResourceEphemeralStorage, nodeFs, resource.BinarySI},
	PodEphemeralStorageLimit:       {"ephemeralpodfs.limit", DiskPressure, v1.ResourceEphemeralStorage, nodeFs, resource.BinarySI},
	ContainerEphemeralStorageLimit: {"ephemeralcontainerfs.limit", DiskPressure, v1.ResourceEphemeralStorage, nodeFs, resource.BinarySI},

	// No condition is raised because of it. Other victims wait only for what its pod holds.
	Admission: {"admission", DiskPressure, "admission", noFs, resource.DecimalSI},
}

// Signals lists the signals that a threshold can be set on.
func Signals() []Signal {
	all := make([]Signal, NumSignals)
	for i := range all {
		all[i] = Signal(i)
	}
	return all
}

// ParseSignal finds the signal of a threshold by its name in the kubelet's
// configuration.
func ParseSignal(name string) (Signal, error) {
	for i, s := range signals[:NumSignals] {
		if s.name == name {
			return Signal(i), nil
		}
	}
	return 0, fmt.Errorf("unsupported eviction signal %q", name)
}

func (s Signal) String() string { return signals[s].name }

// Condition is the node condition the signal raises.
func (s Signal) Condition() Condition { return signals[s].condition }

// Resource is the name of the starved resource in messages and ranking.
func (s Signal) Resource() v1.ResourceName { return signals[s].resource }

// Kubelets says whether the kubelet has the signal, and a KubeletConfiguration may.
func (s Signal) Kubelets() bool { return s <= PIDAvailable }

// Requestable says whether pods request the starved resource. What they hold in swap
// counts toward the memory that they request.
func (s Signal) Requestable() bool {
	return s.Condition() == MemoryPressure || s.Condition() == MemoryContention || s.Resource() == v1.ResourceEphemeralStorage
}

// OfPods is the signal in whose unit pods use, request and free the starved resource: memory for
// memory.stall, else the signal itself.
func (s Signal) OfPods() Signal {
	if s == MemoryStall {
		return MemoryAvailable
	}
	return s
}

// Quantity writes an amount of the signal as messages and reports show it:
// binary SI for bytes, decimal for counts, the share of the time for a stall.
func (s Signal) Quantity(amount int64) string {
	if s == MemoryStall {
		return (stats.WholeTime - Share(amount)).String()
	}
	return resource.NewQuantity(amount, signals[s].format).String()
}

// Rounded writes an amount of the signal as a person reads it: 1.4Gi for
// 1503238553 bytes, 15.9M for 15877750 inodes.
func (s Signal) Rounded(amount int64) string { return s.RoundedAs(amount, amount) }

// RoundedAs is Rounded in the unit in which Rounded writes another amount.
func (s Signal) RoundedAs(other, amount int64) string {
	if s == MemoryStall {
		return s.Quantity(amount)
	}
	base, units := int64(1024), [...]string{"Ti", "Gi", "Mi", "Ki"}
	if signals[s].format == resource.DecimalSI {
		base, units = 1000, [...]string{"T", "G", "M", "k"}
	}
	size := base * base * base * base
	for _, unit := range units {
		if other/size != 0 {
			if whole := amount / size; whole >= 100 || whole <= -100 || amount%size == 0 {
				return strconv.FormatInt(whole, 10) + unit
			}
			return fmt.Sprintf("%.1f%s", float64(amount)/float64(size), unit)
		}
		size /= base
	}
	return strconv.FormatInt(amount, 10)
}
