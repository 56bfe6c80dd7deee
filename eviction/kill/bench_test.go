package kill

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/evictd/evictd/cgroup"
	"github.com/evictd/evictd/cgroup/cgrouptest"
	"github.com/evictd/evictd/internal/require"
	"github.com/evictd/evictd/stats"
)

// From Kill to the pod being confirmed empty, by pidfds.
func BenchmarkKillToEmpty(b *testing.B) {
	for _, processes := range []int{1, 10, 100} {
		script := fmt.Sprintf("i=1; while [ $i -lt %d ]; do sleep 600 & i=$((i+1)); done; echo ready; exec sleep 600", processes)
		b.Run(fmt.Sprintf("processes=%d", processes), func(b *testing.B) {
			benchmarkKill(b, true, func(p *pod) { p.start(b, script) })
		})
	}
	for _, release := range []bool{false, true} {
		b.Run(fmt.Sprintf("rss=200MiB/mrelease=%v", release), func(b *testing.B) {
			benchmarkKill(b, release, func(p *pod) { p.startRole(b, "hold=200") })
		})
	}
}

func benchmarkKill(b *testing.B, release bool, populate func(*pod)) {
	if release && !releases(b) {
		b.Skip("skipped: needs process_mrelease(2), which Linux 5.15 has")
	}
	k := startKiller(b)
	k.cannotRelease.Store(!release)
	var took time.Duration
	for b.Loop() {
		b.StopTimer()
		p := newPod(b) // the zombies of the last one may still fill theirs
		p.pidfdsOnly = true
		populate(p)
		b.StartTimer()
		began := time.Now()
		took += mustKill(b, k, Victim{UID: "a", Target: p}).Gone.Sub(began)
	}
	b.ReportMetric(float64(took.Microseconds())/float64(b.N), "µs-to-empty")
}

// releases probes with a pidfd of our own: a process that is not dying is EINVAL
// where the call exists.
func releases(b *testing.B) bool {
	k := New(Config{}, slog.New(slog.DiscardHandler))
	self, err := k.open(unix.Getpid())
	require.NoError(b, err)
	defer self.close()
	return errors.Is(self.release(), unix.EINVAL)
}

// From SIGKILL until 90 % of the memory is back, of a victim below a parent of two
// cpu shares, beside four processes that take all of the processor.
func BenchmarkStarvedVictimGivesMemoryBack(b *testing.B) {
	for _, mib := range []int{512, 2048} {
		for _, how := range []struct {
			name           string
			hurry, release bool
		}{{"nothing", false, false}, {"boost", true, false}, {"mrelease", false, true}, {"boost+mrelease", true, true}} {
			b.Run(fmt.Sprintf("%dMiB/%s", mib, how.name), func(b *testing.B) { benchmarkStarved(b, mib, how.hurry, how.release) })
		}
	}
}

// starvedPatience bounds the wait for memory that may not come for very long.
const starvedPatience = 20 * time.Second

func benchmarkStarved(b *testing.B, mib int, hurry, release bool) {
	if available := memAvailable(b); available < int64(4*mib)<<20 {
		b.Skipf("skipped: needs four times %[2]d MiB of available memory, not %[1]d MiB", available>>20, mib)
	}
	k := startKiller(b)
	k.cannotRelease.Store(!release)
	s, top := cgrouptest.New(b, cgroup.Limits{})
	hogs := newShares(b, s, top+"/hogs", 1024)
	for range 4 {
		hogs.start(b, "echo ready; while :; do :; done")
	}
	class := newShares(b, s, top+"/class", leastShares)
	var took []float64
	for i := 0; b.Loop(); i++ {
		p := &boosted{pod: newShares(b, s, fmt.Sprintf("%s/%d", class.Path(), i), leastShares), top: top}
		require.NoError(b, s.Create(p.Path(), cgroup.Limits{Memory: stats.Known(int64(mib+64) << 20)}))
		p.pidfdsOnly = true
		// It fills its memory before it is starved.
		starve, err := p.BoostCPU()
		require.NoError(b, err)
		p.startRole(b, fmt.Sprintf("hold=%d", mib))
		starve()
		full, _ := p.usage().Get()
		v := Victim{UID: "a", Target: p.pod}
		if hurry {
			v.Target = p
		}
		k.Prepare([]Victim{v})
		began := time.Now()
		require.NoError(b, k.Kill(v))
		for time.Since(began) < starvedPatience {
			if left, known := p.usage().Get(); known && left <= full/10 {
				break
			}
			time.Sleep(500 * time.Microsecond)
		}
		took = append(took, time.Since(began).Seconds()*1000)
		_, _ = p.BoostCPU() // so that it ends
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

// leastShares is the lowest weight of the cpu controller, that of BestEffort pods.
const leastShares = 2

// boosted is a pod whose weight, and that of the groups up to top, is raised while it dies.
type boosted struct {
	*pod
	top string
}

func (p *boosted) BoostCPU() (undo func(), faults error) {
	settings, faults := p.cgroups.CPUBoost(p.Path(), p.top)
	for _, s := range settings {
		faults = errors.Join(faults, os.WriteFile(s.File, []byte(s.Value), 0))
	}
	return func() {
		for at := p.Path(); at != p.top; at = path.Dir(at) {
			_ = p.cgroups.Create(at, cgroup.Limits{CPUShares: stats.Known(leastShares)})
		}
	}, faults
}

// newShares makes a group with a weight among its siblings.
func newShares(b *testing.B, s *cgroup.System, group string, shares int64) *pod {
	b.Helper()
	if s.Mount("cpu") == "" {
		b.Skip("skipped: needs the cpu controller")
	}
	require.NoError(b, s.Create(group, cgroup.Limits{CPUShares: stats.Known(shares)}))
	return &pod{Group: cgrouptest.Open(b, s, group), cgroups: s}
}

func memAvailable(b *testing.B) (bytes int64) {
	b.Helper()
	text := require.ReadFile(b, "/proc/meminfo")
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
				p := newPod(b)
				p.start(b, "trap '' TERM; echo ready; while :; do sleep 1; done")
				v := Victim{UID: "a", Target: p, Grace: grace}
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
