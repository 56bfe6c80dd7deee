package node_test

import (
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	v1 "k8s.io/api/core/v1"

	"github.com/evictd/evictd/internal/sandbox"
	"github.com/evictd/evictd/test/harness"
)

// TestMemoryOfAVolumeIsAwaitedBeforeAnotherPodIsEvicted has a victim whose memory is in a volume, which a kubelet unmounts
// seconds after the end of the pod.
func TestMemoryOfAVolumeIsAwaitedBeforeAnotherPodIsEvicted(t *testing.T) {
	t.Parallel()
	n := harness.NewNode(t, nodeMemory, nodePIDs)
	m := n.Manifest("hog", sandbox.Spec{EmptyDirs: map[string]string{"cache": ""}})
	m.Spec.Volumes[0].EmptyDir.Medium = v1.StorageMediumMemory
	hog := n.StartIn(m, n.PodGroup(m), nil)
	n.Write(m)
	dir := hog.Volume(n.Dir, "cache")
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=240M"); err != nil {
		t.Skip("skipped: a tmpfs cannot be mounted:", err)
	}
	unmount := func() { _ = unix.Unmount(dir, unix.MNT_DETACH) }
	t.Cleanup(unmount)
	other := n.Start("other", sandbox.Spec{})
	other.Do("hold 20Mi")
	d := n.Evictd(sandbox.EvictionHard("memory.available<64Mi"))
	d.AwaitPods(memorySignal, hog, other)
	hog.Send("write %s 200Mi", filepath.Join(dir, "file"))
	d.AwaitGone(hog)
	<-time.After(2 * time.Second)
	d.MustHaveEvicted(hog)
	harness.MustRun(t, other)
	unmount()
	d.AwaitCondition(v1.NodeMemoryPressure, memoryTaint, false)
	d.MustHaveEvicted(hog)
	harness.MustRun(t, other)
}
