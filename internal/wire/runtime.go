package wire

import (
	"errors"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Runtime is how the agent stands to the container runtime.
type Runtime struct {
	Endpoint  string    `json:"endpoint,omitempty"` // unix:PATH; "" where none was found
	Name      string    `json:"name,omitempty"`
	Version   string    `json:"version,omitempty"`
	Connected bool      `json:"connected"`
	Since     time.Time `json:"since"` // of Connected
	Error     string    `json:"error,omitempty"`
	// Missing are the CRI methods that the runtime does not implement, sorted.
	Missing []string `json:"missing,omitempty"`
	// ImageFs holds images and ContainerFs writable layers; empty while unknown.
	ImageFs     []Filesystem `json:"imageFs,omitempty"`
	ContainerFs []Filesystem `json:"containerFs,omitempty"`
	// Surveyed is when the last complete round of writable layers and filesystems
	// was asked for. What the runtime answers may be older: see the figures' times.
	Surveyed time.Time       `json:"surveyed,omitzero"`
	Calls    map[string]Call `json:"calls,omitempty"` // by CRI method, since the agent's start
}

// Call counts the calls of one CRI method.
type Call struct {
	Count   uint64            `json:"count"`
	Seconds float64           `json:"seconds"`          // of all of them together
	Errors  map[string]uint64 `json:"errors,omitempty"` // by gRPC code
}

// Filesystem is one that the runtime uses, by its own figures; nil is unknown.
type Filesystem struct {
	Mountpoint string    `json:"mountpoint"`
	Bytes      *int64    `json:"bytes,omitempty"`
	Inodes     *int64    `json:"inodes,omitempty"`
	At         time.Time `json:"at"`
}

// Sandbox is a pod's sandbox.
type Sandbox struct {
	ID        string    `json:"id"`
	UID       types.UID `json:"uid"` // of the pod; of a static one its config hash
	Namespace string    `json:"namespace"`
	Name      string    `json:"name"`
	Attempt   uint32    `json:"attempt,omitempty"`
	Ready     bool      `json:"ready"`
	Created   time.Time `json:"created"`
	// Annotations of the pod, those that matter here.
	Annotations map[string]string `json:"annotations,omitempty"`
	// Cgroup of the pod as the runtime was told: a path from the root of the
	// hierarchy or the name of a slice; "" if unknown.
	Cgroup string `json:"cgroup,omitempty"`
	// Image is the id of the sandbox's own image; "" if unknown.
	Image string `json:"image,omitempty"`
}

// The states of a container.
const (
	ContainerCreated = "created"
	ContainerRunning = "running"
	ContainerExited  = "exited"
	ContainerUnknown = "unknown"
)

// Container is one of a sandbox. What the runtime does not tell is zero or nil.
type Container struct {
	ID       string    `json:"id"`
	Sandbox  string    `json:"sandbox"` // its id
	Name     string    `json:"name"`
	Attempt  uint32    `json:"attempt,omitempty"`
	State    string    `json:"state"`
	Created  time.Time `json:"created"`
	Started  time.Time `json:"started,omitzero"`
	Finished time.Time `json:"finished,omitzero"`
	ExitCode int32     `json:"exitCode,omitempty"`
	Reason   string    `json:"reason,omitempty"`
	// ImageName is what was asked for, and Image the id of what it is.
	ImageName string `json:"imageName,omitempty"`
	Image     string `json:"image,omitempty"`
	// ImageVolumes are the ids of images mounted as volumes.
	ImageVolumes []string `json:"imageVolumes,omitempty"`
	LogPath      string   `json:"logPath,omitempty"`
	// Cgroup is the last element of the container's path; the parent is the pod's.
	Cgroup string `json:"cgroup,omitempty"`
	// GraceSeconds is the pod's terminationGracePeriodSeconds.
	GraceSeconds *int64 `json:"graceSeconds,omitempty"`
	OOMScoreAdj  *int64 `json:"oomScoreAdj,omitempty"`
	MemoryLimit  int64  `json:"memoryLimit,omitempty"` // bytes; 0 for none
	CPUShares    int64  `json:"cpuShares,omitempty"`
	CPUQuota     int64  `json:"cpuQuota,omitempty"` // microseconds a period
	CPUPeriod    int64  `json:"cpuPeriod,omitempty"`
}

// Layer is what a container's writable layer holds; nil is unknown.
type Layer struct {
	Container string    `json:"container"` // its id
	Bytes     *int64    `json:"bytes,omitempty"`
	Inodes    *int64    `json:"inodes,omitempty"`
	At        time.Time `json:"at"`
}

// Image is one that the runtime holds.
type Image struct {
	ID      string   `json:"id"`
	Tags    []string `json:"tags,omitempty"`
	Digests []string `json:"digests,omitempty"`
	Bytes   int64    `json:"bytes"` // layers shared with other images included
	// Pinned images are never to be removed.
	Pinned bool `json:"pinned,omitempty"`
}

// OrderKind is what an Order asks for.
type OrderKind string

// The kinds of orders. A container that runs is not removed, and neither is the
// image of one.
const (
	StopContainer   OrderKind = "stopContainer"
	StopSandbox     OrderKind = "stopSandbox"
	RemoveContainer OrderKind = "removeContainer"
	RemoveSandbox   OrderKind = "removeSandbox"
	RemoveImage     OrderKind = "removeImage"
)

// Order is something for the runtime to do. It is given once, and answered by
// Done with its id.
type Order struct {
	ID     uint64    `json:"id"`
	Kind   OrderKind `json:"kind"`
	Target string    `json:"target"` // the id of the container, sandbox or image
	// Grace is what a container is given between its stop signal and SIGKILL;
	// the CRI counts whole seconds, and less than one is none.
	Grace time.Duration `json:"grace,omitempty"`
	// Deadline of the runtime's answer.
	Deadline time.Time `json:"deadline"`
}

// Done is what became of an Order.
type Done struct {
	ID uint64 `json:"id"`
	// Error says why it was not done; empty where it was. What is no longer there
	// counts as stopped and as removed.
	Error string `json:"error,omitempty"`
	// Away says that the error is ErrAway.
	Away bool `json:"away,omitempty"`
}

// ErrAway says that the container runtime does not answer. What it was ordered to
// do is done or not.
var ErrAway = errors.New("the container runtime does not answer")
