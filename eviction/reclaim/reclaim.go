// Package reclaim chooses what a node removes before it evicts a pod: dead containers,
// sandboxes without containers, unused images; in which order, and how many. It removes
// nothing, reads no clock, and depends on its arguments alone.
//
// The rules are those of the kubelet's container and image collection (1.37), except
// that a disk under pressure is freed of what it lacks and not of everything unused,
// and that inodes count.
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

// Policy says what may be removed.
type Policy struct {
	// ContainerMinAge is how long ago a container must have exited.
	ContainerMinAge time.Duration
	// MaxPerPodContainer is how many dead containers of each name in a pod are kept,
	// and MaxContainers how many on the node; negative is without limit.
	MaxPerPodContainer, MaxContainers int
	// ImageMinAge is how long ago an image must have been detected. An image unused for
	// ImageMaxAge is removed in any case; zero turns that off.
	ImageMinAge, ImageMaxAge time.Duration
	// HighPercent of a disk used starts the removal of images, and LowPercent ends it;
	// see Need.
	HighPercent, LowPercent int64
	// Everything says that all unused objects are removed from a disk under pressure,
	// as by the kubelet, and not only what it lacks.
	Everything bool
	// Keep are references of images that are never removed; a reference that ends in *
	// is a prefix.
	Keep []string
}

// Need is what must be freed of the filesystem of images: nothing below HighPercent of
// its bytes or inodes, else down to LowPercent. It is not known where the capacity is
// not, or is zero.
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

// UsedPercent is the used part of a capacity above zero, rounded up as by the kubelet.
func UsedPercent(capacity, available int64) int64 {
	return 100 - share(min(available, capacity), 100, capacity)
}

// share is n*by/divided; the product may exceed 64 bits, the quotient does not.
func share(n, by, divided int64) int64 {
	high, low := bits.Mul64(uint64(max(0, n)), uint64(by))
	quotient, _ := bits.Div64(high, low, uint64(divided))
	return int64(quotient)
}

// Goal is what a choice is made for.
type Goal struct {
	// Containers and Images say which kinds may be removed.
	Containers, Images bool
	// Pressure says that a threshold is met: removals are limited by Need, unless the
	// policy has Everything, and containers of ended pods are not kept. Otherwise dead
	// containers beyond their limits and images beyond their age are removed whatever
	// the need is.
	Pressure bool
	Need     eviction.Need
	// Except are the ids of objects that could not be removed.
	Except map[string]bool
}

// Kind of a removed object.
type Kind uint8

// The kinds, in the order of removal.
const (
	KindContainer Kind = iota
	KindSandbox
	KindImage
)

func (k Kind) String() string { return [...]string{"container", "sandbox", "image"}[k] }

// Reason says why an object is removed.
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

// Removal is one removed object.
type Removal struct {
	Kind Kind
	ID   string
	// Pod of a container or sandbox.
	Pod types.UID
	// Name of the container, or the image's first reference.
	Name string
	Why  Reason
	// Bytes and Inodes are what the removal is expected to free. Those of an image
	// include shared layers.
	Bytes, Inodes stats.Amount
	// Log of a container is removed with it.
	Log string
}

// KeepReason says why an object is kept.
type KeepReason uint8

// The reasons to keep an object.
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

// Kept is one object that is kept.
type Kept struct {
	Kind Kind
	ID   string
	Pod  types.UID
	Name string
	Why  KeepReason
}

// Plan is what is removed, in order, and what is kept.
type Plan struct {
	Removals []Removal
	Kept     []Kept
	// Bytes and Inodes are the sums of the removals, as far as known.
	Bytes, Inodes int64
}

// Choose chooses what is removed for a goal: containers, then sandboxes, then images.
// The order of the inventory does not matter.
func Choose(inv *Inventory, p *Policy, g Goal, now time.Time) Plan {
	c := chooser{inventory: inv, policy: p, goal: g, now: now, running: inv.runningPods(), removed: map[string]bool{}}
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
	running   map[types.UID]bool // pods with a running container
	removed   map[string]bool    // containers
	plan      Plan
}

// limited says whether removals are limited by the need: of images unless the policy
// has Everything, of containers only under pressure.
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

// remove chooses an object, unless enough are chosen.
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

// gone says whether the pod is deleted, which needs a complete list of pods. Unlike
// with the kubelet, a pod with a running container is not: it may not be the kubelet's.
func (c *chooser) gone(pod types.UID) bool {
	_, known := c.inventory.Pods[pod]
	return c.inventory.Complete && !known && !c.running[pod]
}

// released says whether nothing of the pod needs to be kept, and why.
func (c *chooser) released(pod types.UID) (Reason, bool) {
	switch {
	case c.gone(pod):
		return PodGone, true
	case c.inventory.Evicted[pod] && !c.running[pod]:
		return PodEvicted, true
	case c.goal.Pressure && c.inventory.Complete && c.inventory.Pods[pod].Ended && !c.running[pod]:
		return PodEnded, true
	}
	return 0, false
}

// older orders by time and then by id.
func older(a, b time.Time, idA, idB string) int {
	return cmp.Or(a.Compare(b), cmp.Compare(idA, idB))
}

// sorted sorts a copy.
func sorted[T any](s []T, order func(a, b T) int) []T {
	s = slices.Clone(s)
	slices.SortFunc(s, order)
	return s
}
