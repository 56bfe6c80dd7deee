package reclaim

import (
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/evictd/evictd/stats"
)

// Inventory is what a node has.
type Inventory struct {
	Containers []Container
	Sandboxes  []Sandbox
	Images     []Image
	// ImagesUnknown says that the runtime cannot list its images: none is removed, and no record changes.
	ImagesUnknown bool
	// Pods of the node by uid.
	Pods map[types.UID]Pod
	// Evicted are pods evicted for their disk usage: nothing of them is kept.
	Evicted map[types.UID]bool
	// Complete says that no source of pods is missing: a pod that is not in Pods is
	// deleted.
	Complete bool
	// Watched is since when the images have been detected without a gap in which an
	// image could have been used.
	Watched time.Time
}

// runningPods are the pods with a running container.
func (inv *Inventory) runningPods() map[types.UID]bool {
	living := map[types.UID]bool{}
	for i := range inv.Containers {
		if c := &inv.Containers[i]; c.Running {
			living[c.Pod] = true
		}
	}
	for _, s := range inv.Sandboxes {
		if s.Ready {
			living[s.Pod] = true
		}
	}
	return living
}

// Pod is the part of a pod that is used here.
type Pod struct {
	// Ended says that none of its containers will run again.
	Ended bool
	// Images are the references that its containers name.
	Images []string
}

// Container is a container of the runtime.
type Container struct {
	ID      string
	Pod     types.UID
	Name    string
	Sandbox string
	// Image is the id or a reference of its image.
	Image             string
	Attempt           uint32
	Created, Finished time.Time
	// Running says that it has not exited.
	Running bool
	// Layer is its writable layer.
	Layer, LayerInodes stats.Amount
	Logs, LogInodes    stats.Amount
	// Log is the path of its log.
	Log string
}

// dead is when the container exited, or was created where that is not known.
func (c *Container) dead() time.Time {
	if c.Finished.IsZero() {
		return c.Created
	}
	return c.Finished
}

// Sandbox is a pod's sandbox.
type Sandbox struct {
	ID      string
	Pod     types.UID
	Created time.Time
	Ready   bool
}

// Image is an image of the node.
type Image struct {
	ID string
	// References are its tags and digests.
	References []string
	// Size in bytes, and inodes, of its layers, shared layers included.
	Size, Inodes stats.Amount
	// Pinned says that the runtime never removes it.
	Pinned bool
	// UsedBy are its containers and pods, of the runtime and of AddUsers.
	UsedBy []string
	// FirstDetected and LastUsed are those of its Record.
	FirstDetected, LastUsed time.Time
}

func (i *Image) name() string {
	if len(i.References) == 0 {
		return i.ID
	}
	return i.References[0]
}

// keeps says whether a pattern of Policy.Keep matches the image.
func keeps(patterns []string, i *Image) bool {
	for _, pattern := range patterns {
		prefix, open := strings.CutSuffix(pattern, "*")
		for _, reference := range i.References {
			if reference == pattern || open && strings.HasPrefix(reference, prefix) {
				return true
			}
		}
	}
	return false
}

// Record is the times of an image.
type Record struct {
	FirstDetected time.Time
	LastUsed      time.Time
}

// AddUsers adds to each image its containers, running or not, and the pods that name
// it: an image that a pod is about to use is not pulled again.
func (inv *Inventory) AddUsers() {
	users := map[string][]string{}
	for i := range inv.Containers {
		c := &inv.Containers[i]
		users[c.Image] = append(users[c.Image], c.ID)
	}
	for uid, pod := range inv.Pods {
		if pod.Ended {
			continue
		}
		for _, image := range pod.Images {
			users[fullReference(image)] = append(users[fullReference(image)], string(uid))
		}
	}
	for i := range inv.Images {
		image := &inv.Images[i]
		used := append([]string(nil), image.UsedBy...)
		used = append(used, users[image.ID]...)
		for _, reference := range image.References {
			if reference != image.ID {
				used = append(used, users[reference]...)
			}
		}
		image.UsedBy = used
	}
}

// fullReference adds the default parts of an image's name as runtimes do: docker.io,
// library and latest.
func fullReference(image string) string {
	name, digest, pinned := strings.Cut(image, "@")
	host, rest, nested := strings.Cut(name, "/")
	switch {
	case !nested:
		name = "docker.io/library/" + name
	case !strings.ContainsAny(host, ".:") && host != "localhost":
		name = "docker.io/" + name
	case host == "docker.io" && !strings.Contains(rest, "/"):
		name = "docker.io/library/" + rest
	}
	if pinned {
		repository, _, _ := cutTag(name)
		return repository + "@" + digest
	}
	if _, _, tagged := cutTag(name); !tagged {
		name += ":latest"
	}
	return name
}

// cutTag splits a tag, a colon after the last slash, from its repository.
func cutTag(name string) (repository, tag string, tagged bool) {
	slash := strings.LastIndexByte(name, '/')
	repository, tag, tagged = strings.Cut(name[slash+1:], ":")
	return name[:slash+1] + repository, tag, tagged
}

// UpdateRecords updates the records with the existing images, and fills in the images'
// times. An image of the very first detection has the zero time.
func UpdateRecords(before map[string]Record, inv *Inventory, now time.Time) map[string]Record {
	after := make(map[string]Record, len(inv.Images))
	for i := range inv.Images {
		image := &inv.Images[i]
		r, known := before[image.ID]
		if !known && before != nil {
			r.FirstDetected = now
		}
		if len(image.UsedBy) > 0 {
			r.LastUsed = now
		}
		image.FirstDetected, image.LastUsed = r.FirstDetected, r.LastUsed
		after[image.ID] = r
	}
	return after
}
