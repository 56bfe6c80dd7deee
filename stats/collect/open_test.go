package collect

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/evictd/evictd/internal/require"
	"github.com/evictd/evictd/stats"
)

func TestWritableLayersAreFoundByTheDeviceOfTheMount(t *testing.T) {
	const mounts = `36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw,errors=continue
41 35 0:52 / /run/containerd/io.containerd.runtime.v2.task/k8s.io/ab/rootfs rw,relatime shared:7 - overlay overlay rw,lowerdir=/a/1/fs:/a/2/fs,upperdir=/var/lib/containerd/snapshots/12/fs,workdir=/w,index=off
42 35 0:53 / /rootfs ro - overlay overlay ro,lowerdir=/a:/b
43 35 0:54 / /spaced\040root rw - overlay overlay rw,lowerdir=/a,upperdir=/with\040blank\054comma/fs,workdir=/w
44 35 0:55 / /relative rw - overlay overlay rw,lowerdir=/a,upperdir=../fs,workdir=/w
45 35 0:x / /broken rw - overlay overlay rw,upperdir=/u
46 35
`
	got, err := overlays(strings.NewReader(mounts))
	want := map[uint64]PodPath{unix.Mkdev(0, 52): {"/var/lib/containerd/snapshots/12", "fs"}, unix.Mkdev(0, 54): {"/with blank,comma", "fs"}}
	if err != nil || !maps.Equal(got, want) {
		t.Errorf("got %v, %v", got, err)
	}
}

func FuzzOverlays(f *testing.F) {
	f.Add("41 35 0:52 / /rootfs rw,relatime shared:7 - overlay overlay rw,lowerdir=/a,upperdir=/up\\040per/fs,workdir=/w")
	f.Add("1 2 3:4 / / rw - overlay x upperdir=/\\04")
	f.Fuzz(func(t *testing.T, line string) {
		layers, err := overlays(strings.NewReader(line))
		for _, layer := range layers {
			if !strings.HasPrefix(layer.Root, "/") {
				t.Errorf("%q is no absolute path", layer.Root)
			}
		}
		require.NoError(t, err)
	})
}

// holding starts a process that holds files open which it has deleted, one of them
// twice, how it says, an anonymous one, and one that is still there.
func holding(t *testing.T, dir, how string) (pid int) {
	t.Helper()
	script := fmt.Sprintf(`cd %q && head -c 3145728 /dev/zero >gone && exec 5%sgone 6<gone 7>there && rm gone && echo ready && read x`, dir, how)
	c := exec.Command("sh", "-c", script)
	in, err := c.StdinPipe()
	require.NoError(t, err)
	out, err := c.StdoutPipe()
	require.NoError(t, err)
	if fd, err := unix.MemfdCreate("anonymous", 0); err == nil {
		memfd := os.NewFile(uintptr(fd), "anonymous")
		defer memfd.Close()
		if _, err := memfd.Write(make([]byte, 1<<20)); err != nil {
			t.Fatal(err)
		}
		c.ExtraFiles = []*os.File{memfd}
	}
	require.NoError(t, c.Start())
	t.Cleanup(func() {
		in.Close()
		c.Wait()
	})
	if _, err := out.Read(make([]byte, 8)); err != nil {
		t.Fatal(err)
	}
	return c.Process.Pid
}

// rule: M.70
func TestWhatIsDeletedAndStillOpenCountsForItsPod(t *testing.T) {
	root := mounted(t, "size=16m")
	elsewhere := mounted(t, "size=16m")
	reads := holding(t, root, "<")
	pids := []int{holding(t, root, "<>"), holding(t, elsewhere, "<>"), reads, 1 << 30}
	d := NewPodDisk(PodFiles{Root: root, Containers: []string{"c"}})
	d.SetProcesses(func(_ string, into []int) ([]int, error) { return append(into, pids...), nil })
	s, round := surveying(t, &bytes.Buffer{}, d)
	got := stats.Pod{Containers: make([]stats.Container, 1)}
	if d.read(&got); got.Unlinked.Used != stats.Known(3<<20) || got.Unlinked.Inodes != stats.Known(1) || got.Unlinked.Time.Before(s.LastScan()) {
		t.Errorf("got %v", got.Unlinked)
	}
	pids = nil
	round()
	if d.read(&got); got.Unlinked.Used.IsKnown() {
		t.Errorf("closed: got %v", got.Unlinked)
	}
}

func TestAWritableLayerIsMeasuredWhereTheHostHasMountedIt(t *testing.T) {
	base := mounted(t, "size=16m")
	for _, dir := range []string{"lower", "upper", "work", "root"} {
		require.NoError(t, os.MkdirAll(base+"/"+dir, 0o755))
	}
	put(t, base+"/lower/image", string(make([]byte, 1<<20)))
	if err := unix.Mount("overlay", base+"/root", "overlay", 0, fmt.Sprintf("lowerdir=%[1]s/lower,upperdir=%[1]s/upper,workdir=%[1]s/work", base)); err != nil {
		t.Skip("skipped: needs root and the kernel module overlay:", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(base+"/root", unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	put(t, base+"/root/written", string(make([]byte, 2<<20)))
	tid := inRoot(t, base+"/root", func() error {
		gone, err := os.Create("/gone")
		if err != nil {
			return err
		}
		t.Cleanup(func() { gone.Close() })
		if _, err := gone.Write(make([]byte, 3<<20)); err != nil {
			return err
		}
		return os.Remove("/gone")
	})
	d := NewPodDisk(PodFiles{Root: base, Containers: []string{"none", "c"}})
	d.SetProcesses(func(container string, into []int) ([]int, error) {
		if container == "none" {
			return into, nil
		}
		return append(into, tid), nil
	})
	_, round := surveying(t, &bytes.Buffer{}, d)
	got := stats.Pod{Containers: make([]stats.Container, 2)}
	d.read(&got)
	// the layer's directory, and the two files
	if c := got.Containers[1]; c.Rootfs != stats.Known(5<<20) || c.RootfsInodes != stats.Known(3) || got.Containers[0].Rootfs.IsKnown() {
		t.Errorf("got %v", got.Containers)
	}
	for _, at := range []struct {
		age  time.Duration
		want int64
	}{{-time.Hour, 1 + 3<<20}, {time.Hour, 5 << 20}} {
		d.SetRuntimeFigures(RuntimeFigures{Layers: []stats.Volume{{}, {Time: time.Now().Add(-at.age), Used: stats.Known(1), Inodes: stats.Known(1)}}})
		round()
		if d.read(&got); got.Containers[1].Rootfs != stats.Known(at.want) {
			t.Errorf("reported %v ago by the runtime: got %v, want %d", at.age, got.Containers[1].Rootfs, at.want)
		}
	}
}

// inRoot does something in a thread that has its root elsewhere, which lives as
// long as the test.
func inRoot(t *testing.T, root string, do func() error) (tid int) {
	t.Helper()
	done, ended := make(chan error), make(chan struct{})
	var wait sync.WaitGroup
	var enter func()
	enter = func() {
		runtime.LockOSThread()                       // and it ends with the goroutine
		if tid = unix.Gettid(); tid == os.Getpid() { // its root would be that of /proc/self
			wait.Go(enter)
			<-ended
			return
		}
		err := errors.Join(unix.Unshare(unix.CLONE_FS), unix.Chroot(root), unix.Chdir("/"))
		if err == nil {
			err = do()
		}
		done <- err
		<-ended
	}
	wait.Go(enter)
	t.Cleanup(func() { close(ended); wait.Wait() })
	require.NoError(t, <-done)
	return tid
}

// TestMountTablesOfAPodAreReadOnceAndInPart: a process may have as many mounts as it likes in namespaces of its own.
func TestMountTablesOfAPodAreReadOnceAndInPart(t *testing.T) {
	own := "/proc/" + strconv.Itoa(os.Getpid())
	files := newOpenFiles(nil, []PodPath{{"/", "a"}})
	files.volumeMounts(own)
	left := files.tables
	if files.volumeMounts(own); left >= maxMountTables || files.tables != left {
		t.Errorf("%d bytes left of %d, then %d", left, maxMountTables, files.tables)
	}
	files = newOpenFiles(nil, nil)
	files.tables = 10
	if files.volumeMounts(own); files.tables != 0 {
		t.Errorf("%d bytes left of 10", files.tables)
	}
}
