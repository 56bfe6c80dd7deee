package suite_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/evictd/evictd/internal/require"
	"github.com/evictd/evictd/internal/sandbox"
	"github.com/evictd/evictd/test/containerd/node"
	"github.com/evictd/evictd/test/harness"
)

// raw leaves messages as they are.
type raw struct{}

func (raw) Name() string { return "proto" }

func (raw) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(*v.(*[]byte))}, nil
}

func (raw) Unmarshal(data mem.BufferSlice, v any) error {
	*v.(*[]byte) = data.Materialize()
	return nil
}

// splitFilesystems serves a node's CRI, which names one filesystem for the images and
// another one for writable layers: of all runtimes only CRI-O does so, where its
// storage.conf has an imagestore. It returns the endpoint.
func splitFilesystems(t *testing.T, n *node.Node, images, layers string) string {
	t.Helper()
	usage := func(at string) []*runtime.FilesystemUsage {
		return []*runtime.FilesystemUsage{{FsId: &runtime.FilesystemIdentifier{Mountpoint: at}}}
	}
	answer, err := proto.Marshal(&runtime.ImageFsInfoResponse{ImageFilesystems: usage(images), ContainerFilesystems: usage(layers)})
	require.NoError(t, err)
	containerd, err := grpc.NewClient(n.Endpoint(), grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultCallOptions(grpc.ForceCodecV2(raw{})))
	require.NoError(t, err)
	socket := filepath.Join(harness.Dir(t), "cri.sock")
	listener, err := net.Listen("unix", socket)
	require.NoError(t, err)
	server := grpc.NewServer(grpc.ForceServerCodecV2(raw{}), grpc.UnknownServiceHandler(func(_ any, up grpc.ServerStream) error {
		method, _ := grpc.MethodFromServerStream(up)
		var message []byte
		down, err := containerd.NewStream(up.Context(), &grpc.StreamDesc{ServerStreams: true}, method)
		if err := errors.Join(err, up.RecvMsg(&message)); err != nil {
			return err
		}
		for err = errors.Join(down.SendMsg(&message), down.CloseSend()); err == nil; err = up.SendMsg(&message) {
			if err := down.RecvMsg(&message); errors.Is(err, io.EOF) {
				return nil
			} else if err != nil {
				return err
			}
			if strings.HasSuffix(method, "/ImageFsInfo") {
				message = answer
			}
		}
		return err
	}))
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(listener) }) // until it is stopped
	t.Cleanup(func() {
		server.Stop()
		serving.Wait()
		containerd.Close()
	})
	return "unix:" + socket
}

// The kubelet's rules for a runtime with separate filesystems of images and layers,
// and what follows from them for one whose layers are not on nodefs either. Images
// are their blobs here; containerd unpacks them to where the layers are.
func TestEachDiskIsFreedOfWhatItHoldsWhereTheRuntimeHasImagesAndLayersApart(t *testing.T) {
	for name, layout := range map[string]struct {
		onNodeFs   bool // layers are
		thresholds string
		signal     string // of the disk with the layers
	}{
		"split":    {true, "--eviction-hard=imagefs.available<%d,nodefs.available<%[1]d", "nodefs.available"},
		"separate": {false, "--eviction-hard=imagefs.available<%d", "containerfs.available"}, // whose thresholds are those of imagefs
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			images, layers := node.Disk(t, node.Ext4, 192*node.MiB, 6000), node.Disk(t, node.Ext4, 192*node.MiB, 6000)
			o := node.Options{Root: filepath.Join(images, "containerd"), Snapshots: filepath.Join(layers, "snapshots")}
			var arguments []string
			if layout.onNodeFs {
				o.Kubelet, arguments = filepath.Join(layers, "kubelet"), []string{"--nodefs=" + layers}
			}
			n := node.Start(t, node.Built, o)
			r := &diskFixture{t: t, n: n, share: shares["bytes"], disk: layers}
			r.furnish()
			r.threshold = min(r.free(t, images), r.free(t, layers)) - r.unit
			r.e = n.Evictd(append(arguments, "--cri-endpoint="+splitFilesystems(t, n, n.Root, n.Snapshots), fmt.Sprintf(layout.thresholds, r.threshold))...)
			r.e.AwaitPods(3)
			must := func(when string, wantDead, wantImages int) {
				t.Helper()
				node.Await(t, fmt.Sprintf("%s, %d dead containers and %d images to be left", when, wantDead, wantImages), func() bool {
					dead, images := r.reclaimable()
					return len(dead) == wantDead && len(images) == wantImages
				})
				r.awaitPressure(false)
			}
			require.NoError(t, os.WriteFile(filepath.Join(images, "fill"), make([]byte, r.free(t, images)-r.threshold+r.unit/4), 0o644))
			must("after the images' disk has run out", 2, 1)
			r.starve("fill", r.unit/2)
			must("after the layers' disk has run out", 1, 1)
			if evictions := r.e.Status().Evictions; len(evictions) > 0 {
				t.Errorf("evictions %+v although what is unused sufficed", evictions)
			}
			r.starve("much", 3*r.unit)
			if evicted := r.e.AwaitEviction(r.filler); evicted.Signal != layout.signal {
				t.Errorf("evicted for %s, want %s", evicted.Signal, layout.signal)
			}
			must("after a writer has gone", 1, 1)
			if evictions := r.e.Status().Evictions; len(evictions) != 1 || !r.small.Lives() || !r.failed.Lives() {
				t.Errorf("evictions %+v, want the filler's alone", evictions)
			}
		})
	}
}

// Where the snapshotter has a root of its own, imagefs is where images are unpacked
// and layers are; the blobs are no part of it. What containerd 1.6 names then is
// not there, and is unknown until the operator names it.
func TestImagesAreWhereTheSnapshotterHasItsRoot(t *testing.T) {
	t.Parallel()
	node.Each(t, func(t *testing.T, v node.Version) {
		disk := node.Disk(t, node.Ext4, 96*node.MiB, 4000)
		n := node.Start(t, v, node.Options{Snapshots: filepath.Join(disk, "snapshots")})
		info := node.Call(n, n.Images.ImageFsInfo, &runtime.ImageFsInfoRequest{})
		if len(info.ImageFilesystems) != 1 || len(info.ContainerFilesystems) > 1 {
			t.Fatalf("filesystems %v, want one of images", info)
		}
		at := info.ImageFilesystems[0].FsId.Mountpoint
		if !old(n) {
			if at != n.Snapshots {
				t.Errorf("images are at %s, want %s", at, n.Snapshots)
			}
			n.Evictd().AwaitLog(`msg="the layout of the disks" layout=imagefs`)
			return
		}
		if _, err := os.Stat(at); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("images are at %s: %v", at, err)
		}
		e := n.Evictd()
		e.AwaitLog("source=imagefs")
		e.Stop()
		n.Evictd(sandbox.ImageFs(n.Snapshots)).AwaitLog("layout=imagefs")
	})
}
