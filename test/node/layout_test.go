package node_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/evictd/evictd/internal/require"
	"github.com/evictd/evictd/internal/sandbox"
	"github.com/evictd/evictd/test/harness"
)

// contain gives the pod a root of its own, whose writable layer is on a disk.
func contain(p *harness.Pod, disk string) {
	p.Node.T.Helper()
	root := filepath.Join(p.Node.Dir, p.Name+"-root")
	layer, work := filepath.Join(disk, p.Name, "fs"), filepath.Join(disk, p.Name, "work")
	for _, dir := range []string{root, layer, work} {
		require.NoError(p.Node.T, os.MkdirAll(dir, 0o755))
	}
	if err := unix.Mount("overlay", root, "overlay", 0, fmt.Sprintf("lowerdir=/bin,upperdir=%s,workdir=%s", layer, work)); err != nil {
		p.Node.T.Skip("skipped: an overlay cannot be mounted here:", err)
	}
	p.Node.T.Cleanup(func() { _ = unix.Unmount(root, unix.MNT_DETACH) })
	p.Do("enter %s", root)
}

// removeLayer takes a dead pod's writable layer away, as the runtime does.
func removeLayer(p *harness.Pod, disk string) {
	p.Node.T.Helper()
	p.AwaitEnd()
	if err := unix.Unmount(filepath.Join(p.Node.Dir, p.Name+"-root"), 0); err != nil {
		p.Node.T.Error(err)
	}
	require.NoError(p.Node.T, os.RemoveAll(filepath.Join(disk, p.Name)))
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
			"64M", ext4, "nodefs.available", "nodefs.available<16Mi", "write /much 52Mi",
			func(layers, _, _ string) []string { return []string{sandbox.NodeFs(layers)} },
		},
		"image disk, ext4 bytes": {
			"64M", ext4, "imagefs.available", "imagefs.available<16Mi", "write /much 52Mi",
			func(layers, _, node string) []string { return []string{sandbox.NodeFs(node), sandbox.ImageFs(layers)} },
		},
		"image disk, ext4 inodes": {
			"64M", ext4, "imagefs.inodesFree", "imagefs.inodesFree<10%", "files / 1900",
			func(layers, _, node string) []string { return []string{sandbox.NodeFs(node), sandbox.ImageFs(layers)} },
		},
		"image disk, xfs bytes": {
			"320M", xfs, "imagefs.available", "imagefs.available<64Mi", "write /much 224Mi",
			func(layers, _, node string) []string { return []string{sandbox.NodeFs(node), sandbox.ImageFs(layers)} },
		},
		"image disk, xfs inodes": {
			"320M", xfs, "imagefs.inodesFree", "imagefs.inodesFree<50%", "files / 5000",
			func(layers, _, node string) []string { return []string{sandbox.NodeFs(node), sandbox.ImageFs(layers)} },
		},
		"split": {
			"64M", ext4, "nodefs.available", "nodefs.available<16Mi,imagefs.available<1Mi", "write /much 52Mi",
			func(layers, images, _ string) []string {
				return []string{sandbox.NodeFs(layers), sandbox.ImageFs(images), sandbox.ContainerFs(layers)}
			},
		},
		"three disks": {
			"64M", ext4, "containerfs.available", "imagefs.available<16Mi", "write /much 52Mi",
			func(layers, images, node string) []string {
				return []string{sandbox.NodeFs(node), sandbox.ImageFs(images), sandbox.ContainerFs(layers)}
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := harness.NewNode(t, nodeMemory, nodePIDs)
			layers := mount(n, "layers", test.size, test.mkfs...)
			images := mount(n, "images", "64M", ext4...)
			filler, small := n.Start("filler", sandbox.Spec{}), n.Start("small", sandbox.Spec{})
			// The worst in every other respect holds nothing on this disk.
			idle := n.Start("idle", sandbox.Spec{Priority: -10})
			idle.Do("hold 64Mi")
			for _, p := range []*harness.Pod{filler, small} {
				contain(p, layers)
			}
			small.Do("write /few 2Mi")
			d := n.Evictd(append(test.paths(layers, images, n.Dir), sandbox.EvictionHard(test.hard))...)
			d.AwaitPods(test.signal, filler, small, idle)
			filler.Send("%s", test.order)
			removeLayer(filler, layers)
			mustHaveRelieved(d, filler, test.signal, "The node was low on resource: ")
			harness.MustRun(t, small, idle)
		})
	}
}
