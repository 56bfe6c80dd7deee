package collect

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/evictd/evictd/internal/require"
	"github.com/evictd/evictd/internal/wait"
	"github.com/evictd/evictd/stats"
)

// mountSilent mounts a FUSE filesystem whose server never answers. end ends and unmounts it: calls
// that wait for it fail with ENOTCONN.
func mountSilent(t *testing.T, dir string) (end func()) {
	t.Helper()
	require.NoError(t, os.MkdirAll(dir, 0o755))
	fd, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Skip("skipped: needs root and /dev/fuse:", err)
	}
	if err := unix.Mount("silent", dir, "fuse", unix.MS_NOSUID|unix.MS_NODEV, fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0", fd)); err != nil {
		unix.Close(fd)
		t.Skip("skipped: needs the right to mount a FUSE filesystem:", err)
	}
	end = sync.OnceFunc(func() {
		unix.Close(fd)
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Errorf("umount %s: %v", dir, err)
		}
	})
	t.Cleanup(end)
	return end
}

// scanning runs a scanner that waits so long for an answer of the kernel.
func scanning(t *testing.T, patience time.Duration, log *wait.Log) *DiskScanner {
	t.Helper()
	s := NewDiskScanner(slog.New(slog.NewTextHandler(log, nil)))
	s.patience = patience
	require.Running(t, s.Run)
	return s
}

func diskOf(dir string) *PodDisk {
	return NewPodDisk(PodFiles{Root: dir, Volumes: []PodPath{{dir, "volume"}}})
}

func (d *PodDisk) inodes() stats.Amount {
	var s stats.Pod
	d.read(&s)
	return s.Volumes[0].Inodes
}

// TestAPodWhoseFilesystemDoesNotAnswerCostsOnlyItself has more of them than there may be blocked
// scans.
//
// rule: M.81
func TestAPodWhoseFilesystemDoesNotAnswerCostsOnlyItself(t *testing.T) {
	var silent []*PodDisk
	var ends []func()
	for range maxBlocked + 1 {
		dir := t.TempDir()
		ends, silent = append(ends, mountSilent(t, dir+"/volume")), append(silent, diskOf(dir))
	}
	dir := t.TempDir()
	put(t, dir+"/volume/file", "data")
	healthy := diskOf(dir)
	var log wait.Log
	s := scanning(t, 100*time.Millisecond, &log)
	s.SetPods(slices.Insert(slices.Clone(silent), 1, healthy))
	<-s.Done()
	s.Request()
	wait.Until(t, "a scan of all pods", func() bool { return !s.LastScan().IsZero() })
	first := s.LastScan()
	wait.Until(t, "the healthy pod", func() bool { return healthy.inodes() == stats.Known(2) })
	for i, pod := range silent {
		if got := pod.inodes(); got.IsKnown() {
			t.Errorf("pod %d on a filesystem that does not answer has %v inodes", i, got)
		}
	}
	if n := strings.Count(log.String(), "does not answer; what the pod uses on disks"); n != maxBlocked {
		t.Errorf("%d blocked scans were logged, want %d", n, maxBlocked)
	}
	for i, end := range ends {
		end()
		put(t, silent[i].files.Volumes[0].String()+"/file", "data")
	}
	wait.Until(t, "scans without the mounts", func() bool {
		s.Request()
		<-s.Done()
		return silent[0].inodes() == stats.Known(2) && silent[maxBlocked].inodes() == stats.Known(2)
	})
	if !s.LastScan().After(first) {
		t.Error("no scan of all pods after they were unmounted")
	}
}

// TestAMountThatDoesNotAnswerBelowAVolumeIsPassedBy: no server is asked for what is mounted in a
// volume.
//
// rule: M.81
func TestAMountThatDoesNotAnswerBelowAVolumeIsPassedBy(t *testing.T) {
	dir := t.TempDir()
	put(t, dir+"/volume/file", "data")
	mountSilent(t, dir+"/volume/mounted")
	pod := diskOf(dir)
	var log wait.Log
	s := scanning(t, wait.Limit, &log)
	s.SetPods([]*PodDisk{pod})
	<-s.Done()
	if got := pod.inodes(); got != stats.Known(2) {
		t.Errorf("%v inodes, want those of the volume and of its file", got)
	}
}

// TestAPodHoldsAtLeastWhatAScanHasCounted ends a scan after its first step, as it is when a decision waits no longer.
func TestAPodHoldsAtLeastWhatAScanHasCounted(t *testing.T) {
	dir := inMemory(t)
	const files = 2 * walkPerStep
	require.NoError(t, os.Mkdir(dir+"/volume", 0o755))
	for i := range files {
		put(t, fmt.Sprint(dir, "/volume/", i), "")
	}
	d := NewPodDisk(PodFiles{Root: dir, Volumes: []PodPath{{dir, "volume"}}, Containers: []string{"c"}})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if d.scan(&podScan{diskScan: diskScan{scanner: NewDiskScanner(slog.New(slog.DiscardHandler)), ctx: ctx, full: true, room: maxRemembered}}) {
		t.Error("the scan was completed")
	}
	got := stats.Pod{Containers: make([]stats.Container, 1)}
	d.read(&got)
	if n := got.Volumes[0].Inodes.Or(0); n < walkPerStep/2 || n > files || !got.Partial {
		t.Errorf("%d inodes, expected those of a step", n)
	}
}

// TestPodsThatAreScannedSoonDoNotWaitForOthers has the pod that takes long before the others in the list.
func TestPodsThatAreScannedSoonDoNotWaitForOthers(t *testing.T) {
	dir := inMemory(t)
	s := NewDiskScanner(slog.New(slog.DiscardHandler))
	slow, quick := diskOf(dir+"/slow"), diskOf(dir+"/quick")
	slow.took = time.Minute
	s.SetPods([]*PodDisk{slow, quick})
	s.scan(t.Context(), true, 0, everyPod)
	first, last := quick.found.Load().files.Time, slow.found.Load().files.Time
	if !first.Before(last) {
		t.Errorf("the quick pod was scanned at %v, the slow one at %v", first, last)
	}
}
