package suite_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/evictd/evictd/internal/require"
	"github.com/evictd/evictd/test/containerd/node"
)

// statfs asks about the filesystem that a path is on, once all is written.
func statfs(t *testing.T, path string) (s syscall.Statfs_t) {
	t.Helper()
	dir, err := os.Open(path)
	require.NoError(t, err)
	defer dir.Close()
	require.NoError(t, errors.Join(unix.Syncfs(int(dir.Fd())), syscall.Statfs(path, &s)))
	return s
}

func TestImagesLayersAndVolumesAreOnTheirDisks(t *testing.T) {
	t.Parallel()
	for kind, bytes := range map[node.Filesystem]int64{node.Ext4: 96 * node.MiB, node.XFS: 320 * node.MiB} {
		t.Run(string(kind), func(t *testing.T) {
			node.Each(t, func(t *testing.T, v node.Version) {
				images, pods := node.Disk(t, kind, bytes, 4000), node.Disk(t, node.Ext4, 16*node.MiB, 500)
				n := node.Start(t, v, node.Options{Root: filepath.Join(images, "containerd"), Kubelet: pods, Logs: filepath.Join(pods, "log")})
				before, kubelet := statfs(t, images), statfs(t, pods)
				n.Import(node.Image{Name: "localhost/more:1", Bytes: 4 * node.MiB})
				p := n.Pod("writer", node.Spec{EmptyDirs: scratch})
				p.Do("write", "/layer", 4*node.MiB, 0)
				p.Do("unlinked", "/unlinked", 4*node.MiB)
				p.Do("files", "/scratch/files", 100)
				p.Do("print", 100_000)
				after := statfs(t, images)
				if used := int64(before.Bfree-after.Bfree) * after.Bsize; used < 16*node.MiB {
					t.Errorf("%d bytes were written of an image's blob, its files, a layer and an unlinked file of 4 MiB each", used)
				}
				if files := kubelet.Ffree - statfs(t, pods).Ffree; files < 100 {
					t.Errorf("%d files in the volume, want 100", files)
				}
				filesystem := node.Call(n, n.Images.ImageFsInfo, &runtime.ImageFsInfoRequest{}).ImageFilesystems[0]
				if !strings.HasPrefix(filesystem.FsId.Mountpoint, n.Root) {
					t.Errorf("images are at %s, want them below %s", filesystem.FsId.Mountpoint, n.Root)
				}
			})
		})
	}
}

func TestDisksHaveAnEnd(t *testing.T) {
	t.Parallel()
	disk := node.Disk(t, node.Ext4, 32*node.MiB, 1000)
	s := statfs(t, disk)
	if size := int64(s.Blocks) * s.Bsize; size > 32*node.MiB || size < 28*node.MiB || s.Files < 900 || s.Files > 1100 {
		t.Errorf("a disk of %d bytes and %d inodes, want about 32 MiB and 1000", size, s.Files)
	}
	if s := statfs(t, node.Disk(t, node.XFS, 320*node.MiB, 6000)); s.Files < 6000 || s.Files > 13000 {
		t.Errorf("a disk of %d inodes, want about 6000", s.Files)
	}
}
