package node_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
)

// ext4 makes a filesystem of 64 MiB and some 2000 inodes. Reserved blocks would
// count as used.
var ext4 = []string{"mke2fs", "-q", "-t", "ext4", "-m", "0", "-N", "2000", "-O", "^has_journal"}

// mountDisk puts a filesystem in the node, and returns where.
func (n *node) mountDisk() string { return n.mount("disk", "64M", ext4...) }

// mount makes a filesystem of a size in a file and mounts it.
func (n *node) mount(name, size string, mkfs ...string) string {
	n.t.Helper()
	for _, program := range []string{mkfs[0], "mount", "umount"} {
		if _, err := exec.LookPath(program); err != nil {
			n.t.Skip("skipped: there is no disk to fill:", err)
		}
	}
	image, disk := filepath.Join(n.dir, name+".img"), filepath.Join(n.dir, name)
	mustRun(n.t, "truncate", "-s", size, image)
	mustRun(n.t, mkfs[0], append(mkfs[1:], image)...)
	if err := os.Mkdir(disk, 0o755); err != nil {
		n.t.Fatal(err)
	}
	if out, err := exec.Command("mount", "-o", "loop", image, disk).CombinedOutput(); err != nil {
		n.t.Skipf("skipped: a loop device cannot be mounted: %v: %s", err, out)
	}
	n.t.Cleanup(func() {
		await(n.t, "the disk to be free", func() bool { return unix.Unmount(disk, 0) == nil })
	})
	return disk
}

func mustRun(t testing.TB, name string, args ...string) {
	t.Helper()
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v: %s", name, err, out)
	}
}

// volume makes the directory of a pod's emptyDir where the kubelet would.
func (p *pod) volume(disk, name string) string {
	p.n.t.Helper()
	dir := filepath.Join(disk, "pods", string(p.UID), "volumes", "kubernetes.io~empty-dir", name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		p.n.t.Fatal(err)
	}
	return dir
}

// cleanUp takes a pod's volumes away once it has died, as the kubelet does.
func (p *pod) cleanUp(disk string) {
	p.n.t.Helper()
	p.mustDie()
	if err := os.RemoveAll(filepath.Join(disk, "pods", string(p.UID))); err != nil {
		p.n.t.Fatal(err)
	}
}

var scratch = map[string]string{"scratch": ""}

func diskNode(t *testing.T) (n *node, disk string, filler, small, idle *pod) {
	n = newNode(t, nodeMemory, nodePIDs)
	disk = n.mountDisk()
	filler, small, idle = n.startOn(disk)
	return n, disk, filler, small, idle
}

// startOn starts three pods: one that will fill the disk, one that holds a little
// on it, and one that holds nothing on it and is worst in every other respect.
func (n *node) startOn(disk string) (filler, small, idle *pod) {
	n.t.Helper()
	filler = n.start("filler", podSpec{request: "64Mi", emptyDirs: scratch})
	small = n.start("small", podSpec{emptyDirs: scratch})
	idle = n.start("idle", podSpec{priority: -10, emptyDirs: scratch})
	idle.do("hold 64")
	small.do("fill %s/few 2", small.volume(disk, "scratch"))
	return filler, small, idle
}

// rule: 1.17
// rule: 1.52
func TestPodThatFillsTheDiskDiesAndOneThatHoldsNothingOnItLives(t *testing.T) {
	t.Parallel()
	n, disk, filler, small, idle := diskNode(t)
	d := n.run("--nodefs="+disk, "--eviction-hard=nodefs.available<16Mi")
	d.awaitPods("nodefs.available", filler, small, idle)
	filler.tell("fill %s/much 52", filler.volume(disk, "scratch"))
	filler.cleanUp(disk)
	mustHaveRelieved(d, filler, "nodefs.available", "The node was low on resource: ephemeral-storage. Threshold quantity: 16Mi, available: ")
	mustLive(t, small, idle)
}

// rule: 1.18
func TestPodThatTakesTheInodesDiesAndOneThatHoldsMoreBytesLives(t *testing.T) {
	t.Parallel()
	n, disk, filler, small, idle := diskNode(t)
	d := n.run("--nodefs="+disk, "--eviction-hard=nodefs.inodesFree<10%")
	d.awaitPods("nodefs.inodesFree", filler, small, idle)
	filler.tell("files %s 1900", filler.volume(disk, "scratch"))
	filler.cleanUp(disk)
	mustHaveRelieved(d, filler, "nodefs.inodesFree", "The node was low on resource: inodes. Threshold quantity: ")
	mustLive(t, small, idle)
}

// mustHaveRelieved waits until the disk is well again, by the end of one pod.
func mustHaveRelieved(d *daemon, filler *pod, signal, message string) {
	d.t.Helper()
	if e := d.awaitEnd(filler); e.Signal != signal || !strings.HasPrefix(e.Message, message) {
		d.t.Errorf("unexpected eviction %+v", e)
	}
	d.awaitCondition(v1.NodeDiskPressure, v1.TaintNodeDiskPressure, false)
	filler.n.awaitNodeFile(v1.NodeDiskPressure, v1.TaintNodeDiskPressure, false)
	d.mustCount(fmt.Sprintf("kubelet_evictions{eviction_signal=%q} 1", signal))
	d.mustHaveEvicted(filler)
}

func TestPodOverItsEmptyDirsSizeLimitDiesWithoutAnyPressure(t *testing.T) {
	t.Parallel()
	n := newNode(t, nodeMemory, nodePIDs)
	over := n.start("over", podSpec{request: "64Mi", emptyDirs: map[string]string{"scratch": "4Mi"}})
	under := n.start("under", podSpec{emptyDirs: map[string]string{"scratch": "16Mi"}})
	over.do("fill %s/f 5", over.volume(n.dir, "scratch"))
	under.do("fill %s/f 5", under.volume(n.dir, "scratch"))
	d := n.run("--eviction-hard=memory.available<32Mi")
	e := d.awaitEnd(over)
	if want := `Usage of EmptyDir volume "scratch" exceeds the limit "4Mi". `; e.Signal != "emptydirfs.limit" || e.Message != want {
		t.Errorf("unexpected eviction %+v", e)
	}
	d.mustCount(`kubelet_evictions{eviction_signal="emptydirfs.limit"} 1`)
	d.mustHaveEvicted(over)
	mustLive(t, under)
	if conditions := d.status().Taints; len(conditions) > 0 {
		t.Errorf("taints %v although nothing is low", conditions)
	}
}

// rule: M.17
func TestPodThatHoldsADeletedFileOpenDiesForIt(t *testing.T) {
	t.Parallel()
	n, disk, filler, small, idle := diskNode(t)
	d := n.run("--nodefs="+disk, "--eviction-hard=nodefs.available<16Mi")
	d.awaitPods("nodefs.available", filler, small, idle)
	filler.tell("grab %s/much 52", filler.volume(disk, "scratch"))
	filler.cleanUp(disk)
	mustHaveRelieved(d, filler, "nodefs.available", "The node was low on resource: ephemeral-storage. Threshold quantity: 16Mi, available: ")
	mustLive(t, small, idle)
}
