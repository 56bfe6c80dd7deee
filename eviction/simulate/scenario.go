// Package simulate runs the decision core over a scenario written in text: the
// node, its pods, and step by step what is measured. It shares every line of
// decision code with the daemon and does no I/O.
package simulate

import (
	"encoding/json"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evictd/evictd/eviction"
	"github.com/evictd/evictd/eviction/config"
)

// Kind of a scenario file; its apiVersion is config.APIVersion.
const Kind = "Scenario"

// File is a scenario as text has it.
type File struct {
	metav1.TypeMeta `json:",inline"`
	Metadata        struct {
		Name string `json:"name"`
	} `json:"metadata"`
	Spec FileSpec `json:"spec"`
}

// FileSpec is a node, its configuration and what happens on it.
type FileSpec struct {
	Config config.EvictdConfiguration `json:"config"`
	Node   FileNode                   `json:"node"`
	Pods   []v1.Pod                   `json:"pods"`
	Steps  []FileStep                 `json:"steps"`
	Daemon FileDaemon                 `json:"daemon,omitzero"`
}

// FileDaemon is what the daemon adds to the configuration: see eviction.Config.
type FileDaemon struct {
	Lapse        metav1.Duration `json:"lapse,omitzero"`
	SoftPatience metav1.Duration `json:"softPatience,omitzero"`
	DryRun       bool            `json:"dryRun,omitempty"`
	// The field turns rules on that need more facts than earlier scenarios give.
	MeasuresRelief bool `json:"measuresRelief,omitempty"`
}

// FileNode is the node; Filesystems is the name of an eviction.Layout.
type FileNode struct {
	Name        string          `json:"name"`
	Capacity    v1.ResourceList `json:"capacity,omitempty"`
	Filesystems string          `json:"filesystems,omitempty"`
}

// FileStep is one pass. Pods are named namespace/name.
type FileStep struct {
	At metav1.Duration `json:"at"`
	// Event says that the pass looks at hard thresholds only.
	Event bool `json:"event,omitempty"`
	// Watch says that the pass decides about steps before evictions and nothing else.
	Watch       bool                       `json:"watch,omitempty"`
	Signals     map[string]json.RawMessage `json:"signals,omitempty"`
	Usage       map[string]*FileUsage      `json:"usage,omitempty"`
	NodeReclaim FileReclaim                `json:"nodeReclaim,omitzero"`
	// Reclaiming are signals whose reclaim runs on after the pass, should it ask for
	// one, and Reclaimed those for which it has ended since the step before.
	Reclaiming []string `json:"reclaiming,omitempty"`
	Reclaimed  []string `json:"reclaimed,omitempty"`
	Add        []v1.Pod `json:"add,omitempty"`
	Remove     []string `json:"remove,omitempty"`
	// The field says that processes run as unknown pods.
	Strangers bool     `json:"strangers,omitempty"`
	KillFails []string `json:"killFails,omitempty"`
	// Withdrawn are the victims whose evictions are requested, so that they can be withdrawn, should the pass do so.
	Withdrawn []types.UID         `json:"withdrawn,omitempty"`
	Kills     map[string]FileKill `json:"kills,omitempty"`
	// RestartFails are pods of which no container can be ended alone.
	RestartFails []string `json:"restartFails,omitempty"`
	// Absent are pods that are no candidates in the pass, and Exited those that are
	// none once usage is measured: no process of them is left.
	Absent []string `json:"absent,omitempty"`
	Exited []string `json:"exited,omitempty"`
	// State is what a daemon that starts before the step continues with.
	State *eviction.Kept `json:"state,omitempty"`
	// DiskScan says that disk usage comes from scans; absent: it is as of the pass.
	DiskScan *FileDiskScan `json:"diskScan,omitempty"`
	// Ended are the victims whose processes have ended since the step before, or
	// whose kill reached none, and TasksLeft ended ones whose tasks the kernel may
	// still count.
	Ended     map[types.UID]FileEnd   `json:"ended,omitempty"`
	TasksLeft map[types.UID]FileTasks `json:"tasksLeft,omitempty"`
	// Restarted are pods that have ended by an eviction and have processes again: see
	// eviction.Restarted.
	Restarted map[types.UID]FileRestart `json:"restarted,omitempty"`
	// Arrived are uids of pods that have come since the step before, where no kubelet admits
	// them.
	Arrived []types.UID `json:"arrived,omitempty"`
	// StepOutcomes are those of steps before evictions since the step before, and Fastest is the pod that grows
	// fastest.
	StepOutcomes []FileStepOutcome `json:"stepOutcomes,omitempty"`
	Fastest      *FileGrowth       `json:"fastest,omitempty"`
	// VictimUsage is the memory of victims after their SIGKILL.
	VictimUsage map[types.UID]resource.Quantity `json:"victimUsage,omitempty"`
}

// FileDiskScan is the last complete scan of the pods' disks: how long before the
// step it began; nil: none is complete.
type FileDiskScan struct {
	Age *metav1.Duration `json:"age,omitempty"`
}

// FileEnd is the end of a victim's processes: how long before the step. Failed says
// that the kill reached no process.
type FileEnd struct {
	Age       metav1.Duration `json:"age,omitzero"`
	Signalled bool            `json:"signalled,omitempty"`
	Failed    bool            `json:"failed,omitempty"`
}

// FileRestart says whether the API server forbids the report of the eviction.
type FileRestart struct {
	Forbidden bool `json:"forbidden,omitempty"`
}

// FileTasks is eviction.TasksLeft.
type FileTasks struct {
	Tasks   int64 `json:"tasks,omitempty"`
	Removed bool  `json:"removed,omitempty"`
}

// FileSignal is the long form of a measurement; the short one is a quantity.
type FileSignal struct {
	Available *resource.Quantity `json:"available"`
	Capacity  *resource.Quantity `json:"capacity,omitempty"`
	Age       metav1.Duration    `json:"age,omitzero"`
	// UsedUpIn is the time until nothing is available at the present rate; nil where
	// the amount does not fall. Repeated says that the step before had the same
	// measurement, whatever its age.
	UsedUpIn *metav1.Duration `json:"usedUpIn,omitempty"`
	Repeated bool             `json:"repeated,omitempty"`
	// PerSecond is how the amount changes, in a step of Watch.
	PerSecond int64 `json:"perSecond,omitempty"`
	// Full, Some and ReadBack, bytes a second, are of memory.stall, which has no other form and no Available.
	Full     *eviction.Share    `json:"full,omitempty"`
	Some     *eviction.Share    `json:"some,omitempty"`
	ReadBack *resource.Quantity `json:"readBack,omitempty"`
}

// FileReclaim is what each reclaim step would free, by signal.
type FileReclaim struct {
	Containers map[string]resource.Quantity `json:"containers,omitempty"`
	Images     map[string]resource.Quantity `json:"images,omitempty"`
}

// FileUsage is what a pod uses: bytes, inodes, processes. What is nil was not
// measured.
type FileUsage struct {
	Memory     *resource.Quantity            `json:"memory,omitempty"`
	Swap       *resource.Quantity            `json:"swap,omitempty"`
	PIDs       *resource.Quantity            `json:"pids,omitempty"`
	Containers map[string]FileContainerUsage `json:"containers,omitempty"`
	Volumes    map[string]FileVolumeUsage    `json:"volumes,omitempty"`
	// Threads are tasks, Growth is of memory in bytes a second, Files belong to no
	// container, Unlinked are open and deleted.
	Threads *resource.Quantity `json:"threads,omitempty"`
	Growth  int64              `json:"growth,omitempty"`
	// ReadBack is memory read back in a second, and Stalled the part of the time in which tasks waited for memory.
	ReadBack *resource.Quantity `json:"readBack,omitempty"`
	Stalled  *eviction.Share    `json:"stalled,omitempty"`
	Files    FileVolumeUsage    `json:"files,omitzero"`
	Unlinked FileVolumeUsage    `json:"unlinked,omitzero"`
	// Own is in the pod's own directory and in no volume. Partial says that not all of what the pod holds on disks was
	// measured.
	Own     FileVolumeUsage `json:"own,omitzero"`
	Partial bool            `json:"partial,omitempty"`
}

// FileContainerUsage is what a container uses: bytes, inodes.
type FileContainerUsage struct {
	Memory       *resource.Quantity `json:"memory,omitempty"`
	Rootfs       *resource.Quantity `json:"rootfs,omitempty"`
	RootfsInodes *resource.Quantity `json:"rootfsInodes,omitempty"`
	Logs         *resource.Quantity `json:"logs,omitempty"`
	LogsInodes   *resource.Quantity `json:"logsInodes,omitempty"`
	// LogsElsewhere says that the logs are on another filesystem than the node's.
	LogsElsewhere bool `json:"logsElsewhere,omitempty"`
	// Growth is of memory in bytes a second.
	Growth int64 `json:"growth,omitempty"`
}

// FileVolumeUsage is what a volume holds: bytes, inodes.
type FileVolumeUsage struct {
	Used   *resource.Quantity `json:"used,omitempty"`
	Inodes *resource.Quantity `json:"inodes,omitempty"`
	// Elsewhere says that it is on another filesystem than the node's.
	Elsewhere bool `json:"elsewhere,omitempty"`
}

// FileKill says how long a kill decided in the pass takes. Where Reported, its victim
// is in flight until the core takes it out by what Ended and TasksLeft of later steps
// say.
type FileKill struct {
	Takes    metav1.Duration `json:"takes"`
	Reported bool            `json:"reported,omitempty"`
}
