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

	"github.com/evictd/evictd/internal/sandbox"
	"github.com/evictd/evictd/test/harness"
)

// ext4 makes a filesystem of 64 MiB and some 2000 inodes. Reserved blocks would
// count as used.
var ext4 = []string{"mke2fs", "-q", "-t", "ext4", "-m", "0", "-N", "2000", "-O", "^has_journal"}

// mountDisk puts a filesystem in the node, and returns where.
func mountDisk(n *harness.Node) string { return mount(n, "disk", "64M", ext4...) }

// mount makes a filesystem of a size in a file and mounts it.
func mount(n *harness.Node, name, size string, mkfs ...string) string {
	n.T.Helper()
	for _, program := range []string{mkfs[0], "mount", "umount"} {
		if _, err := exec.LookPath(program); err != nil {
			n.T.Skip("skipped: there is no disk to fill:", err)
		}
	}
	image, disk := filepath.Join(n.Dir, name+".img"), filepath.Join(n.Dir, name)
	mustRun(n.T, "truncate", "-s", size, image)
	mustRun(n.T, mkfs[0], append(mkfs[1:], image)...)
	if err := os.Mkdir(disk, 0o755); err != nil {
		n.T.Fatal(err)
	}
	if out, err := exec.Command("mount", "-o", "loop", image, disk).CombinedOutput(); err != nil {
		n.T.Skipf("skipped: a loop device cannot be mounted: %v: %s", err, out)
	}
	n.T.Cleanup(func() {
		harness.Await(n.T, "the disk to be free", func() bool { return unix.Unmount(disk, 0) == nil })
	})
	return disk
}

func mustRun(t testing.TB, name string, args ...string) {
	t.Helper()
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v: %s", name, err, out)
	}
}

// cleanUp takes a pod's volumes away once it has died, as the kubelet does.
func cleanUp(p *harness.Pod, disk string) {
	p.Node.T.Helper()
	p.AwaitEnd()
	if err := os.RemoveAll(filepath.Join(disk, "pods", string(p.UID))); err != nil {
		p.Node.T.Fatal(err)
	}
}

var scratch = map[string]string{"scratch": ""}

func diskNode(t *testing.T) (n *harness.Node, disk string, filler, small, idle *harness.Pod) {
	n = harness.NewNode(t, nodeMemory, nodePIDs)
	disk = mountDisk(n)
	filler, small, idle = startOn(n, disk)
	return n, disk, filler, small, idle
}

// startOn starts three pods: one that will fill the disk, one that holds a little
// on it, and one that holds nothing on it and is worst in every other respect.
func startOn(n *harness.Node, disk string) (filler, small, idle *harness.Pod) {
	n.T.Helper()
	filler = n.Start("filler", sandbox.Spec{Request: "64Mi", EmptyDirs: scratch})
	small = n.Start("small", sandbox.Spec{EmptyDirs: scratch})
	idle = n.Start("idle", sandbox.Spec{Priority: -10, EmptyDirs: scratch})
	idle.Do("hold 64Mi")
	small.Do("write %s/few 2Mi", small.Volume(disk, "scratch"))
	return filler, small, idle
}

// rule: 1.17
// rule: 1.52
// rule: M.105
func TestPodThatFillsTheDiskDiesAndOneThatHoldsNothingOnItLives(t *testing.T) {
	t.Parallel()
	n, disk, filler, small, idle := diskNode(t)
	d := n.Evictd(sandbox.NodeFs(disk), sandbox.EvictionHard("nodefs.available<16Mi"))
	d.AwaitPods("nodefs.available", filler, small, idle)
	filler.Send("write %s/much 52Mi", filler.Volume(disk, "scratch"))
	cleanUp(filler, disk)
	mustHaveRelieved(d, filler, "nodefs.available", "The node was low on resource: ephemeral-storage. Threshold quantity: 16Mi, available: ")
	harness.MustRun(t, small, idle)
}

// rule: 1.18
func TestPodThatTakesTheInodesDiesAndOneThatHoldsMoreBytesLives(t *testing.T) {
	t.Parallel()
	n, disk, filler, small, idle := diskNode(t)
	d := n.Evictd(sandbox.NodeFs(disk), sandbox.EvictionHard("nodefs.inodesFree<10%"))
	d.AwaitPods("nodefs.inodesFree", filler, small, idle)
	filler.Send("files %s 1900", filler.Volume(disk, "scratch"))
	cleanUp(filler, disk)
	mustHaveRelieved(d, filler, "nodefs.inodesFree", "The node was low on resource: inodes. Threshold quantity: ")
	harness.MustRun(t, small, idle)
}

// mustHaveRelieved waits until the disk is well again, by the end of one pod.
func mustHaveRelieved(d *harness.Evictd, filler *harness.Pod, signal, message string) {
	d.T.Helper()
	if e := d.AwaitGone(filler); e.Signal != signal || !strings.HasPrefix(e.Message, message) || e.Freed != "" || e.Held == "" {
		d.T.Errorf("unexpected eviction %+v", e)
	}
	d.AwaitCondition(v1.NodeDiskPressure, v1.TaintNodeDiskPressure, false)
	awaitNodeFile(filler.Node, v1.NodeDiskPressure, v1.TaintNodeDiskPressure, false)
	d.AwaitMetric(fmt.Sprintf("kubelet_evictions{eviction_signal=%q} 1", signal))
	d.MustHaveEvicted(filler)
}

func TestPodOverItsEmptyDirsSizeLimitDiesWithoutAnyPressure(t *testing.T) {
	t.Parallel()
	n := harness.NewNode(t, nodeMemory, nodePIDs)
	over := n.Start("over", sandbox.Spec{Request: "64Mi", EmptyDirs: map[string]string{"scratch": "4Mi"}})
	under := n.Start("under", sandbox.Spec{EmptyDirs: map[string]string{"scratch": "16Mi"}})
	over.Do("write %s/f 5Mi", over.Volume(n.Dir, "scratch"))
	under.Do("write %s/f 5Mi", under.Volume(n.Dir, "scratch"))
	d := n.Evictd(sandbox.EvictionHard("memory.available<32Mi"))
	e := d.AwaitGone(over)
	if want := `Usage of EmptyDir volume "scratch" exceeds the limit "4Mi". `; e.Signal != "emptydirfs.limit" || e.Message != want {
		t.Errorf("unexpected eviction %+v", e)
	}
	d.AwaitMetric(`kubelet_evictions{eviction_signal="emptydirfs.limit"} 1`)
	d.MustHaveEvicted(over)
	harness.MustRun(t, under)
	if conditions := d.Status().Taints; len(conditions) > 0 {
		t.Errorf("taints %v although nothing is low", conditions)
	}
}

// rule: M.17
func TestPodThatHoldsADeletedFileOpenDiesForIt(t *testing.T) {
	t.Parallel()
	n, disk, filler, small, idle := diskNode(t)
	d := n.Evictd(sandbox.NodeFs(disk), sandbox.EvictionHard("nodefs.available<16Mi"))
	d.AwaitPods("nodefs.available", filler, small, idle)
	filler.Send("unlinked %s/much 52Mi", filler.Volume(disk, "scratch"))
	cleanUp(filler, disk)
	mustHaveRelieved(d, filler, "nodefs.available", "The node was low on resource: ephemeral-storage. Threshold quantity: 16Mi, available: ")
	harness.MustRun(t, small, idle)
}
