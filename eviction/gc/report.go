package gc

import (
	"fmt"
	"time"

	"github.com/evictd/evictd/eviction"
	"github.com/evictd/evictd/eviction/reclaim"
)

// Trigger is what a collection was for.
type Trigger string

// The occasions: a threshold acts, a pod was evicted, or it is time.
const (
	Pressure   Trigger = "pressure"
	Evicted    Trigger = "evicted"
	Containers Trigger = "containers"
	Images     Trigger = "images"
)

// Reason of a fault, by the kubelet's name for its event.
type Reason string

// The reasons.
const (
	FreeDiskSpaceFailed Reason = "FreeDiskSpaceFailed"
	InvalidDiskCapacity Reason = "InvalidDiskCapacity"
	ImageGCFailed       Reason = "ImageGCFailed"
	ContainerGCFailed   Reason = "ContainerGCFailed"
)

// Reasons are all of them.
func Reasons() []Reason {
	return []Reason{FreeDiskSpaceFailed, InvalidDiskCapacity, ImageGCFailed, ContainerGCFailed}
}

// Report is what one collection came to.
type Report struct {
	Trigger Trigger
	// Signal that it was for, or of the disk that it was on.
	Signal       eviction.Signal
	Begun, Ended time.Time
	// Need at the beginning.
	Need eviction.Need
	// Removed in order; in a dry run what would be.
	Removed []reclaim.Removal
	Failed  []Failure
	// Logs are the log directories and links removed.
	Logs int
	// Expected is what the removals were to free, bytes, as far as known; Freed
	// and FreedInodes what the disk has gained meanwhile.
	Expected, Freed, FreedInodes int64
	// Insufficient: it was not enough.
	Insufficient bool
	DryRun       bool
	// Error ended the collection.
	Error  error
	Faults []Fault
}

// Failure is something that could not be removed.
type Failure struct {
	reclaim.Removal
	Err error
}

// Fault is something for the operator to know.
type Fault struct {
	Reason Reason
	Note   string
}

func (r *Report) fault(reason Reason, note string) {
	r.Faults = append(r.Faults, Fault{reason, note})
}

// shortfall says what was needed and what came of it.
func (w *round) shortfall() string {
	fs := disk(w.Signal, &w.first.Node)
	used := int64(0)
	if capacity := fs.Capacity.Or(0); capacity > 0 {
		used = reclaim.UsedPercent(capacity, fs.Available.Or(0))
	}
	return fmt.Sprintf("the disk of %v was used to %d%% of its %s and needed %s and %d inodes; removing what is unused has freed %s and %d inodes",
		w.Signal, used, size(fs.Capacity.Or(0)), size(w.Need.Bytes), w.Need.Inodes, size(w.Freed), w.FreedInodes)
}

func size(bytes int64) string { return eviction.NodeFsAvailable.Quantity(bytes) }
