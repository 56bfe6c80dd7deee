package cgroup

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/evictd/evictd/internal/require"
	"github.com/evictd/evictd/internal/wait"
	"github.com/evictd/evictd/stats"
)

// realGroup creates a bounded group of this host and takes it away again.
func realGroup(t testing.TB, l Limits) (*System, string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("skipped: needs root, to create cgroups")
	}
	s, err := Discover("")
	if err != nil {
		t.Skip("skipped: needs a mounted cgroup hierarchy:", err)
	}
	group := fmt.Sprintf("/evictd-test-%d-%s", os.Getpid(), strings.ToLower(strings.NewReplacer("/", "-", "_", "-").Replace(t.Name())))
	if err := s.Create(group, l); err != nil {
		if s.Delete(group) != nil || errors.Is(err, os.ErrPermission) || strings.Contains(err.Error(), "read-only") {
			t.Skip("skipped: needs a cgroup hierarchy that may be written to:", err)
		}
		t.Fatal(err)
	}
	t.Cleanup(func() { // processes that were killed may live for a moment yet
		eventually(t, "the group to be removed", func() bool { return s.Delete(group) == nil })
	})
	return s, group
}

func bounded() Limits { return Limits{Memory: stats.Known(256 << 20), PIDs: stats.Known(64)} }

// member is a shell in a group, which runs the lines that do writes.
type member struct {
	*exec.Cmd
	stdin  io.Writer
	stdout *bufio.Reader
}

func join(t testing.TB, s *System, group string) *member {
	t.Helper()
	m := &member{Cmd: exec.Command("sh")}
	in, err1 := m.StdinPipe()
	out, err2 := m.StdoutPipe()
	require.NoError(t, errors.Join(err1, err2, m.Start()))
	m.stdin, m.stdout = in, bufio.NewReader(out)
	t.Cleanup(m.end)
	require.NoError(t, s.Add(group, m.Process.Pid))
	return m
}

// do runs a line of shell and waits until it has run.
func (m *member) do(t testing.TB, line string) string {
	t.Helper()
	fmt.Fprintf(m.stdin, "%s\necho done\n", line)
	var said strings.Builder
	for {
		text, err := m.stdout.ReadString('\n')
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		if text == "done\n" {
			return said.String()
		}
		said.WriteString(text)
	}
}

// hold20MB has the shell hold 20 MB or a little more, without a system call for each few bytes of it.
const hold20MB = "x=01234567890123456789; for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do x=$x$x; done"

func (m *member) end() {
	if m.ProcessState == nil {
		m.Process.Kill()
		m.Wait()
	}
}

func TestARealGroupShowsWhatItsProcessUses(t *testing.T) {
	s, group := realGroup(t, bounded())
	require.NoError(t, s.Create(group+"/c1", Limits{}))
	g := open(t, s, group)
	var before, after stats.Memory
	if err := g.Memory(&before); err != nil || before.Limit != stats.Known(256<<20) {
		t.Fatalf("got %v, %v", before, err)
	}
	m := join(t, s, group+"/c1")
	m.do(t, hold20MB)
	require.NoError(t, g.Memory(&after))
	if grown, known := after.WorkingSet().Minus(before.WorkingSet()).Get(); !known || grown < 19_000_000 || grown > 200<<20 {
		t.Errorf("20 MB more in use show as %d", grown)
	}
	processes, err1 := g.Processes()
	threads, err2 := g.Threads()
	limit, err3 := g.MaxPIDs()
	kills, err4 := s.OOMKills(group)
	require.NoError(t, errors.Join(err1, err2, err3, err4))
	if got, want := []stats.Amount{processes, threads, limit, kills}, amounts(1, 1, 64, 0); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if list, err := g.AppendProcesses(nil); err != nil || !slices.Equal(list, []int{m.Process.Pid}) {
		t.Errorf("list: got %v, %v", list, err)
	}
	if stall, err := g.Pressure(MemoryStall); err != nil || stall.Known != (s.Mount("") != "" && !notThere("/proc/pressure/memory")) {
		t.Errorf("pressure: got %v, %v", stall, err)
	}
	if populated, err := g.Populated(); err != nil || !populated {
		t.Errorf("populated: got %v, %v", populated, err)
	}
	m.end()
	eventually(t, "the group to be empty", func() bool {
		populated, err := g.Populated()
		return err == nil && !populated
	})
}

func TestARemovedGroupIsGoneForEveryRead(t *testing.T) {
	s, group := realGroup(t, bounded())
	g, late := open(t, s, group), open(t, s, group)
	readAll := func(g *Group) map[string]error {
		var m stats.Memory
		errs := map[string]error{"memory": g.Memory(&m)}
		_, errs["usage"] = g.Usage()
		_, errs["processes"] = g.Processes()
		_, errs["threads"] = g.Threads()
		_, errs["pids.max"] = g.MaxPIDs()
		_, errs["list"] = g.AppendProcesses(nil)
		_, errs["populated"] = g.Populated()
		_, errs["oom kills"] = s.OOMKills(group)
		return errs
	}
	for name, err := range readAll(g) {
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	require.NoError(t, s.Delete(group))
	for name, g := range map[string]*Group{"a group that was read before": g, "a group that was never read": late} {
		for what, err := range readAll(g) {
			if !errors.Is(err, ErrGone) {
				t.Errorf("%s: %s: got %v", name, what, err)
			}
		}
	}
	if err := late.SetMemoryLimit(stats.Known(1 << 20)); !errors.Is(err, ErrGone) {
		t.Errorf("limit: got %v", err)
	}
	if _, err := s.Open(group); !errors.Is(err, ErrGone) {
		t.Errorf("open: got %v", err)
	}
	if err := s.Delete(group); err != nil {
		t.Errorf("delete again: %v", err)
	}
}

func TestKillEndsEveryProcessOfTheGroupWhereTheKernelCan(t *testing.T) {
	s, group := realGroup(t, bounded())
	require.NoError(t, s.Create(group+"/c1", Limits{}))
	g := open(t, s, group)
	m := join(t, s, group+"/c1")
	m.do(t, "sleep 300 >/dev/null & sleep 300 >/dev/null &")
	if n, err := g.Processes(); err != nil || n != stats.Known(3) {
		t.Fatalf("got %v, %v", n, err)
	}
	if err := g.Kill(); errors.Is(err, errors.ErrUnsupported) {
		m.do(t, "kill $(jobs -p)")
		t.Skip("skipped: needs cgroup v2 and Linux 5.14, which has cgroup.kill")
	} else if err != nil {
		t.Fatal(err)
	}
	if state, err := m.Process.Wait(); err != nil || state.String() != "signal: killed" {
		t.Errorf("got %v, %v", state, err)
	}
	m.ProcessState = &os.ProcessState{}
	eventually(t, "the group is empty", func() bool {
		populated, err := g.Populated()
		return err == nil && !populated
	})
}

func TestAFrozenProcessRunsNoFurtherUntilThawed(t *testing.T) {
	s, group := realGroup(t, bounded())
	g := open(t, s, group)
	m := join(t, s, group)
	frozen, ok := s.FreezeSetting(group)
	if !ok {
		t.Skip("skipped: needs the freezer")
	}
	require.NoError(t, os.WriteFile(frozen.File, []byte(frozen.Value), 0))
	t.Cleanup(func() { g.Thaw() })
	said := make(chan string, 1)
	go func() {
		fmt.Fprintln(m.stdin, "echo done")
		line, _ := m.stdout.ReadString('\n')
		said <- line
	}()
	if err := exec.Command("sh", "-c", ":").Run(); err != nil { // another shell runs meanwhile
		t.Fatal(err)
	}
	select {
	case line := <-said:
		t.Errorf("a frozen shell said %q", line)
	default:
	}
	require.NoError(t, g.Thaw())
	if line := <-said; line != "done\n" {
		t.Errorf("got %q", line)
	}
}

func TestARealGroupTakesTheSettingsOfFullSpeed(t *testing.T) {
	s, group := realGroup(t, bounded())
	require.NoError(t, s.Create(group+"/pod/c1", Limits{CPUShares: stats.Known(2), CPUQuota: stats.Known(5000)}))
	settings, err := s.CPUBoost(group+"/pod", group)
	require.NoError(t, err)
	if s.Mount("cpu") == "" {
		t.Skip("skipped: needs the cpu controller")
	}
	for _, setting := range settings {
		require.NoError(t, os.WriteFile(setting.File, []byte(setting.Value), 0))
		if is, err := os.ReadFile(setting.File); err != nil || strings.Fields(string(is))[0] != setting.Value {
			t.Errorf("%s holds %q, %v; want %s", setting.File, is, err, setting.Value)
		}
	}
	if len(settings) != 3 {
		t.Errorf("settings %v, want those of the pod and its container", settings)
	}
}

func TestALimitCanBeSetAndTakenOff(t *testing.T) {
	s, group := realGroup(t, bounded())
	g := open(t, s, group)
	for _, want := range []stats.Amount{stats.Known(64 << 20), {}} {
		require.NoError(t, g.SetMemoryLimit(want))
		var m stats.Memory
		if err := g.Memory(&m); err != nil || m.Limit != want {
			t.Errorf("got %v, %v; want %v", m.Limit, err, want)
		}
	}
}

var eventually = wait.Until

func TestThePageCacheOfARemovedGroupIsCounted(t *testing.T) {
	s, group := realGroup(t, bounded())
	if s.Version() != V1 {
		t.Skip("skipped: needs cgroup v1, whose totals are read below")
	}
	const size = 64 << 20
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, errors.Join(os.WriteFile(file, nil, 0o600), os.Truncate(file, size), s.Create(group+"/reader", Limits{})))
	m := join(t, s, group+"/reader")
	m.do(t, "cat "+file+" >/dev/null")
	m.end()
	require.NoError(t, s.Delete(group+"/reader"))
	g := open(t, s, group)
	var total stats.Memory
	var stat memoryStat
	eventually(t, "the totals to have the file", func() bool {
		err := g.usageAndStat(&total, &stat)
		return err == nil && total.InactiveFile.Plus(total.ActiveFile).Or(0) >= size
	})
	inactive, active, err := g.cache(&total, &stat, false)
	if sum := inactive + active; err != nil || sum < size-4<<20 || sum > total.Usage.Or(0) {
		t.Errorf("%d bytes of cache, %v, of a file of %d", sum, err, size)
	}
}

// rule: M.69
func TestMemoryFarFromItsLimitIsReadWithoutItsPageCache(t *testing.T) {
	t.Parallel()
	s, group := realGroup(t, Limits{Memory: stats.Known(256 << 20), PIDs: stats.Known(64)})
	g := open(t, s, group)
	m := join(t, s, group)
	var before, far, near stats.Memory
	if err := g.MemoryFar(&before, 0); err != nil { // the first is always in full
		t.Fatal(err)
	}
	m.do(t, "head -c 64000000 /dev/zero >"+t.TempDir()+"/file")
	require.NoError(t, errors.Join(g.MemoryFar(&far, 64<<20), g.MemoryFar(&near, 250<<20)))
	if cached := near.InactiveFile.Or(0) + near.ActiveFile.Or(0); cached < 32<<20 || near.Usage.Or(0) < 32<<20 || far.Usage.Or(0) < 32<<20 {
		t.Errorf("far %+v\nnear %+v", far, near)
	}
	if s.Version() == V2 && far.InactiveFile != before.InactiveFile || far.Limit != near.Limit {
		t.Errorf("far %+v, before %+v", far, before)
	}
}

func TestReadsAllocateNothing(t *testing.T) {
	if raceDetector {
		t.Skip("skipped: needs a build without the race detector, which allocates")
	}
	s, group := realGroup(t, bounded())
	require.NoError(t, s.Create(group+"/c1", Limits{}))
	join(t, s, group+"/c1")
	g, top := open(t, s, group), open(t, s, "/")
	var m stats.Memory
	var stat memoryStat
	list := make([]int, 0, 64)
	for name, read := range map[string]func() error{
		"memory":            func() error { return g.Memory(&m) },
		"memory of the top": func() error { return top.Memory(&m) },
		"memory below":      func() error { _, _, err := g.cache(&m, &stat, true); return err },
		"working set":       func() error { _, err := g.WorkingSet(); return err },
		"usage":             func() error { _, err := g.Usage(); return err },
		"processes":         func() error { _, err := g.Processes(); return err },
		"threads":           func() error { _, err := g.Threads(); return err },
		"pids.max":          func() error { _, err := g.MaxPIDs(); return err },
		"pressure":          func() error { _, err := g.Pressure(MemoryStall); return err },
		"list":              func() (err error) { list, err = g.AppendProcesses(list[:0]); return err },
	} {
		var err error
		allocs := testing.AllocsPerRun(100, func() {
			if e := read(); e != nil {
				err = e
			}
		})
		if allocs != 0 || err != nil {
			t.Errorf("%s: %v allocations, %v", name, allocs, err)
		}
	}
}

func BenchmarkMemory(b *testing.B) {
	s, group := realGroup(b, bounded())
	g := open(b, s, group)
	var m stats.Memory
	b.ReportAllocs()
	for b.Loop() {
		g.Memory(&m)
	}
}

func BenchmarkUsage(b *testing.B) {
	s, group := realGroup(b, bounded())
	g := open(b, s, group)
	b.ReportAllocs()
	for b.Loop() {
		g.Usage()
	}
}

func BenchmarkProcessesOfAPodOfTwoContainers(b *testing.B) {
	s, group := realGroup(b, bounded())
	for _, c := range []string{"/c1", "/c2"} {
		require.NoError(b, s.Create(group+c, Limits{}))
		join(b, s, group+c)
	}
	g := open(b, s, group)
	b.ReportAllocs()
	for b.Loop() {
		g.Processes()
	}
}

func TestAGroupGetsItsShareOfTheCPUAndNoMoreThanItsQuota(t *testing.T) {
	l := bounded()
	l.CPUShares, l.CPUQuota = stats.Known(2304), stats.Known(225_000)
	s, group := realGroup(t, l)
	want := map[string]string{"cpu.shares": "2304", "cpu.cfs_quota_us": "225000", "cpu.cfs_period_us": "100000"}
	at := s.Mount("cpu")
	if s.Version() == V2 {
		at, want = s.Mount(""), map[string]string{"cpu.weight": "191", "cpu.max": "225000 100000"}
	} else if at == "" {
		t.Skip("skipped: needs the cpu controller")
	}
	for name, value := range want {
		if text, err := os.ReadFile(filepath.Join(at, group, name)); err != nil || strings.TrimSpace(string(text)) != value {
			t.Errorf("%s: got %q, %v, want %s", name, text, err, value)
		}
	}
}

func TestV2GetsTheWeightThatStandsForTheShares(t *testing.T) {
	for shares, weight := range map[int64]uint64{2: 1, 1024: 100, 262144: 10000} {
		if got := (Limits{CPUShares: stats.Known(shares)}).v2().CPU.Weight; got == nil || *got != weight {
			t.Errorf("%d shares: got %v, want %d", shares, got, weight)
		}
	}
}

// rule: 1.24
func TestARealGroupAtTheTopOfV2ShowsWhatItsMemoryStatDoes(t *testing.T) {
	s, group := realGroup(t, bounded())
	if s.version != V2 {
		t.Skip("skipped: needs cgroup v2: the top of v1 has files of its own")
	}
	join(t, s, group).do(t, hold20MB)
	top := open(t, s, "/")
	var m stats.Memory
	eventually(t, "two readings between which the host changes little", func() bool {
		require.NoError(t, top.Memory(&m))
		stat := []byte(get(t, "/sys/fs/cgroup/memory.stat"))
		const batches = 8 << 20 // that are not charged yet
		for _, c := range []struct{ got, want stats.Amount }{
			{m.Usage, flat(stat, "anon").Plus(flat(stat, "file"))},
			{m.InactiveFile, flat(stat, "inactive_file")},
			{m.ActiveFile, flat(stat, "active_file")},
		} {
			if off := c.got.Or(0) - c.want.Or(0); !c.got.IsKnown() || off > batches || off < -batches {
				return false
			}
		}
		return true
	})
	if !m.Refaulted.IsKnown() {
		t.Error("refaults are unknown")
	}
}
