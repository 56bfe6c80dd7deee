package stats

import "slices"

// MemoryModel chooses which memory counts as available.
type MemoryModel uint8

const (
	// WorkingSetModel is the kubelet's: the limit less the working set.
	WorkingSetModel MemoryModel = iota
	// AvailableModel is the kernel's MemAvailable; for a cgroup, which has no such
	// value, the limit less memory that is neither page cache nor reclaimable slab.
	AvailableModel
	// ReclaimAwareModel is the kubelet's; while they are cold, active file pages and
	// reclaimable slab count as available.
	ReclaimAwareModel
)

var memoryModels = []string{"workingSet", "available", "reclaimAware"}

func (m MemoryModel) String() string { return memoryModels[m] }

// MemoryModels lists the models' names.
func MemoryModels() []string { return slices.Clone(memoryModels) }

// ParseMemoryModel finds a model by name; the empty name is the kubelet's.
func ParseMemoryModel(name string) (MemoryModel, bool) {
	if name == "" {
		return WorkingSetModel, true
	}
	i := slices.Index(memoryModels, name)
	return MemoryModel(max(0, i)), i >= 0
}

// Available is the available memory by the model, bytes; unknown without a limit. cold
// says that reclaimable memory is unused. Huge pages never count as available
// (HugepageAwareEviction of the kubelet).
func (m Memory) Available(model MemoryModel, cold bool) Amount {
	left := func(used Amount) Amount { return m.Limit.Minus(used).Minus(Known(m.Hugetlb.Or(0))) }
	workingSet := m.WorkingSet()
	inUse := workingSet.Minus(Known(m.Reclaimable().Or(0)))
	switch model {
	case AvailableModel:
		if m.MemAvailable.known {
			return m.MemAvailable
		}
		return left(inUse)
	case ReclaimAwareModel:
		if cold {
			return left(inUse)
		}
	}
	return left(workingSet)
}
