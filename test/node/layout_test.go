package node_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// contain gives the pod a root of its own, whose writable layer is on a disk.
func (p *pod) contain(disk string) {
	p.n.t.Helper()
	root := filepath.Join(p.n.dir, p.Name+"-root")
	layer, work := filepath.Join(disk, p.Name, "fs"), filepath.Join(disk, p.Name, "work")
	for _, dir := range []string{root, layer, work} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			p.n.t.Fatal(err)
		}
	}
	if err := unix.Mount("overlay", root, "overlay", 0, fmt.Sprintf("lowerdir=/bin,upperdir=%s,workdir=%s", layer, work)); err != nil {
		p.n.t.Skip("skipped: an overlay cannot be mounted here:", err)
	}
	p.n.t.Cleanup(func() { _ = unix.Unmount(root, unix.MNT_DETACH) })
	p.do("enter %s", root)
}

// discard takes a dead pod's writable layer away, as the runtime does.
func (p *pod) discard(disk string) {
	p.n.t.Helper()
	p.mustDie()
	if err := unix.Unmount(filepath.Join(p.n.dir, p.Name+"-root"), 0); err != nil {
		p.n.t.Error(err)
	}
	if err := os.RemoveAll(filepath.Join(disk, p.Name)); err != nil {
		p.n.t.Fatal(err)
	}
}

// xfs makes a filesystem that takes no less than 320 MiB.
var xfs = []string{"mkfs.xfs", "-q", "-f", "-i", "maxpct=1"}

// rule: 1.40
func TestPodWhoseWritableLayerFillsADiskDiesInEveryLayout(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		size   string
		mkfs   []string
		signal string // that starves
		hard   string // thresholds
		order  string // to the pod that fills the disk of its writable layer
		// paths of nodefs, imagefs and containerfs: the disk of the writable layers,
		// that of the images, and the node's own.
		paths func(layers, images, node string) []string
	}{
		"one disk": {
			"64M", ext4, "nodefs.available", "nodefs.available<16Mi", "fill /much 52",
			func(layers, _, _ string) []string { return []string{"--nodefs=" + layers} },
		},
		"image disk, ext4 bytes": {
			"64M", ext4, "imagefs.available", "imagefs.available<16Mi", "fill /much 52",
			func(layers, _, node string) []string { return []string{"--nodefs=" + node, "--imagefs=" + layers} },
		},
		"image disk, ext4 inodes": {
			"64M", ext4, "imagefs.inodesFree", "imagefs.inodesFree<10%", "files / 1900",
			func(layers, _, node string) []string { return []string{"--nodefs=" + node, "--imagefs=" + layers} },
		},
		"image disk, xfs bytes": {
			"320M", xfs, "imagefs.available", "imagefs.available<64Mi", "fill /much 224",
			func(layers, _, node string) []string { return []string{"--nodefs=" + node, "--imagefs=" + layers} },
		},
		"image disk, xfs inodes": {
			"320M", xfs, "imagefs.inodesFree", "imagefs.inodesFree<50%", "files / 5000",
			func(layers, _, node string) []string { return []string{"--nodefs=" + node, "--imagefs=" + layers} },
		},
		"split": {
			"64M", ext4, "nodefs.available", "nodefs.available<16Mi,imagefs.available<1Mi", "fill /much 52",
			func(layers, images, _ string) []string {
				return []string{"--nodefs=" + layers, "--imagefs=" + images, "--containerfs=" + layers}
			},
		},
		"three disks": {
			"64M", ext4, "containerfs.available", "imagefs.available<16Mi", "fill /much 52",
			func(layers, images, node string) []string {
				return []string{"--nodefs=" + node, "--imagefs=" + images, "--containerfs=" + layers}
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t, nodeMemory, nodePIDs)
			layers := n.mount("layers", test.size, test.mkfs...)
			images := n.mount("images", "64M", ext4...)
			filler, small := n.start("filler", podSpec{}), n.start("small", podSpec{})
			// The worst in every other respect holds nothing on this disk.
			idle := n.start("idle", podSpec{priority: -10})
			idle.do("hold 64")
			for _, p := range []*pod{filler, small} {
				p.contain(layers)
			}
			small.do("fill /few 2")
			d := n.run(append(test.paths(layers, images, n.dir), "--eviction-hard="+test.hard)...)
			d.awaitPods(test.signal, filler, small, idle)
			filler.tell(test.order)
			filler.discard(layers)
			mustHaveRelieved(d, filler, test.signal, "The node was low on resource: ")
			mustLive(t, small, idle)
		})
	}
}
