package suite_test

import (
	"testing"

	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/evictd/evictd/test/containerd/node"
)

// list is the images of a node, by their only name.
func list(t *testing.T, n *node.Node) map[string]*runtime.Image {
	t.Helper()
	images := map[string]*runtime.Image{}
	for _, image := range node.Call(n, n.Images.ListImages, &runtime.ListImagesRequest{}).Images {
		if len(image.RepoTags) != 1 {
			t.Fatalf("image %s has the names %q", image.Id, image.RepoTags)
		}
		images[image.RepoTags[0]] = image
	}
	return images
}

func TestImagesAreAsLargeAsTheyAreMadeAndGo(t *testing.T) {
	t.Parallel()
	node.Each(t, func(t *testing.T, v node.Version) {
		n := node.Start(t, v, node.Options{})
		n.Import(
			node.Image{Name: "localhost/small:1", Bytes: node.MiB},
			node.Image{Name: "localhost/large:1", Bytes: 8 * node.MiB},
			node.Image{Name: "localhost/many:2", Files: 300},
		)
		images := list(t, n)
		if len(images) != 5 { // with those of pods and sandboxes
			t.Fatalf("images %v, want 5", images)
		}
		if more := int64(images["localhost/large:1"].Size) - int64(images["localhost/small:1"].Size); more < 7*node.MiB || more > 7*node.MiB+4096 {
			t.Errorf("the large image has %d bytes more than the small one, want 7 MiB", more)
		}
		n.Pod("user", node.Spec{Image: "localhost/many:2"}).Do("hold", node.MiB)

		used := func() *runtime.FilesystemUsage {
			filesystems := node.Call(n, n.Images.ImageFsInfo, &runtime.ImageFsInfoRequest{}).ImageFilesystems
			if len(filesystems) != 1 {
				t.Fatalf("filesystems of images %v, want one", filesystems)
			}
			return filesystems[0]
		}
		node.Await(t, "the images to be counted", func() bool {
			return used().UsedBytes.Value > 9*node.MiB && used().InodesUsed.Value > 300
		})
		before := used().UsedBytes.Value
		large := &runtime.RemoveImageRequest{Image: &runtime.ImageSpec{Image: images["localhost/large:1"].Id}}
		node.Call(n, n.Images.RemoveImage, large)
		node.Call(n, n.Images.RemoveImage, large) // a missing one is no fault
		node.Await(t, "its bytes to be free", func() bool { return used().UsedBytes.Value+7*node.MiB < before })
		if left := list(t, n); len(left) != 4 || left["localhost/large:1"] != nil {
			t.Errorf("images %v, want all but the large one", left)
		}
	})
}

func TestOldContainerdKnowsNoPinnedImages(t *testing.T) {
	t.Parallel()
	node.Each(t, func(t *testing.T, v node.Version) {
		n := node.Start(t, v, node.Options{})
		n.Import(node.Image{Name: "localhost/kept:1", Pinned: true}, node.Image{Name: "localhost/loose:1"})
		pinned := func() bool { return list(t, n)["localhost/kept:1"].Pinned }
		if old(n) {
			if pinned() {
				t.Error("containerd 1.6 shows a pinned image")
			}
		} else {
			node.Await(t, "the image to be pinned", pinned)
		}
		if list(t, n)["localhost/loose:1"].Pinned {
			t.Error("an image is pinned that should not be")
		}
	})
}
