// Package reclaim chooses what a node frees without ending a pod: dead
// containers, sandboxes that hold none, unused images; which of them go first,
// and how many suffice. It removes nothing itself, asks no clock, and what it
// chooses follows from its arguments alone.
//
// The rules are those of the kubelet's container and image collection (1.37),
// except that a disk under pressure is freed of what it lacks and not of all
// there is, and that inodes count.
package reclaim

import (
	"cmp"
	"math/bits"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/evictd/evictd/eviction"
	"github.com/evictd/evictd/stats"
)

// Policy says what may go.
type Policy struct {
	// ContainerMinAge is how long a container must have been dead.
	ContainerMinAge time.Duration
	// MaxPerPodContainer dead containers are kept of each name in a pod, and
	// MaxContainers on the node; negative is without limit.
	MaxPerPodContainer, MaxContainers int
	// ImageMinAge is how long an image must have been known. One that was not
	// used for ImageMaxAge goes in any case; zero turns that off.
	ImageMinAge, ImageMaxAge time.Duration
	// HighPercent of a disk used is where images begin to go, and LowPercent
	// where that ends; see Need.
	HighPercent, LowPercent int64
	// Everything: a disk under pressure loses all that may go, as with the
	// kubelet, and not what it lacks.
	Everything bool
	// Keep are references of images that never go; one that ends in * stands
	// for all that begin so.
	Keep []string
}

// Need is what must be freed of a filesystem that images are on: nothing below
// HighPercent of its bytes or inodes used, else what leaves LowPercent used. It
// is not known where the capacity is not, or is zero.
func (p *Policy) Need(fs stats.Filesystem) (need eviction.Need, known bool) {
	capacity, measured := fs.Capacity.Get()
	available, alsoMeasured := fs.Available.Get()
	if !measured || !alsoMeasured || capacity == 0 {
		return eviction.Need{}, false
	}
	need.Bytes = p.over(capacity, available)
	if inodes := fs.Inodes.Or(0); inodes > 0 && fs.InodesFree.IsKnown() {
		need.Inodes = p.over(inodes, fs.InodesFree.Or(0))
	}
	return need, true
}

func (p *Policy) over(capacity, available int64) int64 {
	if UsedPercent(capacity, available) < p.HighPercent {
		return 0
	}
	return max(0, share(capacity, 100-p.LowPercent, 100)-available)
}

// UsedPercent is how much of a capacity above zero is used, rounded up as the
// kubelet does.
func UsedPercent(capacity, available int64) int64 {
	return 100 - share(min(available, capacity), 100, capacity)
}

// share is n times by, divided, where the product may need more than 64 bits and
// the quotient does not.
func share(n, by, divided int64) int64 {
	high, low := bits.Mul64(uint64(max(0, n)), uint64(by))
	quotient, _ := bits.Div64(high, low, uint64(divided))
	return int64(quotient)
}

// Goal is what a choice is made for.
type Goal struct {
	// Containers and Images say which kinds may go.
	Containers, Images bool
	// Pressure: a threshold acts. Then what goes is limited by Need, unless the
	// policy says Everything, and pods that have ended keep nothing. Otherwise
	// dead containers beyond their limits and images beyond their age go
	// whatever the need is.
	Pressure bool
	Need     eviction.Need
	// Except are the ids of what could not be removed.
	Except map[string]bool
}

// Kind of what is removed.
type Kind uint8

// The kinds, in the order in which they go.
const (
	KindContainer Kind = iota
	KindSandbox
	KindImage
)

func (k Kind) String() string { return [...]string{"container", "sandbox", "image"}[k] }

// Reason says why something goes.
type Reason uint8

// The reasons. Age and Space have the kubelet's names in its metric.
const (
	PodGone Reason = iota
	PodEvicted
	PodEnded
	BeyondPodLimit
	BeyondNodeLimit
	NoContainers
	Age
	Space
)

func (r Reason) String() string {
	return [...]string{"pod-gone", "pod-evicted", "pod-ended", "beyond-pod-limit", "beyond-node-limit", "no-containers", "age", "space"}[r]
}

// Removal is one thing that goes.
type Removal struct {
	Kind Kind
	ID   string
	// Pod of a container or sandbox.
	Pod types.UID
	// Name of the container, or the image's first reference.
	Name string
	Why  Reason
	// Bytes and Inodes that this is expected to free on the disk. An image's
	// are too many where it shares layers.
	Bytes, Inodes stats.Amount
	// Log of a container is removed with it.
	Log string
}

// KeepReason says why something stays.
type KeepReason uint8

// The excuses.
const (
	Running KeepReason = iota
	WithinLimit
	TooYoung
	InUse
	Pinned
	Protected
	Enough
	Refused
)

func (e KeepReason) String() string {
	return [...]string{"running", "within-limit", "too-young", "in-use", "pinned", "protected", "enough", "refused"}[e]
}

// Kept is one thing that stays.
type Kept struct {
	Kind Kind
	ID   string
	Pod  types.UID
	Name string
	Why  KeepReason
}

// Plan is what goes, in order, and what stays.
type Plan struct {
	Removals []Removal
	Kept     []Kept
	// Bytes and Inodes that the removals are expected to free, as far as known.
	Bytes, Inodes int64
}

// Choose says what goes for a goal: containers, then sandboxes, then images,
// each in the order that suits it. The order of the inventory does not count.
func Choose(inv *Inventory, p *Policy, g Goal, now time.Time) Plan {
	c := chooser{inventory: inv, policy: p, goal: g, now: now, living: inv.living(), removed: map[string]bool{}}
	if g.Containers {
		c.containers()
		c.sandboxes()
	}
	if g.Images {
		c.images()
	}
	return c.plan
}

// chooser makes one plan.
type chooser struct {
	inventory *Inventory
	policy    *Policy
	goal      Goal
	now       time.Time
	living    map[types.UID]bool // pods of which something runs
	removed   map[string]bool    // containers
	plan      Plan
}

// limited says whether what goes is limited by the need: an image's removal
// unless its disk loses everything, a container's only under pressure.
func (c *chooser) limited(k Kind) bool {
	if c.goal.Pressure {
		return !c.policy.Everything
	}
	return k == KindImage
}

// met says whether what was chosen suffices, as far as is known.
func (c *chooser) met() bool {
	return c.plan.Bytes >= c.goal.Need.Bytes && c.plan.Inodes >= c.goal.Need.Inodes
}

// remove chooses something that may go, unless enough has been chosen.
func (c *chooser) remove(r Removal) {
	kept := Kept{Kind: r.Kind, ID: r.ID, Pod: r.Pod, Name: r.Name, Why: Enough}
	if c.goal.Except[r.ID] {
		kept.Why = Refused
	} else if r.Why == Age || !c.limited(r.Kind) || !c.met() {
		c.choose(r)
		return
	}
	c.keep(kept)
}

func (c *chooser) choose(r Removal) {
	c.plan.Bytes += r.Bytes.Or(0)
	c.plan.Inodes += r.Inodes.Or(0)
	c.plan.Removals = append(c.plan.Removals, r)
}

func (c *chooser) keep(k Kept) { c.plan.Kept = append(c.plan.Kept, k) }

// gone says whether the pod is no longer of the node, which only a complete
// list of pods can tell. Unlike with the kubelet one of which something runs is
// not: others may run pods, too.
func (c *chooser) gone(pod types.UID) bool {
	_, known := c.inventory.Pods[pod]
	return c.inventory.Complete && !known && !c.living[pod]
}

// released says whether nothing of the pod's need be kept, and why.
func (c *chooser) released(pod types.UID) (Reason, bool) {
	switch {
	case c.gone(pod):
		return PodGone, true
	case c.inventory.Evicted[pod] && !c.living[pod]:
		return PodEvicted, true
	case c.goal.Pressure && c.inventory.Complete && c.inventory.Pods[pod].Ended && !c.living[pod]:
		return PodEnded, true
	}
	return 0, false
}

// older orders by time and then by id, so that no two are alike.
func older(a, b time.Time, idA, idB string) int {
	return cmp.Or(a.Compare(b), cmp.Compare(idA, idB))
}

// sorted copies what it sorts: the inventory stays as it is.
func sorted[T any](s []T, order func(a, b T) int) []T {
	s = slices.Clone(s)
	slices.SortFunc(s, order)
	return s
}
