package collect

import (
	"context"
	"fmt"
	"log/slog"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/evictd/evictd/cgroup"
	"github.com/evictd/evictd/internal/wait"
	"github.com/evictd/evictd/stats"
)

// watched is a watch that runs on a node of bounded groups of this host.
type watched struct {
	*Watch
	cgroups    *cgroup.System
	node, pods string
	logged     wait.Log
}

func newWatched(t *testing.T, thresholds bool) *watched {
	t.Helper()
	s, node := realGroup(t)
	if s.Version() != cgroup.V1 {
		t.Skip("skipped: usage thresholds are of cgroup v1")
	}
	w := &watched{cgroups: s, node: node, pods: node + "/kubepods"}
	w.createPods(t)
	var err error
	if w.Watch, err = NewWatch(NodeConfig{Cgroups: s, Root: w.node}, thresholds, slog.New(slog.NewTextHandler(&w.logged, nil))); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		w.Run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
		w.Close()
	})
	return w
}

func (w *watched) createPods(t *testing.T) {
	t.Helper()
	if err := w.cgroups.Create(w.pods, cgroup.Limits{Memory: stats.Known(256 << 20)}); err != nil {
		t.Fatal(err)
	}
}

// fill lets a process of the pods' group hold so many MiB until the function that
// it returns is called.
func (w *watched) fill(t *testing.T, mebi int) (end func()) {
	t.Helper()
	c := exec.Command("sh", "-c", fmt.Sprintf("read go; x=$(head -c %d /dev/zero | tr '\\0' x); read go", mebi<<20))
	in, err := c.StdinPipe()
	if err == nil {
		err = c.Start()
	}
	if err == nil {
		err = w.cgroups.Add(w.pods, c.Process.Pid)
	}
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintln(in, "go")
	var once sync.Once
	end = func() {
		once.Do(func() {
			_ = c.Process.Kill()
			_ = c.Wait()
		})
	}
	t.Cleanup(end)
	return end
}

// awaitSource waits until a notice of one of the kinds wakes.
func (w *watched) awaitSource(t *testing.T, sources ...string) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); {
		if slices.Contains(sources, w.Wait(100*time.Millisecond)) {
			return
		}
	}
	t.Fatalf("no %v within 10 s; logged %s", sources, &w.logged)
}

// awaitQuiet waits until nothing has rung for a while.
func (w *watched) awaitQuiet(d time.Duration) {
	for w.Wait(d) != "" {
	}
}

func at(mark int64) Aim { return Aim{Usage: stats.Known(0), Mark: stats.Known(mark)} }

func TestAWatchIsWokenByMemoryThatCrossesWhatItAimsAtAndFollowsTheAim(t *testing.T) {
	w := newWatched(t, true)
	w.Aim(Aims{at(200 << 20), at(40 << 20)})
	w.awaitQuiet(300 * time.Millisecond)
	end := w.fill(t, 48)
	w.awaitSource(t, MemcgThreshold)
	w.Aim(Aims{at(80 << 20)})
	end()
	w.awaitQuiet(300 * time.Millisecond)
	defer w.fill(t, 96)()
	w.awaitSource(t, MemcgThreshold)
}

func TestFarFromAThresholdAWatchIsWokenHalfTheWay(t *testing.T) {
	w := newWatched(t, true)
	far := Aims{1: at(160 << 20)}
	w.awaitArmed(t, far)
	if w.Aim(Aims{1: at(200 << 20)}) {
		t.Error("armed for another mark than it was aimed at")
	}
	w.awaitArmed(t, far)
	w.awaitQuiet(300 * time.Millisecond)
	defer w.fill(t, 96)()
	w.awaitSource(t, MemcgThreshold)
}

// awaitArmed aims until the kernel tells.
func (w *watched) awaitArmed(t *testing.T, a Aims) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !w.Aim(a); {
		if time.Now().After(deadline) {
			t.Fatalf("never armed; logged %s", w.logged.String())
		}
		w.Wait(10 * time.Millisecond)
	}
}

func TestAWatchOutlivesItsGroupAndWatchesTheOneThatTakesItsPlace(t *testing.T) {
	w := newWatched(t, true)
	w.Aim(Aims{1: at(40 << 20)})
	w.awaitQuiet(300 * time.Millisecond)
	if err := w.cgroups.Delete(w.pods); err != nil {
		t.Fatal(err)
	}
	w.awaitSource(t, MemcgThreshold, MemoryStall) // whichever the kernel takes down first
	w.createPods(t)
	w.Aim(Aims{1: at(44 << 20)})
	w.awaitQuiet(300 * time.Millisecond)
	defer w.fill(t, 64)()
	w.awaitSource(t, MemcgThreshold)
	if strings.Contains(w.logged.String(), "memory threshold") {
		t.Errorf("logged %s", &w.logged)
	}
}

func TestAWatchWithoutThresholdsIsWokenByWakeAlone(t *testing.T) {
	w := newWatched(t, false)
	w.Aim(Aims{at(40 << 20), at(40 << 20)})
	defer w.fill(t, 48)()
	for deadline := time.Now().Add(500 * time.Millisecond); time.Now().Before(deadline); {
		if source := w.Wait(50 * time.Millisecond); source == MemcgThreshold {
			t.Fatal("woken by a threshold")
		}
	}
	w.Wake()
	if began := time.Now(); w.Wait(time.Minute) != "" || time.Since(began) > 30*time.Second {
		t.Error("Wake did not wake")
	}
}

func TestANoticeThatCannotBeHadIsLoggedOnce(t *testing.T) {
	s, host := fixture(t) // its files are no kernel's
	var logged wait.Log
	w, err := NewWatch(NodeConfig{Host: host, Cgroups: s, Root: podGroup}, true, slog.New(slog.NewTextHandler(&logged, nil)))
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	for range 3 {
		w.keep()
	}
	if n := strings.Count(logged.String(), `notification="node memory events"`); n != 1 {
		t.Errorf("told %d times: %s", n, &logged)
	}
}
