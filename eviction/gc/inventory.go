package gc

import (
	"fmt"
	"maps"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/evictd/evictd/cri/inventory"
	"github.com/evictd/evictd/eviction/reclaim"
	"github.com/evictd/evictd/internal/wire"
	"github.com/evictd/evictd/stats"
)

const (
	// removedWindow is how long a removed object is left out of the inventory; the
	// runtime's list may still have it.
	removedWindow = time.Minute
	// The methods of the CRI without which an inventory is not complete.
	listContainers = "ListContainers"
	listImages     = "ListImages"
	// recordKind and recordID name the images' records in the journal.
	recordKind, recordID = "images", "records"
	// maxDetectionGap is how long images may be undetected before an image may have
	// been used in between.
	maxDetectionGap = 3 * imagesEvery
	// shortID is how many digits of an image id are recorded; they identify an image of
	// the node.
	shortID = 16
)

// records are the image records as the journal stores them.
type records struct {
	Watched  time.Time `json:"watched"`
	Detected time.Time `json:"detected"`
	// Images, by the beginning of their id: when each was first detected and last
	// used, Unix seconds; zero where it existed at the first detection, or was never
	// used.
	Images map[string][2]int64 `json:"images"`
}

// inventory is the runtime's inventory without recently removed objects.
func (c *Collector) inventory() (*reclaim.Inventory, error) {
	has := c.ports.Runtime.Runtime()
	switch {
	case has == nil || has.Endpoint == "":
		return nil, errNoRuntime
	case !has.Connected:
		return nil, wire.ErrAway
	case has.Failing[listContainers] != "": // the users of a sandbox or an image are not known
		return nil, fmt.Errorf("the container runtime cannot list its containers: %s", has.Failing[listContainers])
	}
	c.mu.Lock()
	for id, at := range c.removed {
		if time.Since(at) > removedWindow {
			delete(c.removed, id)
		}
	}
	gone := make(map[string]bool, len(c.removed))
	for id := range c.removed {
		gone[id] = true
	}
	c.mu.Unlock()
	inv := &reclaim.Inventory{}
	inv.Pods, inv.Complete = c.ports.Pods()
	pods := map[string]types.UID{}
	for i := range has.Sandboxes {
		s := &has.Sandboxes[i]
		pods[s.ID] = s.UID
		if !gone[s.ID] {
			inv.Sandboxes = append(inv.Sandboxes, reclaim.Sandbox{ID: s.ID, Pod: s.UID, Created: s.Created, Ready: s.Ready})
		}
	}
	logs := c.openLogs()
	defer logs.close()
	for i := range has.Containers {
		if d := &has.Containers[i]; !gone[d.ID] {
			inv.Containers = append(inv.Containers, containerOf(d, pods[d.Sandbox], logs))
		}
	}
	users := has.ImageUsers()
	inv.ImagesUnknown = has.Failing[listImages] != ""
	for i := range has.Images {
		if image := &has.Images[i]; !gone[image.ID] && !inv.ImagesUnknown {
			inv.Images = append(inv.Images, reclaim.Image{
				ID: image.ID, References: append(append([]string(nil), image.Tags...), image.Digests...),
				Size: stats.Known(image.Bytes), Pinned: image.Pinned, UsedBy: users[image.ID],
			})
		}
	}
	inv.AddUsers()
	inv.Evicted = c.evictedIn(inv)
	return inv, nil
}

// evictedIn are the evicted pods that still have containers or sandboxes. A pod that
// was started again since is not one of them.
func (c *Collector) evictedIn(inv *reclaim.Inventory) map[types.UID]bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	still := map[types.UID]bool{}
	find := func(pod types.UID, created time.Time) {
		at, evicted := c.evicted[pod]
		switch {
		case evicted && created.After(at):
			delete(c.evicted, pod)
			delete(still, pod)
		case evicted:
			still[pod] = true
		}
	}
	for i := range inv.Containers {
		find(inv.Containers[i].Pod, inv.Containers[i].Created)
	}
	for i := range inv.Sandboxes {
		find(inv.Sandboxes[i].Pod, inv.Sandboxes[i].Created)
	}
	maps.DeleteFunc(c.evicted, func(pod types.UID, _ time.Time) bool { return !still[pod] })
	return still
}

// containerOf converts a container of the runtime. A container in an unknown state
// counts as running.
func containerOf(d *inventory.Container, pod types.UID, logs *logs) reclaim.Container {
	c := reclaim.Container{
		ID: d.ID, Pod: pod, Name: d.Name, Sandbox: d.Sandbox, Image: d.Image, Attempt: d.Attempt,
		Created: d.Created, Finished: d.Finished, Running: d.State != inventory.ContainerExited,
		Layer: measured(d.Layer.Bytes), LayerInodes: measured(d.Layer.Inodes), Log: d.LogPath,
	}
	if !c.Running {
		c.Logs, c.LogInodes = logs.size(d.LogPath)
	}
	return c
}

func measured(n *int64) stats.Amount {
	if n == nil {
		return stats.Amount{}
	}
	return stats.Known(*n)
}

// detect updates the records with the existing images and fills them in.
func (c *Collector) detect(inv *reclaim.Inventory) {
	if inv.ImagesUnknown {
		return
	}
	now := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	if now.Sub(c.records.Detected) > maxDetectionGap {
		c.records.Watched = now
	}
	inv.Watched = c.records.Watched
	after := reclaim.UpdateRecords(c.records.load(inv), inv, now)
	c.records.Detected, c.records.Images = now, make(map[string][2]int64, len(after))
	for id, r := range after {
		c.records.Images[short(id)] = [2]int64{seconds(r.FirstDetected), seconds(r.LastUsed)}
	}
	if c.ports.Journal == nil || now.Sub(c.saved) < imagesEvery {
		return
	}
	c.saved = now
	if err := c.ports.Journal.Put(recordKind, recordID, c.records); err != nil {
		c.log.Warn("could not store the image records: the ages of images are lost at a restart", "error", err)
	}
}

// detectNow detects the images, if the runtime answers.
func (c *Collector) detectNow() {
	if inv, err := c.inventory(); err == nil {
		c.detect(inv)
	}
}

// load returns the records of the existing images; nil before the first detection.
func (r *records) load(inv *reclaim.Inventory) map[string]reclaim.Record {
	if r.Images == nil {
		return nil
	}
	before := map[string]reclaim.Record{}
	for i := range inv.Images {
		if times, known := r.Images[short(inv.Images[i].ID)]; known {
			before[inv.Images[i].ID] = reclaim.Record{FirstDetected: instant(times[0]), LastUsed: instant(times[1])}
		}
	}
	return before
}

func short(id string) string {
	_, hash, found := strings.Cut(id, ":")
	if !found {
		hash = id
	}
	return hash[:min(shortID, len(hash))]
}

func seconds(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.Unix()
}

func instant(seconds int64) time.Time {
	if seconds == 0 {
		return time.Time{}
	}
	return time.Unix(seconds, 0)
}
