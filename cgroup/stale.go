package cgroup

import (
	"time"

	"github.com/evictd/evictd/stats"
)

// statSnapshot is the state of a v1 group when the present content of its memory.stat was
// first read.
type statSnapshot struct {
	failcnt      File
	fails, usage stats.Amount
	stat         memoryStat
	moved        time.Time // when usage was first seen changed; zero before
}

const (
	// drift is the change of usage, bytes, after which an unchanged memory.stat is stale.
	drift = 1 << 20
	// settled is how long after a change of usage an unchanged memory.stat is taken as
	// correct: kernel memory changes usage and not memory.stat.
	settled = 5 * time.Second
)

// refresh corrects the page cache of a v1 group whose memory.stat is stale.
//
// The totals of memory.stat on v1 may be up to two seconds old (Linux 6.18): the kernel
// sums the groups below every two seconds, or earlier after many changes. Page cache
// read since then counts as used, and cache reclaimed since then as available, up to an
// OOM kill. The figures of each single group are exact: they are summed where usage has
// changed since, and where the totals have most of the memory as used.
func (g *Group) refresh(m *stats.Memory, stat *memoryStat) error {
	if g.version != V1 || g.top {
		return nil
	}
	limit, limited := m.Limit.Get()
	if !limited {
		return nil
	}
	usage := m.Usage.Or(0)
	now := statSnapshot{failcnt: g.seen.failcnt, usage: m.Usage, stat: *stat}
	if usage >= limit-limit/64 {
		var buf [32]byte
		b, err := readKept(&now.failcnt, g.dirs[memory], "memory.failcnt\x00", buf[:])
		if err != nil {
			return g.fault("read memory.failcnt", err)
		}
		now.fails = amount(b)
	}
	stale := g.seen.stale(&now) && usage >= limit/2
	if stale || m.WorkingSet().Or(0) >= limit-limit/4 {
		inactive, active, err := g.cache(m, stat, stale)
		if err != nil {
			return err
		}
		reported := m.InactiveFile.Or(0)
		if stale || inactive > reported || inactive+active > reported+m.ActiveFile.Or(0) {
			m.InactiveFile, m.ActiveFile = stats.Known(inactive), stats.Known(active)
		}
	}
	if now.stat != g.seen.stat || !g.seen.moved.IsZero() && time.Since(g.seen.moved) > settled {
		g.seen = now
	}
	return nil
}

// cache sums the inactive and active file pages, bytes, of the group, of those below
// it, and of removed groups: their page cache stays charged to the groups above until
// it is reclaimed, and no file reports it. It is the usage minus page cache, anonymous
// memory and kernel memory of all existing groups, and minus shared memory that is in
// the totals but in no group. The active part is as in the totals. Where the totals are
// stale and lower, the rest counts as inactive, up to the inactive part of the totals.
func (g *Group) cache(m *stats.Memory, stat *memoryStat, stale bool) (inactive, active int64, err error) {
	var buf [32]byte
	kernel, err := readOnce(g.dirs[memory], "memory.kmem.usage_in_bytes\x00", buf[:])
	t := tally{most: maxGroups, keys: [...]string{"cache", "rss", "shmem", "inactive_file", "active_file"}}
	if err == nil {
		err = t.walk(g.dirs[memory], "memory.stat\x00")
	}
	if err != nil {
		return 0, 0, g.fault("read memory.stat below", err)
	}
	if t.cut { // too many to sum: the totals stand
		return m.InactiveFile.Or(0), m.ActiveFile.Or(0), nil
	}
	held, shared := stats.Known(t.sums[0]+t.sums[1]), stats.Known(t.sums[2])
	removed := m.Usage.Minus(amount(kernel)).Minus(held).Minus(stat.shmem.Minus(shared)).Or(0)
	inactive, active = t.sums[3], t.sums[4]
	reported := m.InactiveFile.Or(0)
	unused := min(removed, max(0, reported-inactive))
	used := min(removed-unused, max(0, m.ActiveFile.Or(0)-active))
	if stale {
		unused += min(removed-unused-used, reported)
	}
	return inactive + unused, active + used, nil
}

// stale says whether usage has changed since the present content of memory.stat was
// first read, and stores what the next call compares with.
func (s *statSnapshot) stale(now *statSnapshot) bool {
	if now.stat != s.stat {
		return false
	}
	s.failcnt = now.failcnt
	if !s.fails.IsKnown() {
		s.fails = now.fails
	}
	moved := now.usage.Or(0) - s.usage.Or(0)
	if moved < drift && moved > -drift && (now.fails == s.fails || !now.fails.IsKnown()) {
		return false
	}
	if s.moved.IsZero() {
		s.moved = time.Now()
	}
	return true
}
