package cgroup

import (
	"time"

	"github.com/evictd/evictd/stats"
)

// standing is what a v1 group showed when its memory.stat was first seen as it is.
type standing struct {
	failcnt      File
	fails, usage stats.Amount
	stat         memoryStat
	moved        time.Time // since when usage is elsewhere; zero while it is not
}

const (
	// drift is how far usage may move, bytes, before memory.stat must have, too.
	drift = 1 << 20
	// settled is how long after usage has moved memory.stat is as it should be, though
	// it has not: by kernel memory, which it does not tell.
	settled = 5 * time.Second
)

// refresh corrects the page cache of a group whose memory.stat stands still although
// its memory does not.
//
// On v1 the totals of memory.stat may be up to two seconds old (seen on Linux
// 6.18): the kernel adds up what the groups below have changed when it deems that
// to be much, and else every two seconds. A group whose cache grows then counts it
// as used, and one at its limit, whose cache makes way for anonymous memory, counts
// as having it available until it is out of memory. Each group's own figures are
// fresh: they are added up where usage has moved since, and where the totals would
// have most of the memory used.
func (g *Group) refresh(m *stats.Memory, stat *memoryStat) error {
	if g.version != V1 || g.top {
		return nil
	}
	limit, limited := m.Limit.Get()
	if !limited {
		return nil
	}
	usage := m.Usage.Or(0)
	now := standing{failcnt: g.standing.failcnt, usage: m.Usage, stat: *stat}
	if usage >= limit-limit/64 {
		var buf [32]byte
		b, err := readKept(&now.failcnt, g.dirs[memory], "memory.failcnt\x00", buf[:])
		if err != nil {
			return g.fault("read memory.failcnt", err)
		}
		now.fails = amount(b)
	}
	stale := g.standing.stale(&now) && usage >= limit/2
	if stale || m.WorkingSet().Or(0) >= limit-limit/4 {
		inactive, active, err := g.cache(m, stat, stale)
		if err != nil {
			return err
		}
		told := m.InactiveFile.Or(0)
		if stale || inactive > told || inactive+active > told+m.ActiveFile.Or(0) {
			m.InactiveFile, m.ActiveFile = stats.Known(inactive), stats.Known(active)
		}
	}
	if now.stat != g.standing.stat || !g.standing.moved.IsZero() && time.Since(g.standing.moved) > settled {
		g.standing = now
	}
	return nil
}

// cache adds up the inactive and active file pages, bytes, of the group, of those
// below it, and of those that were below it and are removed: what they read stays
// charged to the groups above them until it is reclaimed, and no file of theirs is
// left to tell of it. It is what usage has that the groups do not: neither page
// cache and anonymous memory of one that is there, nor kernel memory, which goes
// to the group above when one is removed, nor shared memory that the totals tell
// of and no group has. How much of it is active is as the totals have it; where
// they are stale and have less, as groups have read since, the rest counts as
// inactive, up to all that was.
func (g *Group) cache(m *stats.Memory, stat *memoryStat, stale bool) (inactive, active int64, err error) {
	var buf [32]byte
	kernel, err := readOnce(g.dirs[memory], "memory.kmem.usage_in_bytes\x00", buf[:])
	t := tally{keys: [...]string{"cache", "rss", "shmem", "inactive_file", "active_file"}}
	if err == nil {
		err = t.walk(g.dirs[memory], "memory.stat\x00", 0)
	}
	if err != nil {
		return 0, 0, g.fault("read memory.stat below", err)
	}
	held, shared := stats.Known(t.sums[0]+t.sums[1]), stats.Known(t.sums[2])
	removed := m.Usage.Minus(amount(kernel)).Minus(held).Minus(stat.shmem.Minus(shared)).Or(0)
	inactive, active = t.sums[3], t.sums[4]
	told := m.InactiveFile.Or(0)
	unused := min(removed, max(0, told-inactive))
	used := min(removed-unused, max(0, m.ActiveFile.Or(0)-active))
	if stale {
		unused += min(removed-unused-used, told)
	}
	return inactive + unused, active + used, nil
}

// stale says whether memory has moved since memory.stat was first seen as it is
// now, and keeps what is to be known of that the next time.
func (s *standing) stale(now *standing) bool {
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
