package nodestatus

import "k8s.io/apimachinery/pkg/types"

// Runtime is the state of the connection to the container runtime, and what it runs of
// the node's pods.
type Runtime struct {
	Endpoint string `json:"endpoint,omitempty"` // unix:PATH
	Name     string `json:"name,omitempty"`
	Version  string `json:"version,omitempty"`
	// Connected says whether the last call was answered, and since when that holds.
	Connected bool `json:"connected"`
	Since     Time `json:"since,omitzero"`
	// Error is the error of the last call; "" where it succeeded.
	Error string `json:"error,omitempty"`
	// Missing are the CRI methods that the runtime does not implement.
	Missing []string `json:"missing,omitempty"`
	// Failing has the error of each CRI method that fails, or fails for some objects; what the others
	// say stays in use.
	Failing map[string]string `json:"failing,omitempty"`
	// ImageFs and ContainerFs are as the runtime reports them.
	ImageFs     []RuntimeFilesystem `json:"imageFs,omitempty"`
	ContainerFs []RuntimeFilesystem `json:"containerFs,omitempty"`
	// Surveyed is when writable layers were last measured.
	Surveyed   Time                    `json:"surveyed,omitzero"`
	Sandboxes  int                     `json:"sandboxes"`
	Containers int                     `json:"containers"`
	Images     int                     `json:"images"`
	Calls      map[string]RuntimeCalls `json:"calls,omitempty"` // by CRI method
	Pods       []RuntimePod            `json:"pods,omitempty"`
}

// RuntimeCalls counts the calls of one CRI method since the agent's start.
type RuntimeCalls struct {
	Count   uint64            `json:"count"`
	Seconds float64           `json:"seconds"`          // of all of them together
	Errors  map[string]uint64 `json:"errors,omitempty"` // by gRPC code
}

// RuntimeFilesystem is a filesystem that the runtime uses. An unknown field is "".
type RuntimeFilesystem struct {
	Mountpoint string `json:"mountpoint"`
	Used       string `json:"used,omitempty"`
	InodesUsed string `json:"inodesUsed,omitempty"`
	Time       Time   `json:"time,omitzero"`
}

// RuntimePod is a pod of the node as the runtime reports it.
type RuntimePod struct {
	Pod string    `json:"pod"` // namespace/name
	UID types.UID `json:"uid"`
	// Estimated says that the pod is known from the runtime alone.
	Estimated  bool               `json:"estimated,omitempty"`
	Containers []RuntimeContainer `json:"containers"`
}

// RuntimeContainer is a container, running or not. An unknown field is "".
type RuntimeContainer struct {
	Name  string `json:"name"`
	ID    string `json:"id"`
	State string `json:"state"`
	Image string `json:"image,omitempty"`
	// Memory is its working set now, and Layer what its writable layer held at
	// LayerTime.
	Memory      string `json:"memory,omitempty"`
	Layer       string `json:"layer,omitempty"`
	LayerInodes string `json:"layerInodes,omitempty"`
	LayerTime   Time   `json:"layerTime,omitzero"`
	Log         string `json:"log,omitempty"`
}
