package collect

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/evictd/evictd/internal/require"
	"github.com/evictd/evictd/internal/wait"
	"github.com/evictd/evictd/stats"
)

// runDisks measures once, as the daemon does at its start, and runs.
func runDisks(t testing.TB, given Paths, log slog.Handler) *Disks {
	t.Helper()
	d := NewDisks(given, slog.New(log))
	_ = d.Measure(time.Minute)
	require.Running(t, d.Run)
	return d
}

// figures reads one of the filesystems until the values are from after the call, or
// there is an error.
func (d *Disks) figures(t *testing.T, i int) (s stats.Filesystem, err error) {
	t.Helper()
	called := time.Now()
	awaitThat(t, "new figures", func() bool {
		d.request(time.Now())
		err = d.read(i, time.Now(), &s)
		return err != nil && !errors.Is(err, errSilent) || s.Time.After(called)
	})
	return s, err
}

var awaitThat = wait.Until

// rule: 1.17
// rule: 1.18
// rule: 1.52
func TestAFilesystemIsWhatStatfsShows(t *testing.T) {
	dir := mounted(t, "size=16m,nr_inodes=100")
	d := runDisks(t, Paths{NodeFs: "/", ImageFs: dir}, slog.DiscardHandler)
	before, _ := d.figures(t, 1)
	put(t, dir+"/file", strings.Repeat("x", 1<<20))
	got, _ := d.figures(t, 1)
	want := stats.Filesystem{
		Time: got.Time, Capacity: stats.Known(16 << 20), Available: stats.Known(15 << 20), Inodes: stats.Known(100),
		InodesFree: before.InodesFree.Minus(stats.Known(1)),
	}
	if got != want {
		t.Errorf("got %v, want %v", got, want)
	}
	if container, _ := d.figures(t, 2); container.Capacity != want.Capacity {
		t.Errorf("containerfs is not that of the images: %v", container)
	}
	if node, _ := d.figures(t, 0); node.Capacity == want.Capacity {
		t.Errorf("nodefs: got %v", node)
	}
}

func TestOneDiskHasOneFigureAtWhateverInstantItsPathsWereMeasured(t *testing.T) {
	dir, other := t.TempDir(), mounted(t, "size=1m")
	for _, below := range []string{"/images", "/layers"} {
		require.NoError(t, os.Mkdir(dir+below, 0o755))
	}
	read := func(d *Disks) (s stats.Node) {
		s.Time = time.Now()
		for _, source := range d.sources() {
			require.NoError(t, source.read(&s))
		}
		return s
	}
	disks := func(paths Paths) *Disks {
		d := NewDisks(paths, slog.New(slog.DiscardHandler))
		require.NoError(t, d.Measure(time.Hour))
		for i, f := range d.filesystems { // each at an instant of its own
			f.figure.Time, f.figure.InodesFree = time.Unix(int64(i), 0), stats.Known(int64(i))
		}
		return d
	}
	d := disks(Paths{dir, dir + "/images", dir + "/layers"})
	if s := read(d); s.NodeFs.InodesFree != stats.Known(0) || s.ImageFs != s.NodeFs || s.ContainerFs != s.NodeFs {
		t.Errorf("one disk: %v, %v, %v", s.NodeFs, s.ImageFs, s.ContainerFs)
	}
	d.filesystems[1].figure.Capacity = stats.Known(1) // of a project quota
	if s := read(d); s.ImageFs.InodesFree != stats.Known(1) || s.ContainerFs != s.NodeFs {
		t.Errorf("a part of it: %v, %v, %v", s.NodeFs, s.ImageFs, s.ContainerFs)
	}
	if s := read(disks(Paths{dir, other, dir + "/layers"})); s.ImageFs.InodesFree != stats.Known(1) || s.ContainerFs != s.NodeFs {
		t.Errorf("images apart: %v, %v, %v", s.NodeFs, s.ImageFs, s.ContainerFs)
	}
}

// rule: 1.53
// rule: 1.54
func TestTheLayoutFollowsTheDevices(t *testing.T) {
	node, image, third := mounted(t, "size=1m"), mounted(t, "size=1m"), mounted(t, "size=1m")
	for _, c := range []struct {
		image, container string
		want             Layout
	}{
		{"", "", SharedFs}, {node, node, SharedFs}, {image, "", ImageFs}, {image, image, ImageFs}, {image, node, SplitFs},
		{node, image, SeparateFs}, {image, third, SeparateFs},
	} {
		var log bytes.Buffer
		d := runDisks(t, Paths{node, c.image, c.container}, slog.NewTextHandler(&log, nil))
		if got := d.Layout(); got != c.want {
			t.Errorf("%v: got %v", c, got)
		}
		if logged := strings.Contains(log.String(), "on a third filesystem"); logged != (c.want == SeparateFs) {
			t.Errorf("%v: log:\n%s", c, &log)
		}
	}
	d := NewDisks(Paths{node, node + "/none", image + "/none"}, slog.New(slog.DiscardHandler))
	err := d.Measure(time.Minute)
	if err == nil || !strings.Contains(err.Error(), "stat "+node+"/none") || !strings.Contains(err.Error(), image+"/none") || d.Layout() != SharedFs {
		t.Errorf("paths that are not there: %v, %v", err, d.Layout())
	}
}

// rule: 1.51
func TestTheRuntimesPathsCountWhereTheOperatorGaveNone(t *testing.T) {
	node, image := mounted(t, "size=1m"), mounted(t, "size=2m")
	d := runDisks(t, Paths{NodeFs: node}, slog.DiscardHandler)
	d.SetRuntimePaths(Paths{ImageFs: image, ContainerFs: image})
	<-d.Changed()
	if got, _ := d.figures(t, 1); d.Layout() != ImageFs || got.Capacity != stats.Known(2<<20) {
		t.Errorf("got %v, %v", d.Layout(), got)
	}
	d.SetRuntimePaths(Paths{ImageFs: image, ContainerFs: node})
	<-d.Changed()
	if got, _ := d.figures(t, 2); d.Layout() != SplitFs || got.Capacity != stats.Known(1<<20) {
		t.Errorf("it moves: got %v, %v", d.Layout(), got)
	}
	given := runDisks(t, Paths{NodeFs: node, ImageFs: node}, slog.DiscardHandler)
	given.SetRuntimePaths(Paths{ImageFs: image})
	if got, _ := given.figures(t, 1); given.Layout() != SharedFs || got.Capacity != stats.Known(1<<20) {
		t.Errorf("given by the operator: got %v, %v", given.Layout(), got)
	}
}

func TestFiguresOfNodefsAreNotTakenForThoseOfImagesBeforeTheRuntimeHasSpoken(t *testing.T) {
	dir := t.TempDir()
	known := func(d *Disks) bool {
		var s stats.Filesystem
		return d.read(1, time.Now(), &s) == nil && s.Available.IsKnown()
	}
	asked := runDisks(t, Paths{NodeFs: dir}, slog.DiscardHandler)
	awaitThat(t, "the figures of images to be known", func() bool { return known(asked) })
	asked.AwaitRuntime(time.Now().Add(time.Hour))
	if known(asked) {
		t.Error("imagefs is known before the runtime has spoken")
	}
	if s, err := asked.figures(t, 0); err != nil || !s.Available.IsKnown() {
		t.Errorf("nodefs: %+v, %v", s, err)
	}
	asked.SetRuntimePaths(Paths{ImageFs: dir})
	if !known(asked) {
		t.Error("imagefs is unknown after the runtime has spoken")
	}
	asked.AwaitRuntime(time.Now().Add(-time.Second))
	if !known(asked) {
		t.Error("imagefs is unknown though the runtime has taken too long")
	}
	given := runDisks(t, Paths{NodeFs: dir, ImageFs: dir}, slog.DiscardHandler)
	given.AwaitRuntime(time.Now().Add(time.Hour))
	awaitThat(t, "the operator's path to count", func() bool { return known(given) })
}

// rule: M.22
func TestAFilesystemThatIsUnmountedAndMountedAgainIsFoundAgain(t *testing.T) {
	node, image := mounted(t, "size=1m"), t.TempDir()
	d := runDisks(t, Paths{NodeFs: node, ImageFs: image}, slog.DiscardHandler)
	require.NoError(t, unix.Mount("tmpfs", image, "tmpfs", 0, "size=2m"))
	still := func(i int, capacity int64) func() bool {
		return func() bool { s, err := d.figures(t, i); return err == nil && s.Capacity == stats.Known(capacity) }
	}
	awaitThat(t, "the mount", still(1, 2<<20))
	require.NoError(t, unix.Unmount(image, 0))
	require.NoError(t, os.Remove(image))
	awaitThat(t, "the loss", func() bool { _, err := d.figures(t, 1); return errors.Is(err, unix.ENOENT) })
	if !still(0, 1<<20)() || d.Layout() != ImageFs {
		t.Errorf("nodefs is lost with it, or the layout %v", d.Layout())
	}
	require.NoError(t, os.Mkdir(image, 0o755))
	mountAt(t, image, "size=3m")
	awaitThat(t, "the return", still(1, 3<<20))
}

// hungMount mounts a filesystem whose server never answers, until release.
func hungMount(t *testing.T) (dir string, release func()) {
	t.Helper()
	dir = t.TempDir()
	server, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0)
	if err != nil {
		t.Skip("skipped: needs root and /dev/fuse (kernel module fuse), for a filesystem that hangs:", err)
	}
	options := fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0", server.Fd())
	if err := unix.Mount("evictd-test", dir, "fuse", 0, options); err != nil {
		server.Close()
		t.Skip("skipped: needs root with CAP_SYS_ADMIN, to mount:", err)
	}
	t.Cleanup(func() {
		server.Close()
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir, func() { server.Close() }
}

func TestAFilesystemThatHangsBlocksNothingAndBlindsNothingElse(t *testing.T) {
	dir, release := hungMount(t)
	d := NewDisks(Paths{NodeFs: t.TempDir(), ImageFs: dir}, slog.New(slog.DiscardHandler))
	if err := d.Measure(10 * time.Millisecond); err != nil {
		t.Errorf("at the start: %v", err)
	}
	require.Running(t, d.Run)
	var s stats.Filesystem
	now := time.Now()
	for range 3 {
		d.request(now)
		if err := d.read(1, now, &s); err != nil || s.Capacity.IsKnown() {
			t.Errorf("got %v, %v", s, err)
		}
	}
	if s, err := d.figures(t, 0); err != nil || !s.Capacity.IsKnown() {
		t.Errorf("nodefs: got %v, %v", s, err)
	}
	later := time.Now().Add(answerTimeout + time.Minute)
	if err := d.read(1, later, &s); !errors.Is(err, errSilent) {
		t.Errorf("after a while: got %v", err)
	}
	release()
	awaitThat(t, "an answer", func() bool { err := d.read(1, later, &s); return err != nil && !errors.Is(err, errSilent) })
}

func TestAFilesystemThatHangsIsLeftBehindAtTheEnd(t *testing.T) {
	t.Parallel()
	dir, release := hungMount(t)
	var log bytes.Buffer
	d := NewDisks(Paths{NodeFs: dir}, slog.New(slog.NewTextHandler(&log, nil)))
	stop := require.Running(t, d.Run)
	awaitThat(t, "the kernel to be asked", func() bool {
		idle := d.filesystems[0].busy.TryLock()
		if idle {
			d.filesystems[0].busy.Unlock()
		}
		return !idle
	})
	stop()
	if !strings.Contains(log.String(), "is abandoned") {
		t.Errorf("log:\n%s", &log)
	}
	release()
	d.filesystems[0].busy.Lock()
}

// TestSubvolumesOfOneBtrfsAreOneDisk: each subvolume has a device number and an f_fsid of its own.
//
// rule: M.80
func TestSubvolumesOfOneBtrfsAreOneDisk(t *testing.T) {
	mkfs := []string{"mkfs.btrfs", "-q"}
	disk, other := loopMount(t, "btrfs-progs", 128, "rw", mkfs...), loopMount(t, "btrfs-progs", 128, "rw", mkfs...)
	images := disk + "/images"
	if out, err := exec.Command("btrfs", "subvolume", "create", images).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	var top, below unix.Statx_t
	if statAt(unix.AT_FDCWD, nameZ(disk), 0, &top) != 0 || statAt(unix.AT_FDCWD, nameZ(images), 0, &below) != 0 || device(&top) == device(&below) {
		t.Fatal("the subvolume has the device number of its parent")
	}
	for path, want := range map[string]Layout{images: SharedFs, other: ImageFs} {
		d := NewDisks(Paths{NodeFs: disk, ImageFs: path}, slog.New(slog.DiscardHandler))
		if err := d.Measure(wait.Limit); err != nil || d.Layout() != want {
			t.Errorf("%s: the layout is %v, %v; want %v", path, d.Layout(), err, want)
		}
		if one := d.oneDisk(0, 1); one != (want == SharedFs) {
			t.Errorf("%s: one disk: %v", path, one)
		}
	}
}
