package kill

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// From Kill to the pod being confirmed empty, by pidfds, in cgroup v1.
func BenchmarkKillToEmpty(b *testing.B) {
	for _, processes := range []int{1, 10, 100} {
		script := fmt.Sprintf("i=1; while [ $i -lt %d ]; do sleep 600 & i=$((i+1)); done; echo ready; exec sleep 600", processes)
		b.Run(fmt.Sprintf("processes=%d", processes), func(b *testing.B) {
			benchmarkKill(b, true, func(g *v1Group) { g.start(b, script) })
		})
	}
	for _, release := range []bool{false, true} {
		b.Run(fmt.Sprintf("rss=200MiB/mrelease=%v", release), func(b *testing.B) {
			benchmarkKill(b, release, func(g *v1Group) { g.startRole(b, "hold=200") })
		})
	}
}

func benchmarkKill(b *testing.B, release bool, populate func(*v1Group)) {
	if release && !releases(b) {
		b.Skip("skipped: needs process_mrelease(2), which Linux 5.15 has")
	}
	k := startKiller(b)
	k.cannotRelease.Store(!release)
	var took time.Duration
	for b.Loop() {
		b.StopTimer()
		g := newV1Group(b) // the zombies of the last one may still fill theirs
		populate(g)
		b.StartTimer()
		began := time.Now()
		took += mustKill(b, k, Victim{UID: "a", Target: g}).Gone.Sub(began)
	}
	b.ReportMetric(float64(took.Microseconds())/float64(b.N), "µs-to-empty")
}

// releases probes with a pidfd of our own: a process that is not dying is EINVAL
// where the call exists.
func releases(b *testing.B) bool {
	k := New(Config{}, slog.New(slog.DiscardHandler))
	self, err := k.open(unix.Getpid())
	if err != nil {
		b.Fatal(err)
	}
	defer self.close()
	return errors.Is(self.release(), unix.EINVAL)
}

// From SIGKILL until 90 % of the memory is back, of a victim below a parent of two
// cpu shares, beside four processes that take all of the processor.
func BenchmarkStarvedVictimGivesMemoryBack(b *testing.B) {
	for _, mib := range []int{512, 2048} {
		for _, how := range []struct {
			name, parent string // shares of the parent while it dies; "" for those that it has
			release      bool
		}{{"nothing", "", false}, {"most", mostShares, false}, {"all", "262144", false}, {"mrelease", "", true}, {"most+mrelease", mostShares, true}} {
			b.Run(fmt.Sprintf("%dMiB/%s", mib, how.name), func(b *testing.B) { benchmarkStarved(b, mib, how.parent, how.release) })
		}
	}
}

// mostShares are four times those of the processes beside the victim, as a boost sets them.
const mostShares = "4096"

// starvedPatience bounds the wait for memory that may not come for very long.
const starvedPatience = 20 * time.Second

func benchmarkStarved(b *testing.B, mib int, parent string, release bool) {
	if available := memAvailable(b); available < int64(4*mib)<<20 {
		b.Skipf("skipped: needs four times %[2]d MiB of available memory, not %[1]d MiB", available>>20, mib)
	}
	k := startKiller(b)
	k.cannotRelease.Store(!release)
	hogs := newCPUGroup(b, "", 1024)
	for range 4 {
		hogs.start(b, "echo ready; while :; do :; done")
	}
	class := newCPUGroup(b, "", 2)
	var took []float64
	for b.Loop() {
		g := newV1GroupOf(b, fmt.Sprintf("%dM", mib+64))
		pod := newCPUGroup(b, class.cpu, 2)
		g.dirs["cpu"] = pod.cpu
		// It fills its memory before it is starved.
		write(b, class.cpu+"/cpu.shares", "262144")
		write(b, pod.cpu+"/cpu.shares", "262144")
		g.startRole(b, fmt.Sprintf("hold=%d", mib))
		write(b, class.cpu+"/cpu.shares", "2")
		write(b, pod.cpu+"/cpu.shares", "2")
		full, _ := g.usage().Get()
		v := Victim{UID: "a", Target: g}
		if parent != "" {
			v.Target = &boosted{g, map[string]string{pod.cpu: "262144", class.cpu: parent}}
		}
		k.Prepare([]Victim{v})
		began := time.Now()
		if err := k.Kill(v); err != nil {
			b.Fatal(err)
		}
		for time.Since(began) < starvedPatience {
			if left, known := g.usage().Get(); known && left <= full/10 {
				break
			}
			time.Sleep(500 * time.Microsecond)
		}
		took = append(took, time.Since(began).Seconds()*1000)
		write(b, class.cpu+"/cpu.shares", "262144") // let it die at last
		write(b, pod.cpu+"/cpu.shares", "262144")
		if r := <-k.Results(); r.Err != nil {
			if r = <-k.Results(); r.Gone.IsZero() {
				b.Fatal(r)
			}
		}
	}
	slices.Sort(took)
	for _, q := range []float64{0.5, 0.95, 1} {
		b.ReportMetric(took[min(len(took)-1, int(q*float64(len(took))))], fmt.Sprintf("ms-p%g", q*100))
	}
	b.ReportMetric(0, "ns/op")
}

// boosted raises the weights of groups while the pod dies.
type boosted struct {
	*v1Group
	shares map[string]string // by group
}

func (p *boosted) BoostCPU() (undo func(), err error) {
	for dir, shares := range p.shares {
		err = errors.Join(err, os.WriteFile(dir+"/cpu.shares", []byte(shares), 0))
	}
	return func() {
		for dir := range p.shares {
			_ = os.WriteFile(dir+"/cpu.shares", []byte("2"), 0)
		}
	}, err
}

// newCPUGroup makes a group of a weight below another, or at the top.
func newCPUGroup(b *testing.B, parent string, shares int) *v1Group {
	b.Helper()
	if parent == "" {
		parent = filepath.Join(cgroups, "cpu")
	}
	dir, err := os.MkdirTemp(parent, "evictd-kill-bench-")
	if err != nil {
		b.Skipf("skipped: needs cgroup v1 with its cpu controller: %v", err)
	}
	g := &v1Group{dirs: map[string]string{"memory": dir, "cpu": dir}, cpu: dir} // its processes are listed in the cpu hierarchy
	b.Cleanup(func() { g.remove(b, dir) })
	write(b, dir+"/cpu.shares", fmt.Sprint(shares))
	return g
}

func write(b *testing.B, file, value string) {
	b.Helper()
	if err := os.WriteFile(file, []byte(value), 0); err != nil {
		b.Fatal(err)
	}
}

func memAvailable(b *testing.B) (bytes int64) {
	b.Helper()
	text, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		b.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if _, err := fmt.Sscanf(line, "MemAvailable: %d kB", &bytes); err == nil {
			return bytes << 10
		}
	}
	return 0
}

// How late SIGKILL is after the end of the grace, by the kernel's timer and by the
// runtime's.
func BenchmarkDeadline(b *testing.B) {
	runtimes := func(at time.Time) (rings <-chan struct{}, stop func()) {
		ringing := make(chan struct{})
		t := time.AfterFunc(time.Until(at), func() { close(ringing) })
		return ringing, func() { t.Stop() }
	}
	for name, alarm := range map[string]func(time.Time) (<-chan struct{}, func()){"timerfd": alarm, "runtime": runtimes} {
		b.Run(name, func(b *testing.B) {
			k := startKiller(b)
			k.alarm = alarm
			const grace = 50500 * time.Microsecond // not in whole milliseconds
			var late []float64
			for b.Loop() {
				g := newV1Group(b)
				g.start(b, "trap '' TERM; echo ready; while :; do sleep 1; done")
				v := Victim{UID: "a", Target: g, Grace: grace}
				k.Prepare([]Victim{v})
				began := time.Now()
				r := mustKill(b, k, v)
				late = append(late, float64((r.Killed.Sub(began)-grace).Nanoseconds())/1e6)
			}
			slices.Sort(late)
			for _, q := range []float64{0.5, 0.99, 1} {
				b.ReportMetric(late[min(len(late)-1, int(q*float64(len(late))))], fmt.Sprintf("ms-late-p%g", q*100))
			}
			b.ReportMetric(0, "ns/op")
		})
	}
}

func BenchmarkListSession(b *testing.B) {
	s := startSession(b, "echo ready; exec sleep 600")
	for b.Loop() {
		if pids, err := s.AppendProcesses(nil); err != nil || len(pids) != 1 {
			b.Fatal(pids, err)
		}
	}
}
