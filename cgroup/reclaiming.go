package cgroup

import "github.com/evictd/evictd/stats"

// reclaiming is what a v1 group that is at its limit showed when it was last read.
type reclaiming struct {
	failcnt File
	fails   stats.Amount
	stat    memoryStat
}

// refresh corrects the inactive page cache of a group that is being reclaimed from.
//
// On v1 the totals of memory.stat may stand still then, for up to two seconds
// (seen on Linux 6.18): the kernel adds up what the groups below have changed when
// it deems that to be much, and else every two seconds. A group at its limit whose
// cache makes way for anonymous memory shows the cache as it was, and counts as
// having it available until it is out of memory. Each group's own figures are fresh.
func (g *Group) refresh(m *stats.Memory, stat *memoryStat) error {
	usage, limit := m.Usage.Or(0), m.Limit.Or(0)
	if g.version != V1 || g.top || limit == 0 || usage < limit-limit/64 {
		return nil
	}
	var buf [32]byte
	b, err := readKept(&g.reclaiming.failcnt, g.dirs[memory], "memory.failcnt\x00", buf[:])
	if err != nil {
		return g.fault("read memory.failcnt", err)
	}
	fails, before := amount(b), g.reclaiming
	g.reclaiming.fails, g.reclaiming.stat = fails, *stat
	if fails == before.fails || *stat != before.stat {
		return nil
	}
	t := tally{key: "inactive_file"}
	if err := t.walk(g.dirs[memory], "memory.stat\x00", 0); err != nil {
		return g.fault("read memory.stat below", err)
	}
	m.InactiveFile = stats.Known(min(m.InactiveFile.Or(0), t.sum))
	return nil
}
