// Package inventory holds what a container runtime has, as values: sandboxes, containers,
// writable layers, images, and containers that runc runs without a CRI. It asks nothing.
package inventory

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Snapshot is all that the runtime has at one time. It never changes.
type Snapshot struct {
	Runtime
	Sandboxes  []Sandbox   // in the order of namespace, name, uid and attempt
	Containers []Container // in the order of sandbox, name and attempt
	Images     []Image     // in the order of ids
}

// ImageUsers are the ids of the sandboxes and containers, dead ones too, that
// use each image, by its id.
func (i *Snapshot) ImageUsers() map[string][]string {
	users := map[string][]string{}
	use := func(image, user string) {
		if image != "" {
			users[image] = append(users[image], user)
		}
	}
	for s := range i.Sandboxes {
		use(i.Sandboxes[s].Image, i.Sandboxes[s].ID)
	}
	for c := range i.Containers {
		container := &i.Containers[c]
		use(container.Image, container.ID)
		for _, volume := range container.ImageVolumes {
			use(volume, container.ID)
		}
	}
	return users
}

// Runtime is the state of the connection to the container runtime.
type Runtime struct {
	Endpoint  string    `json:"endpoint,omitempty"` // unix:PATH; "" where none was found
	Name      string    `json:"name,omitempty"`
	Version   string    `json:"version,omitempty"`
	Connected bool      `json:"connected"`
	Since     time.Time `json:"since"` // of Connected
	Error     string    `json:"error,omitempty"`
	// Missing are the CRI methods that the runtime does not implement, sorted.
	Missing []string `json:"missing,omitempty"`
	// Failing has the error of each CRI method whose last call failed, or that failed for some objects; what
	// it said before stays.
	Failing map[string]string `json:"failing,omitempty"`
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
	// Cgroup of the pod as the kubelet requested it: a path from the root of the
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

// Container is one container of a sandbox. What the runtime does not report is zero or nil.
type Container struct {
	ID       string    `json:"id"`
	Sandbox  string    `json:"sandbox"` // its id
	Name     string    `json:"name"`
	Attempt  uint32    `json:"attempt,omitempty"`
	State    string    `json:"state"`
	Created  time.Time `json:"created"`
	Finished time.Time `json:"finished,omitzero"`
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
	// Layer is the writable layer as last measured. It has messages of its own, since it
	// changes more often.
	Layer Layer `json:"-"`
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
