package kill

import (
	"errors"
	"fmt"
	"log/slog"
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
		b.Skip("this kernel has no process_mrelease for us")
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

func BenchmarkListSession(b *testing.B) {
	s := startSession(b, "echo ready; exec sleep 600")
	for b.Loop() {
		if pids, err := s.AppendProcesses(nil); err != nil || len(pids) != 1 {
			b.Fatal(pids, err)
		}
	}
}
