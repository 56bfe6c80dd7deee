package suite_test

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/evictd/evictd/nodestatus"
	"github.com/evictd/evictd/test/containerd/node"
)

// share of a disk is what can run out on it.
type share struct {
	signal string // without its filesystem
	unit   int64  // far more than a containerd uses by the way
	free   func(t *testing.T, disk string) int64
	// take is the order to take so much of the disk that the writable layer is on,
	// in a file or directory of that name.
	take  func(name string, amount int64) (order string, args []any)
	image func(name string, amount int64) node.Image
}

var shares = map[string]share{
	"bytes": {
		signal: "available", unit: 8 * node.MiB,
		free: func(t *testing.T, disk string) int64 {
			s := statfs(t, disk)
			return int64(s.Bavail) * s.Bsize
		},
		take: func(name string, amount int64) (string, []any) { return "write", []any{"/" + name, amount, 0} },
		// It is there twice, see node.Image.
		image: func(name string, amount int64) node.Image { return node.Image{Name: name, Bytes: amount / 2} },
	},
	"inodes": {
		signal: "inodesFree", unit: 200,
		free:  func(t *testing.T, disk string) int64 { return int64(statfs(t, disk).Ffree) },
		take:  func(name string, amount int64) (string, []any) { return "files", []any{"/" + name, amount} },
		image: func(name string, amount int64) node.Image { return node.Image{Name: name, Files: int(amount)} },
	},
}

// layouts put containerd on a disk, and all else there too or elsewhere.
var layouts = map[string]struct {
	filesystem string // whose signals are the disk's
	options    func(disk string) node.Options
	arguments  func(disk string) []string
}{
	"shared": {
		"nodefs",
		func(disk string) node.Options {
			return node.Options{Root: filepath.Join(disk, "containerd"), Kubelet: filepath.Join(disk, "kubelet")}
		},
		func(disk string) []string { return []string{"--nodefs=" + disk} },
	},
	"imagefs": {
		"imagefs",
		func(disk string) node.Options { return node.Options{Root: filepath.Join(disk, "containerd")} },
		func(string) []string { return nil },
	},
}

func TestDeadContainersThenUnusedImagesGoBeforeAPodDoes(t *testing.T) {
	for name, layout := range layouts {
		for _, kind := range []node.Filesystem{node.Ext4, node.XFS} {
			for of, s := range shares {
				t.Run(fmt.Sprint(name, " ", kind, " ", of), func(t *testing.T) {
					t.Parallel()
					disk := node.Disk(t, kind, 192*node.MiB, 6000)
					n := node.Start(t, node.Built, layout.options(disk))
					r := diskFixture{t: t, n: n, share: s, disk: disk}
					r.furnish()
					r.threshold = s.free(t, disk) - s.unit
					signal := layout.filesystem + "." + s.signal
					r.arguments = append(layout.arguments(disk), fmt.Sprintf("--eviction-hard=%s<%d", signal, r.threshold))
					r.mustReclaimInOrder(signal)
				})
			}
		}
	}
}

// TestADiskThatIsShortAtTheStartIsFreedBeforeAPodIsEvicted has evictd know the pods at once, and the images only once
// the runtime answers.
//
// rule: M.38
func TestADiskThatIsShortAtTheStartIsFreedBeforeAPodIsEvicted(t *testing.T) {
	for name, layout := range layouts {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			disk := node.Disk(t, node.Ext4, 192*node.MiB, 6000)
			r := diskFixture{t: t, n: node.Start(t, node.Built, layout.options(disk)), share: shares["bytes"], disk: disk}
			r.filler, r.small = r.n.Pod("filler", node.Spec{}), r.n.Pod("small", node.Spec{})
			r.n.Import(r.image("localhost/unused:1", 2*r.unit), r.image("localhost/unused:2", 2*r.unit))
			r.threshold = r.free(t, disk) - r.unit
			r.do(r.filler.Containers[0], "fill", r.unit*3/2)
			signal := layout.filesystem + "." + r.signal
			r.e = r.n.Evictd(append(layout.arguments(disk), "--pod-manifests="+manifests(t, r.filler, r.small), fmt.Sprintf("--eviction-hard=%s<%d", signal, r.threshold))...)
			node.Await(t, "an image to go", func() bool { return len(unused(r.n)) < 2 || len(r.e.Status().Evictions) > 0 })
			r.awaitPressure(false)
			if evictions := r.e.Status().Evictions; len(evictions) > 0 || !r.filler.Lives() {
				t.Errorf("evictions %+v although what is unused sufficed", evictions)
			}
		})
	}
}

// TestADiskThatIsShortAtTheStartLeavesTheImagesOfAnother has evictd know only from the runtime that images and writable layers
// are on a disk of their own: neither of them frees nodefs, which is short.
//
// rule: M.38
func TestADiskThatIsShortAtTheStartLeavesTheImagesOfAnother(t *testing.T) {
	t.Parallel()
	images, disk := node.Disk(t, node.Ext4, 192*node.MiB, 6000), node.Disk(t, node.Ext4, 96*node.MiB, 6000)
	n := node.Start(t, node.Built, node.Options{Root: filepath.Join(images, "containerd"), Kubelet: filepath.Join(disk, "kubelet")})
	r := diskFixture{t: t, n: n, share: shares["bytes"], disk: disk}
	layer, volume := n.Pod("layer", node.Spec{}), n.Pod("volume", node.Spec{EmptyDirs: map[string]string{"scratch": ""}})
	n.Import(r.image("localhost/unused:1", 2*r.unit), r.image("localhost/unused:2", 2*r.unit))
	r.threshold = r.free(t, disk) - r.unit
	r.do(layer.Containers[0], "fill", 4*r.unit)
	r.do(volume.Containers[0], "scratch/fill", r.unit*3/2)
	r.e = n.Evictd("--nodefs="+n.Kubelet, "--pod-manifests="+manifests(t, layer, volume), fmt.Sprintf("--eviction-hard=nodefs.available<%d", r.threshold))
	r.e.AwaitEviction(volume)
	if evictions := r.e.Status().Evictions; len(evictions) != 1 || len(unused(n)) != 2 {
		t.Errorf("evictions %+v, images %v; want that of the pod with a volume on the disk, and all images", evictions, unused(n))
	}
	if !layer.Lives() {
		t.Error("the pod with the larger layer has ended")
	}
}

// diskFixture is a node whose disk is made to run out.
type diskFixture struct {
	share
	t                     *testing.T
	n                     *node.Node
	e                     *node.Evictd
	disk                  string
	arguments             []string // of evictd
	threshold             int64
	filler, small, failed *node.Pod
}

// furnish has a pod that will fill the disk, one that holds little on it, one
// whose container has failed twice and runs again, two unused images and one that
// is pinned. Each of what can go holds two units or more.
func (r *diskFixture) furnish() {
	r.filler, r.small, r.failed = r.n.Pod("filler", node.Spec{}), r.n.Pod("small", node.Spec{}), r.n.Pod("failed", node.Spec{})
	r.do(r.small.Containers[0], "little", r.unit/8)
	for attempt := range 2 {
		c := r.failed.Containers[attempt]
		r.do(c, "layer", 2*r.unit)
		node.Call(r.n, r.n.Runtime.StopContainer, &runtime.StopContainerRequest{ContainerId: c.ID})
		r.failed.Start(&r.failed.Spec.Containers[0], attempt+1)
	}
	kept := r.image("localhost/kept:1", 2*r.unit)
	kept.Pinned = true
	r.n.Import(r.image("localhost/unused:1", 2*r.unit), r.image("localhost/unused:2", 2*r.unit), kept)
}

// protect runs an evictd and waits until it shows what would be removed.
func (r *diskFixture) protect(would ...string) {
	r.t.Helper()
	r.e = r.n.Evictd(r.arguments...)
	r.e.AwaitPods(3)
	node.Await(r.t, fmt.Sprintf("evictd to show that %v would be removed", would), func() bool {
		var kinds []string
		for _, next := range r.e.Status().Reclaimable {
			kinds = append(kinds, next.Kind)
		}
		return slices.Equal(kinds, would)
	})
}

// starve has the filler take so much that the disk lacks some.
func (r *diskFixture) starve(name string, lacks int64) {
	r.t.Helper()
	order, args := r.take(name, r.free(r.t, r.disk)-r.threshold+lacks)
	r.filler.Containers[0].Send(order, args...)
}

func (r *diskFixture) do(c *node.Container, name string, amount int64) {
	r.t.Helper()
	order, args := r.take(name, amount)
	c.Do(order, args...)
}

// reclaimable are the dead containers, and the images that no container uses.
func (r *diskFixture) reclaimable() (dead, images []string) {
	r.t.Helper()
	exited := &runtime.ContainerStateValue{State: runtime.ContainerState_CONTAINER_EXITED}
	for _, c := range node.Call(r.n, r.n.Runtime.ListContainers, &runtime.ListContainersRequest{Filter: &runtime.ContainerFilter{State: exited}}).Containers {
		if c.Labels["io.kubernetes.pod.name"] == r.failed.Name {
			dead = append(dead, c.Id)
		}
	}
	return dead, unused(r.n)
}

// unused are the images that are named so.
func unused(n *node.Node) (images []string) {
	for _, image := range node.Call(n, n.Images.ListImages, &runtime.ListImagesRequest{}).Images {
		for _, name := range image.RepoTags { // none while it is removed
			if strings.HasPrefix(name, "localhost/unused") {
				images = append(images, name)
			}
		}
	}
	return images
}

// containers are those, dead or not, that the runtime has of a pod.
func (r *diskFixture) containers(p *node.Pod) (ids []string) {
	r.t.Helper()
	of := &runtime.ContainerFilter{LabelSelector: map[string]string{"io.kubernetes.pod.name": p.Name}}
	for _, c := range node.Call(r.n, r.n.Runtime.ListContainers, &runtime.ListContainersRequest{Filter: of}).Containers {
		ids = append(ids, c.Id)
	}
	return ids
}

// mustReclaimInOrder starves the disk three times: the first two times what is unused
// suffices, and then it does not. Each time an evictd of its own begins.
func (r *diskFixture) mustReclaimInOrder(signal string) {
	for i, want := range []struct {
		would        []string
		dead, images int
	}{
		{[]string{"container", "image", "image"}, 1, 2},
		{[]string{"image", "image"}, 1, 1},
	} {
		r.protect(want.would...)
		r.starve(fmt.Sprint("fill", i), r.unit/2)
		node.Await(r.t, fmt.Sprintf("%d dead containers and %d images to be left", want.dead, want.images), func() bool {
			dead, images := r.reclaimable()
			return len(dead) == want.dead && len(images) == want.images
		})
		r.awaitPressure(false)
		if evictions := r.e.Status().Evictions; len(evictions) > 0 {
			r.t.Fatalf("evictions %+v although what is unused sufficed", evictions)
		}
		r.e.Stop()
	}
	if dead, _ := r.reclaimable(); !slices.Equal(dead, []string{r.failed.Containers[1].ID}) {
		r.t.Errorf("dead containers %v, want the younger one", dead)
	}
	r.protect("image")
	r.starve("much", 3*r.unit)
	if e := r.e.AwaitEviction(r.filler); e.Signal != signal {
		r.t.Errorf("evicted for %s, want %s", e.Signal, signal)
	}
	r.awaitPressure(false) // no other program removes what is left of it
	if left := r.containers(r.filler); len(left) > 0 {
		r.t.Errorf("containers %v of the evicted pod are left", left)
	}
	if _, images := r.reclaimable(); len(images) > 0 {
		r.t.Errorf("a pod went before the images %v", images)
	}
	if list(r.t, r.n)["localhost/kept:1"] == nil {
		r.t.Error("a pinned image is gone")
	}
	if evictions := r.e.Status().Evictions; len(evictions) != 1 || !r.small.Lives() || !r.failed.Lives() {
		r.t.Errorf("evictions %+v, want the filler's alone", evictions)
	}
}

// awaitPressure waits until the condition is raised, or is not.
func (r *diskFixture) awaitPressure(raised bool) {
	r.t.Helper()
	node.Await(r.t, fmt.Sprint("DiskPressure to be ", raised), func() bool {
		return slices.ContainsFunc(r.e.Status().Conditions, func(c nodestatus.ConditionStatus) bool {
			return c.Type == v1.NodeDiskPressure && (c.Status == v1.ConditionTrue) == raised
		})
	})
}
