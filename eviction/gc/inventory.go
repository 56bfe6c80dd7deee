package gc

import (
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
	// forgetRemoved is for how long what was removed is not seen, though the
	// runtime's list, which comes a little later, may still have it.
	forgetRemoved = time.Minute
	// recordKind and recordID name the images' records in the journal.
	recordKind, recordID = "images", "records"
	// longestGap is how long images may go unseen before one could have been used
	// meanwhile.
	longestGap = 3 * imagesEvery
	// shortID of an image is enough to tell those of a node apart.
	shortID = 16
)

// records are what is remembered of images, in a form that survives a restart.
type records struct {
	Watched  time.Time `json:"watched"`
	Detected time.Time `json:"detected"`
	// Images by the beginning of their id: when each was first detected and last
	// used, Unix seconds; zero where it was there from the first look on, or was
	// never used.
	Images map[string][2]int64 `json:"images"`
}

// inventory is what the runtime has, without what was removed just now.
func (c *Collector) inventory() (*reclaim.Inventory, error) {
	has := c.ports.Runtime.Runtime()
	switch {
	case has == nil || has.Endpoint == "":
		return nil, errNoRuntime
	case !has.Connected:
		return nil, wire.ErrAway
	}
	c.mu.Lock()
	for id, at := range c.removed {
		if time.Since(at) > forgetRemoved {
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
	for i := range has.Images {
		if image := &has.Images[i]; !gone[image.ID] {
			inv.Images = append(inv.Images, reclaim.Image{
				ID: image.ID, References: append(append([]string(nil), image.Tags...), image.Digests...),
				Size: stats.Known(image.Bytes), Pinned: image.Pinned, UsedBy: users[image.ID],
			})
		}
	}
	inv.Use()
	inv.Evicted = c.evictedIn(inv)
	return inv, nil
}

// evictedIn are the evicted pods that something is left of. One that was started
// again since is none of them.
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

// containerOf is a container of the runtime's. One in a state that is not known
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

// detect brings the records up to date with what there is, and fills it in.
func (c *Collector) detect(inv *reclaim.Inventory) {
	now := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	if now.Sub(c.records.Detected) > longestGap {
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
		c.log.Warn("the ages of images would not survive a restart", "error", err)
	}
}

// look detects what there is now, if the runtime answers.
func (c *Collector) look() {
	if inv, err := c.inventory(); err == nil {
		c.detect(inv)
	}
}

// load is what is remembered of the images there are; nil before the first look.
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
