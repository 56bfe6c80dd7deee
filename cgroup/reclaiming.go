package cgroup

import "github.com/evictd/evictd/stats"

// standing is what a v1 group showed when its memory.stat was first seen as it is.
type standing struct {
	failcnt      File
	fails, usage stats.Amount
	stat         memoryStat
}

// drift is how far usage may move, bytes, before memory.stat must have, too.
const drift = 1 << 20

// refresh corrects the inactive page cache of a group whose memory.stat stands
// still although its memory does not.
//
// On v1 the totals of memory.stat may be up to two seconds old (seen on Linux
// 6.18): the kernel adds up what the groups below have changed when it deems that
// to be much, and else every two seconds. A group whose cache grows then counts it
// as used, and one at its limit, whose cache makes way for anonymous memory, counts
// as having it available until it is out of memory. Each group's own figures are
// fresh.
func (g *Group) refresh(m *stats.Memory, stat *memoryStat) error {
	if g.version != V1 || g.top {
		return nil
	}
	if limit, limited := m.Limit.Get(); limited && m.Usage.Or(0) < limit/2 { // what shows a little late does not matter there
		return nil
	}
	now := standing{failcnt: g.standing.failcnt, usage: m.Usage, stat: *stat}
	if limit, limited := m.Limit.Get(); limited && m.Usage.Or(0) >= limit-limit/64 {
		var buf [32]byte
		b, err := readKept(&now.failcnt, g.dirs[memory], "memory.failcnt\x00", buf[:])
		if err != nil {
			return g.fault("read memory.failcnt", err)
		}
		now.fails = amount(b)
	}
	if *stat != g.standing.stat {
		g.standing = now
		return nil
	}
	g.standing.failcnt = now.failcnt
	if !g.standing.fails.IsKnown() {
		g.standing.fails = now.fails
	}
	moved := m.Usage.Or(0) - g.standing.usage.Or(0)
	if moved < drift && moved > -drift && (now.fails == g.standing.fails || !now.fails.IsKnown()) {
		return nil
	}
	t := tally{key: "inactive_file"}
	if err := t.walk(g.dirs[memory], "memory.stat\x00", 0); err != nil {
		return g.fault("read memory.stat below", err)
	}
	m.InactiveFile = stats.Known(t.sum)
	return nil
}
