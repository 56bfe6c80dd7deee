package cgroup

import (
	"os"
	"strconv"
	"time"

	"github.com/evictd/evictd/stats"
)

// The files of the memory controller, by version.
var (
	usageFile = [...]string{V1: "memory.usage_in_bytes\x00", V2: "memory.current\x00"}
	limitFile = [...]string{V1: "memory.limit_in_bytes\x00", V2: "memory.max\x00"}
	noLimit   = [...]string{V1: "-1", V2: "max"}
)

// refaultsAge is how old Refaults of the top of v2 may be: who judges by them looks
// at a second and more, and the kernel takes longer to tell them than all the rest.
const refaultsAge = 100 * time.Millisecond

// Memory reads the memory of the group and of everything below it. For the top of
// the hierarchy the limit is MemTotal, and the reclaimable slab and MemAvailable
// come from /proc/meminfo. What the kernel does not tell stays unknown.
func (g *Group) Memory(m *stats.Memory) error {
	*m = stats.Memory{}
	read := stats.Memory{}
	var stat memoryStat
	err := g.usageAndStat(&read, &stat)
	var buf [readSize]byte
	switch {
	case err != nil:
	case !g.top:
		var b []byte
		b, err = readKept(&g.limit, g.dirs[memory], limitFile[g.version], buf[:])
		read.Limit, err = amount(b), g.fault("read memory limit", err)
	case g.version == V1:
		err = g.machine(&read)
	default:
		if now := time.Now(); now.Sub(g.refaulted) > refaultsAge {
			var b []byte
			b, err = g.vmstat.Read(buf[:])
			g.refaults, g.refaulted, err = refaults(b), now, g.fault("read /proc/vmstat for the top", err)
		}
		read.Refaults = g.refaults
	}
	if err == nil {
		err = g.refresh(&read, &stat)
	}
	if err == nil {
		*m = read
	}
	return err
}

// machine fills what /proc/meminfo tells of the top. That of a v2 hierarchy has no
// memory.current, and the kubelet takes anon + file of its memory.stat. To tell
// these the kernel adds up what all groups below have changed, here it tells the
// same of the machine; where pages are charged in batches the two differ a little.
func (g *Group) machine(m *stats.Memory) error {
	var buf [readSize]byte
	b, err := g.meminfo.Read(buf[:])
	if err != nil {
		return g.fault("read /proc/meminfo for the top", err)
	}
	info := parseMeminfo(b)
	m.Limit, m.SlabReclaimable = info.total, info.slabReclaimable
	m.MemAvailable, m.Hugetlb = info.available, info.hugetlb
	if g.version == V2 {
		m.Usage, m.InactiveFile, m.ActiveFile = info.anon.Plus(info.file), info.inactiveFile, info.activeFile
	}
	return nil
}

// WorkingSet reads the group's memory in use as the kubelet counts it, in bytes:
// two files less than Memory.
func (g *Group) WorkingSet() (stats.Amount, error) {
	var m stats.Memory
	err := g.usageAndStat(&m, &memoryStat{})
	return m.WorkingSet(), err
}

// Usage reads the group's memory usage alone, in bytes, page cache included.
func (g *Group) Usage() (stats.Amount, error) {
	if g.top && g.version == V2 { // it has no memory.current
		var m stats.Memory
		err := g.usageAndStat(&m, &memoryStat{})
		return m.Usage, err
	}
	var buf [32]byte
	b, err := readKept(&g.usage, g.dirs[memory], usageFile[g.version], buf[:])
	return amount(b), g.fault("read memory usage", err)
}

// usageAndStat fills what memory.usage_in_bytes or memory.current, and
// memory.stat, tell.
func (g *Group) usageAndStat(m *stats.Memory, stat *memoryStat) error {
	if g.top && g.version == V2 {
		return g.machine(m)
	}
	var buf [readSize]byte
	b, err := readKept(&g.stat, g.dirs[memory], "memory.stat\x00", buf[:])
	if err != nil {
		return g.fault("read memory.stat", err)
	}
	parseMemoryStat(b, g.version, stat)
	m.InactiveFile, m.ActiveFile = stat.inactiveFile, stat.activeFile
	m.SlabReclaimable, m.Refaults = stat.slabReclaimable, stat.refaults
	m.Usage, err = g.Usage()
	return err
}

// SetMemoryLimit limits the memory of the group and of everything below it, in
// bytes; an unknown amount takes the limit off. On v1 the kernel refuses a limit
// that it cannot reclaim down to (EBUSY).
func (g *Group) SetMemoryLimit(limit stats.Amount) error {
	value := noLimit[g.version]
	if n, limited := limit.Get(); limited {
		value = strconv.FormatInt(n, 10)
	}
	return g.fault("limit memory", write(g.dirs[memory], limitFile[g.version], value, errNoSuchFile))
}

// OOMKills reads how many processes of the group, and of those below it that still
// exist, the kernel has killed for want of memory (memory.events of v2,
// memory.oom_control of v1, where each group counts its own).
func (g *Group) OOMKills() (stats.Amount, error) {
	if g.version == V1 {
		t := tally{keys: [5]string{"oom_kill"}}
		err := t.walk(g.dirs[memory], "memory.oom_control\x00", 0)
		if err != nil {
			return stats.Amount{}, g.fault("read out-of-memory kills", err)
		}
		return stats.Known(t.sums[0]), nil
	}
	var buf [readSize]byte
	b, err := readOnce(g.dirs[memory], "memory.events\x00", buf[:])
	return flat(b, "oom_kill"), g.fault("read out-of-memory kills", err)
}

// OOMKills reads how many processes of the machine, in whatever group, the kernel has
// killed for want of memory since it was started (/proc/vmstat, Linux 4.13); unknown
// where it does not tell.
func OOMKills() stats.Amount {
	b, err := os.ReadFile("/proc/vmstat")
	if err != nil {
		return stats.Amount{}
	}
	return flat(b, "oom_kill")
}
