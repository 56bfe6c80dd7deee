package eviction

import v1 "k8s.io/api/core/v1"

// Layout says which filesystems of the node share a disk.
type Layout uint8

// The layouts, by the names that scenarios use.
const (
	// SharedFs: one disk for everything.
	SharedFs Layout = iota
	// ImageFs: images and writable layers on a disk of their own.
	ImageFs
	// SplitFs: images on a disk of their own, writable layers on nodefs.
	SplitFs
	// SeparateFs: images on a disk of their own, writable layers on another. The
	// kubelet has no such layout.
	SeparateFs
)

var layoutNames = [...]string{SharedFs: "shared", ImageFs: "imagefs", SplitFs: "split", SeparateFs: "separate"}

func (l Layout) String() string { return layoutNames[l] }

// ParseLayout finds a layout by name; the empty name is one shared disk.
func ParseLayout(name string) (Layout, bool) {
	if name == "" {
		return SharedFs, true
	}
	for l, n := range layoutNames {
		if n == name {
			return Layout(l), true
		}
	}
	return 0, false
}

// ReclaimStep is something the node can free without ending a pod.
type ReclaimStep uint8

// The steps, in the order in which they are tried.
const (
	DeadContainers ReclaimStep = iota
	UnusedImages
)

func (s ReclaimStep) String() string { return [...]string{"containers", "images"}[s] }

type filesystem uint8

const (
	noFs filesystem = iota
	nodeFs
	imageFs
	containerFs
	numFilesystems
)

// holding says which parts of a pod's disk use lie on a filesystem.
type holding uint8

const (
	logs holding = 1 << iota
	localVolumes
	writableLayers

	everything = logs | localVolumes | writableLayers
)

// disk is the same for filesystems that share their space.
type disk uint8

const (
	nodeDisk disk = iota
	imageDisk
	containerDisk
	numDisks
)

// placement is what a filesystem means under a layout: its disk, what the node
// can free there by itself, and what pods keep there.
type placement struct {
	disk    disk
	reclaim []ReclaimStep
	holds   holding
}

// placements restates the kubelet's ranking and reclaim tables for its three
// layouts (pkg/kubelet/eviction/helpers.go, 1.37), and adds a row for SeparateFs, which
// it does not have. No pod holds image bytes.
var placements = [...][numFilesystems]placement{
	SharedFs: {
		nodeFs:      {nodeDisk, []ReclaimStep{DeadContainers, UnusedImages}, everything},
		imageFs:     {nodeDisk, []ReclaimStep{DeadContainers, UnusedImages}, everything},
		containerFs: {nodeDisk, []ReclaimStep{DeadContainers, UnusedImages}, everything},
	},
	ImageFs: {
		nodeFs:      {nodeDisk, nil, logs | localVolumes},
		imageFs:     {imageDisk, []ReclaimStep{DeadContainers, UnusedImages}, writableLayers},
		containerFs: {imageDisk, []ReclaimStep{DeadContainers, UnusedImages}, writableLayers},
	},
	SplitFs: {
		nodeFs:      {nodeDisk, []ReclaimStep{DeadContainers}, everything},
		imageFs:     {imageDisk, []ReclaimStep{UnusedImages}, 0},
		containerFs: {nodeDisk, []ReclaimStep{DeadContainers}, everything},
	},
	SeparateFs: {
		nodeFs:      {nodeDisk, nil, logs | localVolumes},
		imageFs:     {imageDisk, []ReclaimStep{UnusedImages}, 0},
		containerFs: {containerDisk, []ReclaimStep{DeadContainers}, writableLayers},
	},
}

// containerFsFollows names, per layout, the signals whose thresholds
// containerfs takes over; it has none of its own.
var containerFsFollows = [...]struct{ available, inodesFree Signal }{
	SharedFs:   {NodeFsAvailable, NodeFsInodesFree},
	ImageFs:    {ImageFsAvailable, ImageFsInodesFree},
	SplitFs:    {NodeFsAvailable, NodeFsInodesFree},
	SeparateFs: {ImageFsAvailable, ImageFsInodesFree},
}

func (l Layout) placement(s Signal) placement { return placements[l][signals[s].filesystem] }

// shortage is what a victim is ended for: a resource, and the disk it is on.
// Two signals with the same shortage are relieved by the same victim.
type shortage struct {
	resource v1.ResourceName
	disk     disk
	stall    bool // the end of its victim is waited for longer
}

func (l Layout) shortage(s Signal) shortage {
	return shortage{signals[s].resource, l.placement(s).disk, s == MemoryStall}
}
