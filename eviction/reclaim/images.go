package reclaim

import (
	"cmp"
	"time"
)

// images chooses unused images, the least recently used first; among equals the first
// detected.
func (c *chooser) images() {
	leastRecentlyUsed := func(a, b Image) int {
		return cmp.Or(a.LastUsed.Compare(b.LastUsed), older(a.FirstDetected, b.FirstDetected, a.ID, b.ID))
	}
	for _, image := range sorted(c.inventory.Images, leastRecentlyUsed) {
		if why, stays := c.keepReason(&image); stays {
			c.keep(Kept{Kind: KindImage, ID: image.ID, Name: image.name(), Why: why})
			continue
		}
		r := Removal{Kind: KindImage, ID: image.ID, Name: image.name(), Why: Space, Bytes: image.Size, Inodes: image.Inodes}
		if c.aged(&image) {
			r.Why = Age
		}
		c.remove(r)
	}
}

// keepReason says why an image is kept whatever is needed.
func (c *chooser) keepReason(i *Image) (KeepReason, bool) {
	switch {
	case i.Pinned:
		return Pinned, true
	case keeps(c.policy.Keep, i):
		return Protected, true
	case len(i.UsedBy) > 0:
		return InUse, true
	case c.now.Sub(i.FirstDetected) < c.policy.ImageMinAge:
		return TooYoung, true
	}
	return 0, false
}

// aged says whether an image was unused for longer than permitted, which needs
// detections for as long. Unlike with the kubelet, an image that was never used counts
// from its first detection.
func (c *chooser) aged(i *Image) bool {
	most := c.policy.ImageMaxAge
	beyond := func(t time.Time) bool { return c.now.Sub(t) > most }
	return !c.goal.Pressure && most > 0 && beyond(c.inventory.Watched) && beyond(i.LastUsed) && beyond(i.FirstDetected)
}
