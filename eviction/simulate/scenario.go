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

// file is a scenario as text has it.
type file struct {
	metav1.TypeMeta `json:",inline"`
	Metadata        struct {
		Name string `json:"name"`
	} `json:"metadata"`
	Spec struct {
		Config config.EvictdConfiguration `json:"config"`
		Node   struct {
			Name        string          `json:"name"`
			Capacity    v1.ResourceList `json:"capacity"`
			Filesystems string          `json:"filesystems"`
		} `json:"node"`
		Pods  []v1.Pod   `json:"pods"`
		Steps []fileStep `json:"steps"`
	} `json:"spec"`
}

// fileStep is one pass. Pods are named namespace/name.
type fileStep struct {
	At          metav1.Duration            `json:"at"`
	Signals     map[string]json.RawMessage `json:"signals"`
	Usage       map[string]*fileUsage      `json:"usage"`
	NodeReclaim fileReclaim                `json:"nodeReclaim"`
	Add         []v1.Pod                   `json:"add"`
	Remove      []string                   `json:"remove"`
	KillFails   []string                   `json:"killFails"`
	Kills       map[string]fileKill        `json:"kills"`
}

// fileSignal is the long form of a measurement; the short one is a quantity.
type fileSignal struct {
	Available *resource.Quantity `json:"available"`
	Capacity  *resource.Quantity `json:"capacity"`
	Age       metav1.Duration    `json:"age"`
}

// fileReclaim is what each reclaim step would free, by signal.
type fileReclaim struct {
	Containers map[string]resource.Quantity `json:"containers"`
	Images     map[string]resource.Quantity `json:"images"`
}

// fileUsage is what a pod uses: bytes, inodes, processes.
type fileUsage struct {
	Memory     *resource.Quantity            `json:"memory"`
	PIDs       *resource.Quantity            `json:"pids"`
	Containers map[string]fileContainerUsage `json:"containers"`
	Volumes    map[string]fileVolumeUsage    `json:"volumes"`
}

type fileContainerUsage struct {
	Memory       *resource.Quantity `json:"memory"`
	Rootfs       *resource.Quantity `json:"rootfs"`
	RootfsInodes *resource.Quantity `json:"rootfsInodes"`
	Logs         *resource.Quantity `json:"logs"`
	LogsInodes   *resource.Quantity `json:"logsInodes"`
}

type fileVolumeUsage struct {
	Used   *resource.Quantity `json:"used"`
	Inodes *resource.Quantity `json:"inodes"`
}

// fileKill says how long a kill decided in the pass takes.
type fileKill struct {
	Takes metav1.Duration `json:"takes"`
}
