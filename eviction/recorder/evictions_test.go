package recorder

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evictd/evictd/eviction"
	"github.com/evictd/evictd/eviction/control"
	"github.com/evictd/evictd/internal/require"
	"github.com/evictd/evictd/nodestatus"
)

func at(seconds int) nodestatus.Time {
	return nodestatus.Time{Time: start.Add(time.Duration(seconds) * time.Second)}
}

func evictionOf(by, pod, resource string, seconds int) Eviction {
	return Eviction{By: by, Pod: "default/" + pod, UID: types.UID(pod), Resource: resource, At: at(seconds), DryRun: by == ByEvictd}
}

// rule: S9.19
func TestEvictionsAreComparedByPodThenByResource(t *testing.T) {
	var got []string
	for _, c := range Compare([]Eviction{
		evictionOf(ByEvictd, "leak", "memory", 10),
		evictionOf(ByEvictd, "first", "memory", 1000),
		evictionOf(ByEvictd, "near", "memory", 1100),
		evictionOf(ByEvictd, "disk", "ephemeral-storage", 2000),
		evictionOf(ByKubelet, "leak", "memory", 22),
		evictionOf(ByKubelet, "other", "memory", 1110),
		evictionOf(ByKubelet, "pids", "pids", 2001),
		evictionOf(ByKubelet, "late", "memory", 3000),
	}) {
		name := func(e *Eviction) string {
			if e == nil {
				return "-"
			}
			return e.Pod
		}
		got = append(got, fmt.Sprint(name(c.Evictd), " ", name(c.Kubelet), " ", c.Earlier()))
	}
	want := []string{
		"default/leak default/leak 12s", "default/first - 0s", "default/near default/other 10s",
		"default/disk - 0s", "- default/pids 0s", "- default/late 0s",
	}
	if !slices.Equal(got, want) {
		t.Errorf("compared %q; expected %q", got, want)
	}
}

// rule: S9.19
func TestAnEvictionIsKeptOnceAcrossRestarts(t *testing.T) {
	dir := t.TempDir()
	fly := func() *recordedNode {
		f := fly(t, t.TempDir(), pod("calm", "calm", 100), pod("leaker", "leaker", 100))
		f.recorder.cfg.Evictions = dir
		f.cfg.DryRun = true
		f.memory["leaker"] = 400
		return f
	}
	for round := range 3 {
		f := fly()
		f.recorder.Evicted(evictionOf(ByKubelet, "leaker", "memory", 30))
		f.recorder.Evicted(evictionOf(ByKubelet, "before", "memory", -30))
		for i := range 3 {
			f.pass(10*round+60*i, eviction.Housekeeping, 50)
		}
		h, err := ReadEvictions(dir)
		require.NoError(t, err)
		if !h.Since.Equal(start) || len(h.Evictions) != 2 || h.Evictions[0].By != ByEvictd || h.Evictions[0].Pod != "default/leaker" || h.Evictions[1].By != ByKubelet {
			t.Fatalf("round %d: %+v; expected leaker once by each since %v", round, h, start)
		}
	}
}

// rule: S9.19
func TestWhatTheAPIServerShowsOfEvictdsOwnEvictionIsNotTheKubelets(t *testing.T) {
	f := fly(t, t.TempDir(), pod("leaker", "leaker", 100))
	f.recorder.cfg.Evictions = t.TempDir()
	f.memory["leaker"] = 400
	f.pass(0, eviction.Housekeeping, 50)
	f.recorder.Evicted(Eviction{By: ByKubelet, Pod: "default/leaker", UID: f.pods[0].UID, Resource: "memory", At: at(1)})
	f.pass(10, eviction.Housekeeping, 500)
	h, err := ReadEvictions(f.recorder.cfg.Evictions)
	require.NoError(t, err)
	if len(h.Evictions) != 1 || h.Evictions[0].By != ByEvictd || h.Evictions[0].DryRun {
		t.Errorf("%+v; expected the one of evictd", h.Evictions)
	}
}

// brokenRing fails while it is broken, as the ring of a full disk.
type brokenRing struct {
	ring
	broken bool
	calls  int
}

func (r *brokenRing) Begin(key []byte) error {
	if r.calls++; r.broken {
		return errors.New("no space left on device")
	}
	return r.ring.Begin(key)
}

func (r *brokenRing) Append(record []byte, durable bool) error {
	if r.calls++; r.broken {
		return errors.New("no space left on device")
	}
	return r.ring.Append(record, durable)
}

func TestEvictionsOfWhileTheDiskIsFullAreWrittenLater(t *testing.T) {
	dir := t.TempDir()
	var e evictions
	take := func(seconds int) error { return e.take(dir, &control.Report{At: at(seconds).Time}) }
	require.NoError(t, take(0))
	disk := &brokenRing{ring: e.ring, broken: true}
	e.ring = disk
	faults := 0
	for seconds := range 100 {
		if seconds < 10 {
			e.announce(evictionOf(ByKubelet, fmt.Sprint("pod-", seconds), "memory", 1+seconds))
		}
		if take(1+seconds) != nil {
			faults++
		}
	}
	if faults != 2 || disk.calls != 2 {
		t.Errorf("%d faults, %d writes in 100 s; expected a try a minute", faults, disk.calls)
	}
	disk.broken = false
	require.NoError(t, take(200))
	h, err := ReadEvictions(dir)
	require.NoError(t, err)
	if len(h.Evictions) != 10 {
		t.Errorf("%d evictions are kept; expected 10", len(h.Evictions))
	}
}

// rule: S9.19
func TestTheLastEvictionsAreKept(t *testing.T) {
	dir := t.TempDir()
	f := fly(t, t.TempDir())
	f.recorder.cfg.Evictions = dir
	const more = 3
	for n := range 4*keptEvictions + more {
		if n%100 == 0 {
			f.pass(n, eviction.Housekeeping, 500)
		}
		e := evictionOf(ByKubelet, fmt.Sprintf("%0250d", n), string(v1.ResourceMemory), n)
		e.UID = types.UID(fmt.Sprintf("%036d", n))
		f.recorder.Evicted(e)
	}
	f.pass(4*keptEvictions+more, eviction.Housekeeping, 500)
	h, err := ReadEvictions(dir)
	require.NoError(t, err)
	if n := len(h.Evictions); n != keptEvictions || !h.Since.Equal(h.Evictions[0].At.Add(-time.Second)) || !h.Evictions[n-1].At.Equal(at(4*keptEvictions+more-1).Time) {
		t.Errorf("%d evictions since %v; expected the last %d", n, h.Since, keptEvictions)
	}
}
