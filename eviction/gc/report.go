package gc

import (
	"fmt"
	"time"

	"github.com/evictd/evictd/eviction"
	"github.com/evictd/evictd/eviction/reclaim"
)

// Trigger is what a collection was run for.
type Trigger string

// The triggers: a threshold is met, a pod was evicted, the interval of containers, of images.
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

// Report is the result of one collection.
type Report struct {
	Trigger Trigger
	// Signal of the threshold, or of the disk.
	Signal       eviction.Signal
	Begun, Ended time.Time
	// Need is what the disk lacked at the beginning.
	Need eviction.Need
	// Removed lists the removed objects in order; in a dry run the chosen ones.
	Removed []reclaim.Removal
	Failed  []Failure
	// Logs are the log directories and links removed.
	Logs int
	// Expected is the sum of the known sizes of removed objects, bytes. Freed and
	// FreedInodes are what the disk gained.
	Expected, Freed, FreedInodes int64
	// Insufficient says that the disk still lacks something.
	Insufficient bool
	DryRun       bool
	// Repeated says that nothing was removed, and the last collection for the same had the same
	// result; of a dry run, that the same was chosen.
	Repeated bool
	// Error ended the collection.
	Error  error
	Faults []Fault
}

// Failure is an object that could not be removed.
type Failure struct {
	reclaim.Removal
	Err error
}

// Fault is reported to the operator as an event.
type Fault struct {
	Reason Reason
	Note   string
}

func (r *Report) fault(reason Reason, note string) {
	r.Faults = append(r.Faults, Fault{reason, note})
}

// shortfall says what was needed and what was freed.
func (w *collection) shortfall() string {
	fs := disk(w.Signal, &w.first.Node)
	used := int64(0)
	if capacity := fs.Capacity.Or(0); capacity > 0 {
		used = reclaim.UsedPercent(capacity, fs.Available.Or(0))
	}
	return fmt.Sprintf("the disk of %v was used to %d%% of its %s and needed %s and %d inodes; removing what is unused has freed %s and %d inodes",
		w.Signal, used, size(fs.Capacity.Or(0)), size(w.Need.Bytes), w.Need.Inodes, size(w.Freed), w.FreedInodes)
}

func size(bytes int64) string { return eviction.NodeFsAvailable.Quantity(bytes) }
