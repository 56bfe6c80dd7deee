package cgroup

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/evictd/evictd/internal/require"
	"github.com/evictd/evictd/stats"
)

const (
	v2Pod = "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod0a1b2c3d_1111_4222_8333_444455556666.slice"
	v1Pod = "/kubepods/besteffort/podabcd"
)

// rule: 1.16
// rule: 1.20
// rule: 1.22
// rule: 1.23
// rule: 1.24
func TestMemoryIsReadAsTheKubeletDoes(t *testing.T) {
	for _, c := range []struct {
		name, fixture, group string
		want                 stats.Memory
	}{
		{"the top of v2 uses anon + file and has MemTotal", "v2", "/", stats.Memory{
			Limit: stats.Known(8131596 << 10), Usage: stats.Known(1610612736 + 2147483648),
			InactiveFile: stats.Known(536870912), ActiveFile: stats.Known(1073741824),
			SlabReclaimable: stats.Known(201384 << 10), Refaulted: bytesOf(stats.Known(420)), ReadBack: bytesOf(stats.Known(420 + 1234)), Stolen: bytesOf(stats.Known(30000 + 400)), MemFree: stats.Known(3120440 << 10), MemAvailable: stats.Known(6244108 << 10), Hugetlb: stats.Known(256 << 20),
		}},
		{"a v2 group has memory.current and memory.max", "v2", v2Pod, stats.Memory{
			Limit: stats.Known(536870912), Usage: stats.Known(290455552),
			InactiveFile: stats.Known(52428800), ActiveFile: stats.Known(20971520),
			SlabReclaimable: stats.Known(1048576), Refaulted: bytesOf(stats.Known(7)), ReadBack: bytesOf(stats.Known(7)),
		}},
		{"max is no limit", "v2", "/system.slice", stats.Memory{
			Usage: stats.Known(1048576), InactiveFile: stats.Known(131072), ActiveFile: stats.Known(65536),
			SlabReclaimable: stats.Known(4096), Refaulted: bytesOf(stats.Known(0)), ReadBack: bytesOf(stats.Known(0)),
		}},
		{"the top of v1 has its own usage and MemTotal", "v1", "/", stats.Memory{
			Limit: stats.Known(24684100 << 10), Usage: fileAmount(t, "testdata/v1/sys/fs/cgroup/memory/memory.usage_in_bytes"),
			InactiveFile: statAmount(t, "total_inactive_file"), ActiveFile: statAmount(t, "total_active_file"),
			Refaulted: bytesOf(statAmount(t, "total_workingset_refault_file")), ReadBack: bytesOf(statAmount(t, "total_workingset_refault_file")), MemFree: meminfoAmount(t, "MemFree"),
			SlabReclaimable: meminfoAmount(t, "SReclaimable"), MemAvailable: meminfoAmount(t, "MemAvailable"), Hugetlb: stats.Known(0),
		}},
		{"a v1 group counts everything below it", "v1", v1Pod, stats.Memory{
			Limit: stats.Known(64 << 20), Usage: stats.Known(9019392),
			InactiveFile: stats.Known(8052736), ActiveFile: stats.Known(0), Refaulted: bytesOf(stats.Known(11)), ReadBack: bytesOf(stats.Known(11)),
		}},
		{"2^63 less a page is no limit", "v1", v1Pod + "/c1", stats.Memory{
			Usage: stats.Known(8757248), InactiveFile: stats.Known(8052736), ActiveFile: stats.Known(0), Refaulted: bytesOf(stats.Known(11)), ReadBack: bytesOf(stats.Known(11)),
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := captured(t, c.fixture)
			g := open(t, s, c.group)
			var m stats.Memory
			require.NoError(t, g.Memory(&m))
			if m != c.want {
				t.Errorf("got  %v\nwant %v", m, c.want)
			}
			if w, err := g.WorkingSet(); err != nil || w != c.want.WorkingSet() {
				t.Errorf("working set: got %v, %v", w, err)
			}
			if u, err := g.Usage(); err != nil || u != c.want.Usage {
				t.Errorf("usage alone: got %v, %v", u, err)
			}
		})
	}
}

func fileAmount(t *testing.T, file string) stats.Amount { return amount([]byte(get(t, file))) }

func statAmount(t *testing.T, key string) stats.Amount {
	return flat([]byte(get(t, "testdata/v1/sys/fs/cgroup/memory/memory.stat")), key)
}

func meminfoAmount(t *testing.T, key string) stats.Amount {
	m := parseMeminfo([]byte(get(t, "testdata/v1/proc/meminfo")))
	return map[string]stats.Amount{"SReclaimable": m.slabReclaimable, "MemAvailable": m.available, "MemFree": m.free}[key]
}

// rule: 1.39
func TestAPodsProcessesAreThoseOfItsContainers(t *testing.T) {
	s := captured(t, "v2")
	g := open(t, s, v2Pod)
	processes, err1 := g.Processes()
	threads, err2 := g.Threads()
	limit, err3 := g.MaxPIDs()
	kills, err4 := s.OOMKills(v2Pod)
	require.NoError(t, errors.Join(err1, err2, err3, err4))
	if got, want := []stats.Amount{processes, threads, limit, kills}, amounts(4, 23, 100, 1); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	list, err := g.AppendProcesses([]int{1})
	slices.Sort(list) // groups come in the order of their directory
	if err != nil || !slices.Equal(list, []int{1, 4711, 4712, 4800}) {
		t.Errorf("list: got %v, %v", list, err)
	}
}

func TestThreadsAreCountedWhereThePidsControllerIsMissing(t *testing.T) {
	s, host := fixture(t, "v2")
	require.NoError(t, os.Remove(host+"/sys/fs/cgroup"+v2Pod+"/pids.current"))
	if n, err := open(t, s, v2Pod).Threads(); err != nil || n != stats.Known(5) {
		t.Errorf("got %v, %v", n, err)
	}
}

func TestPressureIsATotalOrUnknown(t *testing.T) {
	s := captured(t, "v2")
	top, pod := open(t, s, "/"), open(t, s, v2Pod)
	want := stats.Stall{Some: 1234567 * time.Microsecond, Full: 345678 * time.Microsecond, Known: true}
	if got, err := top.Pressure(IOStall); err != nil || got != want {
		t.Errorf("got %v, %v", got, err)
	}
	if got, err := pod.Pressure(CPUStall); err != nil || got.Known {
		t.Errorf("a file that does not exist: got %v, %v", got, err)
	}
}

func TestActionsWriteTheFileOfTheirVersion(t *testing.T) {
	for _, c := range []struct {
		fixture, group, file, want string
		act                        func(*Group) error
	}{
		{"v2", v2Pod, v2Pod + "/cgroup.kill", "1", (*Group).Kill},
		{"v2", v2Pod, v2Pod + "/cgroup.freeze", "0", (*Group).Thaw},
		{"v2", v2Pod, v2Pod + "/memory.max", "1048576", func(g *Group) error { return g.SetMemoryLimit(stats.Known(1 << 20)) }},
		{"v2", v2Pod, v2Pod + "/memory.max", "max", func(g *Group) error { return g.SetMemoryLimit(stats.Amount{}) }},
		{"v1", v1Pod, "/unified" + v1Pod + "/cgroup.kill", "1", (*Group).Kill},
		{"v1", v1Pod, "/freezer" + v1Pod + "/freezer.state", "THAWED", (*Group).Thaw},
		{"v1", v1Pod, "/memory" + v1Pod + "/memory.limit_in_bytes", "-1", func(g *Group) error { return g.SetMemoryLimit(stats.Amount{}) }},
	} {
		s, host := fixture(t, c.fixture)
		file := host + "/sys/fs/cgroup" + c.file
		put(t, file, "")
		if err := c.act(open(t, s, c.group)); err != nil {
			t.Errorf("%s: %v", c.file, err)
		}
		if got := get(t, file); got != c.want {
			t.Errorf("%s: got %q, want %q", c.file, got, c.want)
		}
	}
}

func TestStatisticsThatDoNotChangeAreReadBelow(t *testing.T) {
	s, host := fixture(t, "v1")
	at := host + "/sys/fs/cgroup/memory" + v1Pod
	put(t, at+"/memory.failcnt", "0\n")
	put(t, at+"/memory.usage_in_bytes", "67000000\n")
	stat := get(t, at+"/c1/memory.stat")
	put(t, at+"/c1/memory.stat", strings.ReplaceAll(stat, "8052736", "1048576"))
	g := open(t, s, v1Pod)
	read := func() stats.Amount {
		var m stats.Memory
		require.NoError(t, g.Memory(&m))
		return m.InactiveFile
	}
	stale, fresh := stats.Known(8052736), stats.Known(1048576)
	for _, c := range []struct {
		name, file, holds string
		want              stats.Amount
	}{
		{"a total that is new and has more to reclaim is used", "memory.failcnt", "1\n", stale},
		{"a total that does not change while memory is reclaimed is not used", "memory.failcnt", "2\n", fresh},
		{"a total that does not change while usage does is not used", "memory.usage_in_bytes", "57000000\n", fresh},
		{"a total that is new and has less used is used", "memory.stat", strings.Replace(get(t, at+"/memory.stat"), "total_active_file 0", "total_active_file 4096", 1), stale},
		{"a total that does not change, as usage, is used", "memory.usage_in_bytes", "56900000\n", stale},
		{"it is not used once usage has changed", "memory.usage_in_bytes", "67000000\n", fresh},
		{"a total that is new and has most of the memory used is not used", "memory.stat", strings.ReplaceAll(get(t, at+"/memory.stat"), "total_inactive_file 8052736", "total_inactive_file 0"), fresh},
	} {
		put(t, at+"/"+c.file, c.holds)
		if got := read(); got != c.want {
			t.Errorf("%s: got %v, want %v", c.name, got, c.want)
		}
	}
}

func TestWhatRemovedGroupsHoldIsWhatUsageHasAndTheOthersHaveNot(t *testing.T) {
	const c1, kmem = v1Pod + "/c1", v1Pod + "/memory.kmem.usage_in_bytes"
	for _, c := range []struct {
		name                         string
		totalInactive, totalActive   int64
		before, usage                int64
		removed                      string
		wantedInactive, wantedActive int64
	}{
		{"part of it is active", 30e6, 20e6, 50e6, 60e6, "", 10e6 + 20e6, 7e6 + 13e6},
		{"it is no more than usage has", 30e6, 20e6, 50e6, 35e6, "", 10e6 + 8e6, 7e6},
		{"no group is left", 30e6, 20e6, 50e6, 60e6, c1, 30e6 + 4e6, 20e6},
		{"groups have read since", 8e6, 0, 50e6, 60e6, "", 10e6 + 8e6, 7e6},
		{"the totals are as they should be", 12e6, 20e6, 64e6, 64e6, "", 12e6, 20e6},
		{"memory of the kernel is unknown", 30e6, 20e6, 50e6, 60e6, kmem, 10e6, 7e6},
	} {
		s, host := fixture(t, "v1")
		at := host + "/sys/fs/cgroup/memory"
		put(t, at+v1Pod+"/memory.kmem.usage_in_bytes", "1000000\n")
		put(t, at+v1Pod+"/memory.stat", fmt.Sprintf("cache 0\nrss 0\nshmem 0\ninactive_file 0\nactive_file 0\n"+
			"total_shmem 5000000\ntotal_inactive_file %d\ntotal_active_file %d\n", c.totalInactive, c.totalActive))
		put(t, at+c1+"/memory.stat", "cache 20000000\nrss 4000000\nshmem 3000000\ninactive_file 10000000\nactive_file 7000000\n")
		if c.removed != "" {
			require.NoError(t, os.RemoveAll(at+c.removed))
		}
		g := open(t, s, v1Pod)
		var m stats.Memory
		for _, usage := range []int64{c.before, c.usage} { // the totals do not change
			put(t, at+v1Pod+"/memory.usage_in_bytes", fmt.Sprintln(usage))
			require.NoError(t, g.Memory(&m))
		}
		if m.InactiveFile != stats.Known(c.wantedInactive) || m.ActiveFile != stats.Known(c.wantedActive) {
			t.Errorf("%s: got %v and %v, want %d and %d", c.name, m.InactiveFile, m.ActiveFile, c.wantedInactive, c.wantedActive)
		}
	}
}

// rule: M.82
func TestAGroupAtFullSpeedLeavesAFifthToTheGroupsFurtherUp(t *testing.T) {
	for _, c := range []struct {
		fixture, group, top string
		weights             map[string]string // of groups
		want                []Setting
	}{
		{"v1", v1Pod, "/kubepods", map[string]string{"/kubepods/besteffort": "2", "/kubepods/burstable": "600", "/kubepods/podguaranteed": "1024"}, []Setting{
			{"/cpu" + v1Pod + "/cpu.cfs_quota_us", "-1"},
			{"/cpu" + v1Pod + "/cpu.shares", "262144"},
			{"/cpu/kubepods/besteffort/cpu.shares", "6496"},
			{"/cpu" + v1Pod + "/c1/cpu.cfs_quota_us", "-1"},
		}},
		{"v1", v1Pod, "/kubepods", map[string]string{"/kubepods/besteffort": "3000", "/kubepods/burstable": "600"}, []Setting{
			{"/cpu" + v1Pod + "/cpu.cfs_quota_us", "-1"},
			{"/cpu" + v1Pod + "/cpu.shares", "262144"},
			{"/cpu/kubepods/besteffort/cpu.shares", "3000"},
			{"/cpu" + v1Pod + "/c1/cpu.cfs_quota_us", "-1"},
		}},
		{"v2", v2Pod, "/kubepods.slice", map[string]string{
			"/kubepods.slice/kubepods-burstable.slice": "40", "/kubepods.slice/kubepods-besteffort.slice": "1",
			"/kubepods.slice/kubepods-pod99998888_7777_4666_8555_444433332222.slice": "10000",
		}, []Setting{
			{v2Pod + "/cpu.max", "max"},
			{v2Pod + "/cpu.weight", "10000"},
			{"/kubepods.slice/kubepods-burstable.slice/cpu.weight", "10000"},
			{v2Pod + "/cri-containerd-aaaa.scope/cpu.max", "max"},
			{v2Pod + "/cri-containerd-bbbb.scope/cpu.max", "max"},
		}},
	} {
		s, host := fixture(t, c.fixture)
		for group, weight := range c.weights {
			require.NoError(t, os.MkdirAll(s.dir(memory, group), 0o755))
			require.NoError(t, os.MkdirAll(s.dir(cpu, group), 0o755))
			require.NoError(t, os.WriteFile(s.weightFile(group), []byte(weight+"\n"), 0o644))
		}
		got, err := s.CPUBoost(c.group, c.top)
		if err != nil {
			t.Error(err)
		}
		for i := range c.want {
			c.want[i].File = host + "/sys/fs/cgroup" + c.want[i].File
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: got %v, want %v", c.fixture, got, c.want)
		}
	}
}

func TestFreezingIsASettingOfTheHierarchyThatHasTheFreezer(t *testing.T) {
	for fixtureOf, want := range map[string]Setting{
		"v1": {"/freezer" + v1Pod + "/freezer.state", "FROZEN"},
		"v2": {v1Pod + "/cgroup.freeze", "1"},
	} {
		s, host := fixture(t, fixtureOf)
		want.File = host + "/sys/fs/cgroup" + want.File
		if got, ok := s.FreezeSetting(v1Pod); !ok || got != want {
			t.Errorf("%s: got %v, want %v", fixtureOf, got, want)
		}
	}
}

func TestWhatTheKernelHasNoFileForIsUnsupported(t *testing.T) {
	s := captured(t, "v2") // captured without cgroup.kill, as before Linux 5.14
	if err := open(t, s, v2Pod).Kill(); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("kill: got %v", err)
	}
}

func TestAGroupIsEmptyWhenItsEventsSaySo(t *testing.T) {
	s, host := fixture(t, "v2")
	g := open(t, s, v2Pod)
	if populated, err := g.Populated(); err != nil || !populated {
		t.Errorf("got %v, %v", populated, err)
	}
	put(t, host+"/sys/fs/cgroup"+v2Pod+"/cgroup.events", "populated 0\nfrozen 0\n")
	if populated, err := g.Populated(); err != nil || populated {
		t.Errorf("got %v, %v", populated, err)
	}
}

func TestCreatingOnV2EnablesControllersDownThePath(t *testing.T) {
	s, host := fixture(t, "v2")
	root := host + "/sys/fs/cgroup"
	for _, dir := range []string{"", "/demo"} {
		require.NoError(t, os.MkdirAll(root+dir, 0o755))
		put(t, root+dir+"/cgroup.subtree_control", "")
	}
	require.NoError(t, s.Create("/demo/pod", Limits{Memory: stats.Known(1 << 26), PIDs: stats.Known(64)}))
	for file, want := range map[string]string{
		"/cgroup.subtree_control": "+cpu +memory +pids", "/demo/cgroup.subtree_control": "+cpu +memory +pids",
		"/demo/pod/memory.max": "67108864", "/demo/pod/pids.max": "64",
	} {
		if err := os.Chmod(root+file, 0o600); err != nil { // of a file that only the kernel makes readable
			t.Fatal(err)
		}
		if got := get(t, root+file); got != want {
			t.Errorf("%s: got %q, want %q", file, got, want)
		}
	}
}
