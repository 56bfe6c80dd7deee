package reclaim

import (
	"cmp"
	"time"
)

// images chooses unused images, the one first that was used longest ago; among
// those the one that is known longest.
func (c *chooser) images() {
	leastRecentlyUsed := func(a, b Image) int {
		return cmp.Or(a.LastUsed.Compare(b.LastUsed), older(a.FirstDetected, b.FirstDetected, a.ID, b.ID))
	}
	for _, image := range sorted(c.inventory.Images, leastRecentlyUsed) {
		if why, stays := c.excuse(&image); stays {
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

// excuse says why an image stays whatever is needed.
func (c *chooser) excuse(i *Image) (KeepReason, bool) {
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

// aged says whether an image was not used for longer than any may be. That can
// be said only after having looked for so long. Unlike with the kubelet one that
// was never used is not older than it is known.
func (c *chooser) aged(i *Image) bool {
	most := c.policy.ImageMaxAge
	beyond := func(t time.Time) bool { return c.now.Sub(t) > most }
	return !c.goal.Pressure && most > 0 && beyond(c.inventory.Watched) && beyond(i.LastUsed) && beyond(i.FirstDetected)
}
