package collect

import (
	"context"
	"fmt"
	"log/slog"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/evictd/evictd/cgroup"
	"github.com/evictd/evictd/internal/require"
	"github.com/evictd/evictd/internal/wait"
	"github.com/evictd/evictd/stats"
)

// watched is a watch that runs on a node of bounded groups of this host.
type watched struct {
	*MemoryNotifier
	cgroups    *cgroup.System
	node, pods string
	logged     wait.Log
}

func newWatched(t *testing.T, thresholds bool) *watched {
	t.Helper()
	t.Parallel()
	s, node := realGroup(t)
	if s.Version() != cgroup.V1 {
		t.Skip("skipped: needs cgroup v1, which has usage thresholds")
	}
	w := &watched{cgroups: s, node: node, pods: node + "/kubepods"}
	w.createPods(t)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("log of the watch:\n%s", &w.logged)
		}
	})
	var err error
	if w.MemoryNotifier, err = NewMemoryNotifier(NodeConfig{Cgroups: s, Root: w.node}, thresholds, slog.New(slog.NewTextHandler(&w.logged, nil))); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Close)
	require.Running(t, func(ctx context.Context) error { w.Run(ctx); return nil })
	return w
}

func (w *watched) createPods(t *testing.T) {
	t.Helper()
	require.NoError(t, w.cgroups.Create(w.pods, cgroup.Limits{Memory: stats.Known(256 << 20)}))
}

// fill lets processes of the pods' group hold so many MiB until the function that
// it returns is called.
func (w *watched) fill(t *testing.T, mebi int) (end func()) {
	t.Helper()
	c := exec.Command("sh", "-c", fmt.Sprintf("read go; x=$(head -c %d /dev/zero | tr '\\0' x); read go", mebi<<20))
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	in, err := c.StdinPipe()
	if err == nil {
		err = c.Start()
	}
	if err == nil {
		err = w.cgroups.Add(w.pods, c.Process.Pid)
	}
	require.NoError(t, err)
	fmt.Fprintln(in, "go")
	var once sync.Once
	end = func() {
		once.Do(func() {
			_ = syscall.Kill(-c.Process.Pid, syscall.SIGKILL)
			_ = c.Wait()
		})
	}
	t.Cleanup(end)
	return end
}

// awaitSource waits until a notice of one of the kinds wakes.
func (w *watched) awaitSource(t *testing.T, sources ...string) {
	t.Helper()
	awaitThat(t, fmt.Sprint(sources), func() bool { return slices.Contains(sources, w.Wait(100*time.Millisecond)) })
}

// drain takes what has rung.
func (w *watched) drain() {
	for w.Wait(0) != "" {
	}
}

func at(mark int64) MemoryLevel {
	return MemoryLevel{Usage: stats.Known(0), Threshold: stats.Known(mark)}
}

func TestAWatchIsWokenByMemoryThatCrossesWhatItAimsAtAndFollowsTheAim(t *testing.T) {
	w := newWatched(t, true)
	w.awaitArmed(t, MemoryLevels{at(200 << 20), at(40 << 20)})
	w.drain()
	end := w.fill(t, 48)
	w.awaitSource(t, MemcgThreshold)
	w.awaitArmed(t, MemoryLevels{at(80 << 20)})
	end()
	w.drain()
	defer w.fill(t, 96)()
	w.awaitSource(t, MemcgThreshold)
}

func TestFarFromAThresholdAWatchIsWokenHalfTheWay(t *testing.T) {
	w := newWatched(t, true)
	far := MemoryLevels{1: at(160 << 20)}
	w.awaitArmed(t, far)
	if w.SetLevels(MemoryLevels{1: at(200 << 20)}) != Unarmed {
		t.Error("armed for another mark than it was aimed at")
	}
	w.awaitArmed(t, far)
	w.drain()
	defer w.fill(t, 96)()
	w.awaitSource(t, MemcgThreshold)
}

// awaitArmed sets the levels until the kernel notifies of them.
func (w *watched) awaitArmed(t *testing.T, a MemoryLevels) {
	t.Helper()
	awaitThat(t, "usage thresholds", func() bool { return w.SetLevels(a) == ArmedForNode })
}

func TestAWatchOutlivesItsGroupAndWatchesTheNextGroupOfThePath(t *testing.T) {
	w := newWatched(t, true)
	w.awaitArmed(t, MemoryLevels{1: at(40 << 20)})
	w.drain()
	require.NoError(t, w.cgroups.Delete(w.pods))
	w.awaitSource(t, MemcgThreshold, MemoryStall) // whichever the kernel takes down first
	w.createPods(t)
	w.awaitArmed(t, MemoryLevels{1: at(44 << 20)})
	w.drain()
	defer w.fill(t, 64)()
	w.awaitSource(t, MemcgThreshold)
	if strings.Contains(w.logged.String(), "memory threshold") {
		t.Errorf("logged %s", &w.logged)
	}
}

func TestAWatchWithoutThresholdsIsWokenByWakeAlone(t *testing.T) {
	w := newWatched(t, false)
	if w.SetLevels(MemoryLevels{at(40 << 20), at(40 << 20)}) != Unarmed {
		t.Error("armed")
	}
	pods, err := w.cgroups.Open(w.pods)
	require.NoError(t, err)
	defer pods.Close()
	defer w.fill(t, 48)()
	awaitThat(t, "memory to be in use", func() bool {
		usage, err := pods.Usage()
		return err != nil || usage.Or(0) > 48<<20
	})
	for source := w.Wait(0); source != ""; source = w.Wait(0) {
		if source == MemcgThreshold {
			t.Fatal("woken by a threshold")
		}
	}
	w.Wake()
	for w.Wait(time.Hour) != "" { // stalls may ring, too
	}
}

func TestANoticeThatCannotBeHadIsLoggedOnce(t *testing.T) {
	s, host := fixture(t) // its files are no kernel's
	var logged wait.Log
	w, err := NewMemoryNotifier(NodeConfig{Host: host, Cgroups: s, Root: podGroup}, true, slog.New(slog.NewTextHandler(&logged, nil)))
	require.NoError(t, err)
	defer w.Close()
	for range 3 {
		w.reopen()
	}
	if n := strings.Count(logged.String(), `notification="node memory events"`); n != 1 {
		t.Errorf("logged %d times: %s", n, &logged)
	}
}
