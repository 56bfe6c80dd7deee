package cgroup

import (
	"errors"
	"os"
	"testing"

	"github.com/evictd/evictd/internal/require"
	"github.com/evictd/evictd/stats"
)

// rule: M.144
func TestMemoryIsReclaimedFromAGroup(t *testing.T) {
	s, group := realGroup(t, bounded())
	file, ok := s.MemoryReclaimFile(group)
	if s.Version() == V1 {
		if ok || !errors.Is(s.ReclaimMemory(group, 1<<20), errors.ErrUnsupported) {
			t.Errorf("cgroup v1 has %q", file)
		}
		return
	}
	if _, err := os.Stat(file); errors.Is(err, os.ErrNotExist) {
		if err := s.ReclaimMemory(group, 1<<20); !errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("before Linux 5.19: %v", err)
		}
		t.Skip("skipped: needs memory.reclaim, Linux 5.19")
	}
	const cached = 32 << 20
	data := require.FileOnDisk(t, cached)
	m := join(t, s, group)
	m.do(t, "cat "+data+" >/dev/null")
	before, err := s.ReclaimState(group)
	require.NoError(t, err)
	if cache := before.PageCache.Or(0); cache < cached*3/4 || before.Usage.Or(0) < cache || !before.Refaulted.IsKnown() {
		t.Errorf("after a file of %d bytes was read: %+v", cached, before)
	}
	if err := s.ReclaimMemory(group, cached/2); err != nil {
		t.Errorf("reclaim a half: %v", err)
	}
	after, err := s.ReclaimState(group)
	require.NoError(t, err)
	if gone := before.PageCache.Minus(after.PageCache).Or(0); gone < cached/4 {
		t.Errorf("%d bytes of page cache are gone", gone)
	}
	if err := s.ReclaimMemory(group, 1<<40); !errors.Is(err, ErrReclaimedLess) {
		t.Errorf("reclaim more than there is: %v", err)
	}
	for what, err := range map[string]error{"reclaim": s.ReclaimMemory(group+"/none", 1<<20), "read": func() error { _, err := s.ReclaimState(group + "/none"); return err }()} {
		if !errors.Is(err, ErrGone) {
			t.Errorf("%s of a group that does not exist: %v", what, err)
		}
	}
}

// rule: M.167
func TestThePageCacheOfAGroupWithoutProcessesIsFreed(t *testing.T) {
	s, group := realGroup(t, bounded())
	const cached = 32 << 20
	data := require.FileOnDisk(t, cached)
	m := join(t, s, group)
	m.do(t, "cat "+data+" "+data+" >/dev/null")
	cache := func() int64 {
		g, err := s.Open(group)
		require.NoError(t, err)
		defer g.Close()
		var memory stats.Memory
		require.NoError(t, g.Memory(&memory))
		return memory.InactiveFile.Plus(memory.ActiveFile).Or(0)
	}
	require.NoError(t, s.FreeMemory(t.Context(), group))
	if cache() < cached*3/4 {
		t.Errorf("%d bytes of page cache are left of a group with a process", cache())
	}
	m.end()
	err := s.FreeMemory(t.Context(), group)
	if errors.Is(err, errors.ErrUnsupported) {
		t.Skip("skipped: needs memory.reclaim, Linux 5.19")
	}
	require.NoError(t, err)
	if cache() > cached/4 {
		t.Errorf("%d bytes of page cache are left of a group without a process", cache())
	}
	if err := s.FreeMemory(t.Context(), group+"/none"); !errors.Is(err, ErrGone) {
		t.Errorf("of a group that does not exist: %v", err)
	}
}
