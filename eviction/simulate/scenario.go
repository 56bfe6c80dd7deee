// Package simulate runs the decision core over a scenario written in text: the
// node, its pods, and step by step what is measured. It shares every line of
// decision code with the daemon and does no I/O.
package simulate

import (
	"encoding/json"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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

// FileSpec is what happens to which node under which configuration.
type FileSpec struct {
	Config config.EvictdConfiguration `json:"config"`
	Node   FileNode                   `json:"node"`
	Pods   []v1.Pod                   `json:"pods"`
	Steps  []FileStep                 `json:"steps"`
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
	Event       bool                       `json:"event,omitempty"`
	Signals     map[string]json.RawMessage `json:"signals,omitempty"`
	Usage       map[string]*FileUsage      `json:"usage,omitempty"`
	NodeReclaim FileReclaim                `json:"nodeReclaim,omitzero"`
	// Reclaiming are signals whose reclaim goes on after the pass, should it ask for
	// one, and Reclaimed those for which it has ended since the step before.
	Reclaiming []string `json:"reclaiming,omitempty"`
	Reclaimed  []string `json:"reclaimed,omitempty"`
	Add        []v1.Pod `json:"add,omitempty"`
	Remove     []string `json:"remove,omitempty"`
	// Strangers says that processes run as pods that nobody has told of.
	Strangers bool                `json:"strangers,omitempty"`
	KillFails []string            `json:"killFails,omitempty"`
	Kills     map[string]FileKill `json:"kills,omitempty"`
}

// FileSignal is the long form of a measurement; the short one is a quantity.
type FileSignal struct {
	Available *resource.Quantity `json:"available"`
	Capacity  *resource.Quantity `json:"capacity,omitempty"`
	Age       metav1.Duration    `json:"age,omitzero"`
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
	PIDs       *resource.Quantity            `json:"pids,omitempty"`
	Containers map[string]FileContainerUsage `json:"containers,omitempty"`
	Volumes    map[string]FileVolumeUsage    `json:"volumes,omitempty"`
}

// FileContainerUsage is what a container uses: bytes, inodes.
type FileContainerUsage struct {
	Memory       *resource.Quantity `json:"memory,omitempty"`
	Rootfs       *resource.Quantity `json:"rootfs,omitempty"`
	RootfsInodes *resource.Quantity `json:"rootfsInodes,omitempty"`
	Logs         *resource.Quantity `json:"logs,omitempty"`
	LogsInodes   *resource.Quantity `json:"logsInodes,omitempty"`
}

// FileVolumeUsage is what a volume holds: bytes, inodes.
type FileVolumeUsage struct {
	Used   *resource.Quantity `json:"used,omitempty"`
	Inodes *resource.Quantity `json:"inodes,omitempty"`
}

// FileKill says how long a kill decided in the pass takes.
type FileKill struct {
	Takes metav1.Duration `json:"takes"`
}
