package suite_test

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/evictd/evictd/test/containerd/node"
)

// faults are what may happen to a containerd, and how that ends.
var faults = map[string]struct{ begin, end func(*node.Node) }{
	"frozen": {(*node.Node).Freeze, (*node.Node).Thaw},
	"killed": {(*node.Node).Kill, (*node.Node).Restart},
}

// underFaults runs a test for each fault and version, on a node whose images and
// layers are on a disk that will be short of what is taken of it, by a threshold
// that is hard or soft.
func underFaults(t *testing.T, kind string, test func(t *testing.T, r *diskFixture, fault string)) {
	for fault := range faults {
		t.Run(fault, func(t *testing.T) {
			t.Parallel()
			node.Each(t, func(t *testing.T, v node.Version) {
				r := &diskFixture{t: t, share: shares["bytes"], disk: node.Disk(t, node.Ext4, 192*node.MiB, 6000)}
				r.n = node.Start(t, v, node.Options{Root: filepath.Join(r.disk, "containerd")})
				r.filler, r.small = r.n.Pod("filler", node.Spec{Grace: 4, Orders: []string{"ignore-term"}}), r.n.Pod("small", node.Spec{})
				r.do(r.small.Containers[0], "little", r.unit/8)
				for i := range 4 {
					r.n.Import(r.image(fmt.Sprint("localhost/unused:", i), 2*r.unit))
				}
				r.threshold = r.free(t, r.disk) - r.unit
				r.arguments = append(r.arguments, fmt.Sprintf("--eviction-%s=imagefs.available<%d", kind, r.threshold))
				test(t, r, fault)
			})
		})
	}
}

func TestRuntimeThatIsFrozenOrGoneDuringACollectionIsWaitedFor(t *testing.T) {
	underFaults(t, "hard", func(t *testing.T, r *diskFixture, fault string) {
		r.e = r.n.Evictd(r.arguments...)
		r.e.AwaitPods(2)
		r.starve("fill", 5*r.unit) // two images and a half
		node.Await(t, "the first image to go", func() bool { return len(unused(r.n)) < 4 })
		faults[fault].begin(r.n)
		node.Await(t, "evictd to know that the runtime does not answer", func() bool { return !r.e.Status().Runtime.Connected })
		faults[fault].end(r.n)
		node.Await(t, "the collection to be gone on with", func() bool { return len(unused(r.n)) == 1 })
		r.awaitPressure(false)
		if evictions := r.e.Status().Evictions; len(evictions) > 0 || !r.filler.Lives() || !r.small.Lives() {
			t.Errorf("evictions %+v although what is unused sufficed", evictions)
		}
		if left := unused(r.n); len(left) != 1 {
			t.Errorf("images %v are left, want one", left)
		}
	})
}

func TestRuntimeThatIsFrozenOrGoneDoesNotPreventADiskEviction(t *testing.T) {
	underFaults(t, "soft", func(t *testing.T, r *diskFixture, fault string) {
		r.arguments = append(r.arguments, "--eviction-soft-grace-period=imagefs.available=100ms", "--eviction-max-pod-grace-period=4")
		r.e = r.n.Evictd(r.arguments...)
		r.e.AwaitPods(2)
		r.starve("much", 9*r.unit) // all four images, and more
		node.Await(t, "the eviction to begin", func() bool { return len(r.e.Status().Evictions) > 0 })
		faults[fault].begin(r.n)
		evicted := r.e.AwaitEviction(r.filler)
		if took := evicted.Gone.Sub(evicted.Decided.Time); took < 3*time.Second {
			t.Errorf("gone after %v: it had no grace", took)
		}
		faults[fault].end(r.n)
		node.Await(t, "what is left of the pod to be removed", func() bool { return len(r.containers(r.filler)) == 0 })
		r.awaitPressure(false)
		if evictions := r.e.Status().Evictions; len(evictions) != 1 || !r.small.Lives() {
			t.Errorf("evictions %+v, want the filler's alone", evictions)
		}
	})
}
