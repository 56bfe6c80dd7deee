package collect

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/evictd/evictd/cgroup"
	"github.com/evictd/evictd/cgroup/cgrouptest"
	"github.com/evictd/evictd/internal/require"
	"github.com/evictd/evictd/stats"
)

const podGroup = "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod0a1b2c3d_1111_4222_8333_444455556666.slice"

// fixture copies a captured v2 host, so that a test may write to it.
func fixture(t testing.TB) (*cgroup.System, string) {
	t.Helper()
	host := t.TempDir()
	require.NoError(t, os.CopyFS(host, os.DirFS("../../cgroup/testdata/v2")))
	put(t, host+"/proc/sys/kernel/pid_max", "4194304\n")
	put(t, host+"/proc/sys/kernel/threads-max", "63000\n")
	put(t, host+"/proc/loadavg", "0.25 0.08 0.02 4/105 5212\n")
	s, err := cgroup.Discover(host)
	require.NoError(t, err)
	return s, host
}

func put(t testing.TB, file, content string) {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
	require.NoError(t, os.WriteFile(file, []byte(content), 0o644))
}

// newNode returns a node and what it logs. The paths are those of its disks.
func newNode(t testing.TB, cfg NodeConfig, paths Paths) (*Node, *bytes.Buffer) {
	var logged bytes.Buffer
	cfg.Disks = runDisks(t, paths, slog.DiscardHandler)
	n := NewNode(cfg, slog.New(slog.NewTextHandler(&logged, nil)))
	t.Cleanup(n.Close)
	return n, &logged
}

// rule: 1.46
// rule: 1.52
func TestANodeIsReadFromItsGroupAndFromProc(t *testing.T) {
	s, host := fixture(t)
	n, logged := newNode(t, NodeConfig{Host: host, Cgroups: s}, Paths{NodeFs: host})
	var got stats.Node
	began := time.Now()
	n.Read(&got, Ask{Disks: true})
	if got.Memory.Limit != stats.Known(8131596<<10) || got.Memory.WorkingSet() != stats.Known(1610612736+2147483648-536870912) {
		t.Errorf("memory: got %v", got.Memory)
	}
	if got.PodsMemory.Limit != stats.Known(4<<30) || got.PodsMemory.Usage != stats.Known(1241513984) {
		t.Errorf("pods memory: got %v", got.PodsMemory)
	}
	if want := (stats.Tasks{Max: stats.Known(63000), Running: stats.Known(105)}); got.Tasks != want {
		t.Errorf("tasks: got %v", got.Tasks)
	}
	if got.IOStall.Some != 1234567*time.Microsecond || !got.MemoryStall.Known || !got.CPUStall.Known {
		t.Errorf("stalls: got %v", got)
	}
	if !got.NodeFs.Available.IsKnown() || got.ImageFs.Capacity != got.NodeFs.Capacity || got.ContainerFs.Capacity != got.NodeFs.Capacity {
		t.Errorf("filesystems: got %v", got)
	}
	if got.Time.Before(began) || logged.Len() > 0 {
		t.Errorf("time %v, logged %s", got.Time, logged)
	}
}

func TestAGroupWithFewerTasksThanTheMachineIsTheNodesOwn(t *testing.T) {
	s, host := fixture(t)
	n, _ := newNode(t, NodeConfig{Host: host, Cgroups: s, Root: podGroup}, Paths{NodeFs: host})
	var got stats.Node
	n.Read(&got, Ask{Disks: true})
	if want := (stats.Tasks{Max: stats.Known(100), Running: stats.Known(23)}); got.Tasks != want {
		t.Errorf("got %v", got.Tasks)
	}
	put(t, host+"/proc/sys/kernel/pid_max", "64\n")
	n.Read(&got, Ask{Disks: true})
	if want := (stats.Tasks{Max: stats.Known(64), Running: stats.Known(105)}); got.Tasks != want {
		t.Errorf("where the machine has fewer: got %v", got.Tasks)
	}
}

func TestALostSourceIsReportedOnceAndBlindsNothingElse(t *testing.T) {
	s, host := fixture(t)
	n, logged := newNode(t, NodeConfig{Host: host, Cgroups: s}, Paths{NodeFs: host + "/var"})
	var got stats.Node
	put(t, host+"/proc/loadavg", "garbage\n")
	for range 3 {
		n.Read(&got, Ask{Disks: true})
	}
	if got.NodeFs.Capacity.IsKnown() || got.Tasks.Running.IsKnown() || !got.Memory.Usage.IsKnown() || !got.PodsMemory.Usage.IsKnown() {
		t.Errorf("got %v", got)
	}
	for _, source := range []string{"nodefs", "imagefs", "containerfs", "tasks"} {
		if c := strings.Count(logged.String(), "failed\" source="+source); c != 1 {
			t.Errorf("%s reported %d times:\n%s", source, c, logged)
		}
	}
	logged.Reset()
	put(t, host+"/proc/loadavg", "0.25 0.08 0.02 4/105 5212\n")
	for range 3 {
		n.Read(&got, Ask{Disks: true})
	}
	if c := strings.Count(logged.String(), "works again\" source=tasks"); c != 1 || strings.Count(logged.String(), "\n") != 1 || !got.Tasks.Running.IsKnown() {
		t.Errorf("the return is reported %d times:\n%s", c, logged)
	}
}

func TestAKernelWithoutPressureIsNotALoss(t *testing.T) {
	s, host := fixture(t)
	for _, r := range pressures {
		os.Remove(host + "/sys/fs/cgroup/" + r + ".pressure")
	}
	n, logged := newNode(t, NodeConfig{Host: host, Cgroups: s}, Paths{NodeFs: host})
	var got stats.Node
	n.Read(&got, Ask{Disks: true})
	if got.MemoryStall.Known || logged.Len() > 0 || n.Fault("memory pressure") == nil {
		t.Errorf("got %v, fault %v, logged %s", got.MemoryStall, n.Fault("memory pressure"), logged)
	}
	if allocs := testing.AllocsPerRun(100, func() { n.Read(&got, Ask{}) }); allocs != 0 && !raceDetector {
		t.Errorf("what the kernel does not have is asked for again: %v allocations", allocs)
	}

	put(t, host+"/proc/pressure/memory", "some avg10=0.00 avg60=0.00 avg300=0.00 total=7\n")
	n, logged = newNode(t, NodeConfig{Host: host, Cgroups: s}, Paths{NodeFs: host})
	n.Read(&got, Ask{Disks: true})
	if got.MemoryStall.Some != 7*time.Microsecond || logged.Len() > 0 {
		t.Errorf("the machine's own pressure: got %v, logged %s", got.MemoryStall, logged)
	}
}

func TestPodsAreFoundWhenTheirGroupAppears(t *testing.T) {
	s, group := realGroup(t)
	n, _ := newNode(t, NodeConfig{Cgroups: s, Root: group}, Paths{NodeFs: "/"})
	var got stats.Node
	for range 2 { // it comes, goes, and comes again
		n.Read(&got, Ask{Disks: true})
		if got.PodsMemory.Usage.IsKnown() {
			t.Errorf("before: got %v", got.PodsMemory)
		}
		create(t, s, group+"/kubepods")
		n.Read(&got, Ask{Disks: true})
		if !got.PodsMemory.Usage.IsKnown() || got.Memory.Limit != stats.Known(256<<20) {
			t.Errorf("after: got %v and %v", got.PodsMemory, got.Memory)
		}
		require.NoError(t, s.Delete(group+"/kubepods"))
	}
}

// mounted mounts a tmpfs for one test.
func mounted(t *testing.T, options string) string {
	t.Helper()
	dir := t.TempDir()
	mountAt(t, dir, options)
	return dir
}

func mountAt(t *testing.T, dir, options string) {
	t.Helper()
	if err := mount(t, dir, options); err != nil {
		t.Skip("skipped: needs root with CAP_SYS_ADMIN, to mount:", err)
	}
}

func mount(t *testing.T, dir, options string) error {
	err := unix.Mount("tmpfs", dir, "tmpfs", 0, options)
	if err == nil {
		t.Cleanup(func() {
			if err := unix.Unmount(dir, 0); err != nil {
				t.Error(err)
			}
		})
	}
	return err
}

// inMemory is a directory for many files: of a tmpfs where one can be mounted, which
// makes them ten times as fast as a disk.
func inMemory(t *testing.T) string {
	dir := t.TempDir()
	_ = mount(t, dir, "size=256m,nr_inodes=0")
	return dir
}

// realGroup makes a bounded group of this host.
func realGroup(t testing.TB) (*cgroup.System, string) {
	t.Helper()
	return cgrouptest.New(t, cgroup.Limits{Memory: stats.Known(256 << 20), PIDs: stats.Known(64)})
}

func create(t testing.TB, s *cgroup.System, group string) {
	t.Helper()
	require.NoError(t, s.Create(group, cgroup.Limits{}))
}

func TestReadingANodeAllocatesNothing(t *testing.T) {
	if raceDetector {
		t.Skip("skipped: needs a build without the race detector, which allocates")
	}
	s, group := realGroup(t)
	create(t, s, group+"/kubepods")
	for _, root := range []string{"/", group} {
		n, _ := newNode(t, NodeConfig{Cgroups: s, Root: root, Pods: strings.TrimPrefix(group+"/kubepods", root)}, Paths{NodeFs: "/"})
		var got stats.Node
		if allocs := testing.AllocsPerRun(100, func() { n.Read(&got, Ask{Disks: true}) }); allocs != 0 {
			t.Errorf("root %s: %v allocations", root, allocs)
		}
		if !got.Memory.Usage.IsKnown() || !got.PodsMemory.Usage.IsKnown() || !got.Tasks.Running.IsKnown() || !got.NodeFs.Capacity.IsKnown() {
			t.Errorf("root %s: got %v", root, got)
		}
	}
}

func BenchmarkNode(b *testing.B) {
	s, group := realGroup(b)
	create(b, s, group+"/kubepods")
	n, _ := newNode(b, NodeConfig{Cgroups: s, Root: group}, Paths{NodeFs: "/"})
	var got stats.Node
	b.ReportAllocs()
	for b.Loop() {
		n.Read(&got, Ask{Disks: true})
	}
}

func BenchmarkNodeThatIsTheMachine(b *testing.B) {
	s, group := realGroup(b)
	n, _ := newNode(b, NodeConfig{Cgroups: s, Pods: group}, Paths{NodeFs: "/"})
	var got stats.Node
	b.ReportAllocs()
	for b.Loop() {
		n.Read(&got, Ask{Disks: true})
	}
}

func FuzzLoadavg(f *testing.F) {
	f.Add([]byte("0.25 0.08 0.02 4/105 5212\n"))
	f.Add([]byte("0 0 0 1/ 1"))
	f.Fuzz(func(t *testing.T, b []byte) {
		blank := func(r rune) bool { return strings.ContainsRune(" \t\n", r) }
		if n, known := parseLoadavg(b).Get(); n < 0 || known && len(bytes.FieldsFunc(b, blank)) < 5 {
			t.Fatalf("%d out of %q", n, b)
		}
	})
}

// rule: 1.47
func TestLoadavgShowsTheTasksOnlyWithAllItsFields(t *testing.T) {
	for text, want := range map[string]stats.Amount{
		"0.25 0.08 0.02 4/105 5212\n": stats.Known(105), "2.0 1.0 0.5 2/3518 9": stats.Known(3518),
		"0.25 0.08 0.02 4/105\n": {}, "0.25 0.08 0.02 4 5212\n": {}, "0.25 0.08 0.02 4/x 5212\n": {}, "": {},
	} {
		if got := parseLoadavg([]byte(text)); got != want {
			t.Errorf("%q: got %v", text, got)
		}
	}
}
