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
	// Pods of the node by uid.
	Pods map[types.UID]Pod
	// Evicted are pods that were evicted for what they hold on a disk: nothing of
	// theirs is kept.
	Evicted map[types.UID]bool
	// Complete says that no source of pods is missing, so that a pod that is not
	// among them is gone.
	Complete bool
	// Watched is since when the images have been looked at without a gap in
	// which one could have been used unseen.
	Watched time.Time
}

// living are the pods of which something runs.
func (inv *Inventory) living() map[types.UID]bool {
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

// Pod is what counts of a pod.
type Pod struct {
	// Ended: none of its containers will run again.
	Ended bool
	// Images are the references that its containers name.
	Images []string
}

// Container is a container as the runtime tells of it.
type Container struct {
	ID      string
	Pod     types.UID
	Name    string
	Sandbox string
	// Image is the id or a reference of what it was made from.
	Image             string
	Attempt           uint32
	Created, Finished time.Time
	// Running: it has not exited.
	Running bool
	// Layer is its writable layer.
	Layer, LayerInodes stats.Amount
	Logs, LogInodes    stats.Amount
	// Log is the path of its log.
	Log string
}

// dead is when the container ended, or was made where that is not known.
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
	// Size in bytes, and inodes, of its layers; those that it shares with other
	// images count too.
	Size, Inodes stats.Amount
	// Pinned by the runtime.
	Pinned bool
	// UsedBy are containers and pods that the runtime or Use tell of.
	UsedBy []string
	// FirstDetected and LastUsed are what Records remember.
	FirstDetected, LastUsed time.Time
}

func (i *Image) name() string {
	if len(i.References) == 0 {
		return i.ID
	}
	return i.References[0]
}

// keeps says whether one of the patterns of Policy.Keep means the image.
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

// Record is what is remembered of an image.
type Record struct {
	FirstDetected time.Time
	LastUsed      time.Time
}

// Use adds to each image the containers that were made from it and the pods
// that name it, whether or not they run: what a pod is about to start need not
// be fetched again.
func (inv *Inventory) Use() {
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

// fullReference completes what a manifest may leave out of an image's name, as
// runtimes do: docker.io, library and latest.
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

// cutTag parts a tag from its repository: a colon after the last slash.
func cutTag(name string) (repository, tag string, tagged bool) {
	slash := strings.LastIndexByte(name, '/')
	repository, tag, tagged = strings.Cut(name[slash+1:], ":")
	return name[:slash+1] + repository, tag, tagged
}

// UpdateRecords brings what is remembered up to date with the images there are, and
// fills it in there. An image of the first look ever has been there for as long
// as anybody knows.
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
