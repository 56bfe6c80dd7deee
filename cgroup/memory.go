package cgroup

import (
	"fmt"
	"os"
	"path"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/evictd/evictd/stats"
)

// The files of the memory controller, by version.
var (
	usageFile = [...]string{V1: "memory.usage_in_bytes\x00", V2: "memory.current\x00"}
	limitFile = [...]string{V1: "memory.limit_in_bytes\x00", V2: "memory.max\x00"}
	noLimit   = [...]string{V1: "-1", V2: "max"}
)

// refaultsAge is how old Refaulted, ReadBack and Stolen of the root of v2 may be: they are compared over a
// second and more, and /proc/vmstat takes longer to read than all other files.
const refaultsAge = 100 * time.Millisecond

// Memory reads the memory of the group and everything below it. For the root the limit
// is MemTotal, and reclaimable slab and MemAvailable are those of /proc/meminfo. A
// value that the kernel does not have is unknown.
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
			g.reclaimed = stats.Memory{}
			parseVMStat(b, &g.reclaimed)
			g.refaulted, err = now, g.fault("read /proc/vmstat for the top", err)
		}
		read.Refaulted, read.ReadBack, read.Stolen = g.reclaimed.Refaulted, g.reclaimed.ReadBack, g.reclaimed.Stolen
	}
	if err == nil {
		err = g.refresh(&read, &stat)
	}
	if err == nil {
		*m = read
		g.last.Memory, g.last.Time = read, time.Now()
	}
	return err
}

// LimitsAbove are the memory limits of the groups above a group, as far as they can be seen. The zero
// value has none.
type LimitsAbove struct{ files []File }

// LimitsAbove opens the limits of the groups above one. The top of the hierarchy has none.
func (s *System) LimitsAbove(group string) (above LimitsAbove) {
	name := strings.TrimSuffix(limitFile[s.version], "\x00")
	for at := path.Join("/", group); at != "/"; {
		at = path.Dir(at)
		if f, err := OpenFile(path.Join(s.dir(memory, at), name)); err == nil {
			above.files = append(above.files, f)
		}
	}
	return above
}

// Least is the least of the limits, bytes; unknown without one. It allocates nothing.
func (l *LimitsAbove) Least() (least stats.Amount) {
	var buf [32]byte
	for i := range l.files {
		if b, err := l.files[i].Read(buf[:]); err == nil {
			least = least.Least(amount(b))
		}
	}
	return least
}

// Close closes the files.
func (l *LimitsAbove) Close() {
	for i := range l.files {
		l.files[i].Close()
	}
	l.files = nil
}

// cacheAge is how old the page cache of MemoryFar may be.
const cacheAge = 10 * time.Second

// MemoryFar is Memory where no more than spare bytes of the limit are unused, by usage alone.
// Where more are, a threshold below spare cannot be crossed, whatever the page cache is: of a v2
// group it may then be as of an earlier call. The kernel sums up memory.stat over all groups
// below and all processors each time it is read.
func (g *Group) MemoryFar(m *stats.Memory, spare int64) error {
	if g.version == V2 && !g.top && !g.last.Time.IsZero() && time.Since(g.last.Time) < cacheAge {
		var buf [32]byte
		usage, err := g.Usage()
		if err != nil {
			return err
		}
		b, err := readKept(&g.limit, g.dirs[memory], limitFile[g.version], buf[:])
		if err != nil {
			return g.fault("read memory limit", err)
		}
		limit := amount(b)
		if unused, known := limit.Minus(usage).Get(); known && unused > spare {
			*m = g.last.Memory
			m.Usage, m.Limit = usage, limit
			return nil
		}
	}
	return g.Memory(m)
}

// machine fills m from /proc/meminfo for the root. The root of v2 has no
// memory.current; the kubelet uses anon + file of its memory.stat. The kernel sums that
// file over all groups; /proc/meminfo has the same figures of the machine, which differ
// by the pages of the per-CPU charge batches.
func (g *Group) machine(m *stats.Memory) error {
	var buf [readSize]byte
	b, err := g.meminfo.Read(buf[:])
	if err != nil {
		return g.fault("read /proc/meminfo for the top", err)
	}
	info := parseMeminfo(b)
	m.Limit, m.SlabReclaimable = info.total, info.slabReclaimable
	m.MemAvailable, m.Hugetlb, m.MemFree = info.available, info.hugetlb, info.free
	if g.version == V2 {
		m.Usage, m.InactiveFile, m.ActiveFile = info.anon.Plus(info.file), info.inactiveFile, info.activeFile
	}
	return nil
}

// WorkingSet reads the group's memory in use as the kubelet counts it, in bytes:
// It reads two files less than Memory.
func (g *Group) WorkingSet() (stats.Amount, error) {
	var m stats.Memory
	err := g.usageAndStat(&m, &memoryStat{})
	return m.WorkingSet(), err
}

// PodMemory reads the working set of a pod's group, what it has in swap, both in bytes, and the pages that it
// has read back. Swap is that of memory.stat (v1, memsw less memory) or memory.swap.current (v2), unknown
// without swap accounting.
func (g *Group) PodMemory(p *stats.Pod) error {
	var m stats.Memory
	var stat memoryStat
	err := g.usageAndStat(&m, &stat)
	p.Memory, p.Swap, p.ReadBack = m.WorkingSet(), stat.swap, m.ReadBack
	if err != nil || g.version == V1 || g.top {
		return err
	}
	var buf [32]byte
	b, err := readKept(&g.swap, g.dirs[memory], "memory.swap.current\x00", buf[:])
	p.Swap = amount(b)
	return g.fault("read memory.swap.current", err)
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

// usageAndStat fills m and stat from memory.stat and memory.usage_in_bytes or
// memory.current.
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
	m.SlabReclaimable, m.Refaulted, m.ReadBack = stat.slabReclaimable, bytesOf(stat.refaults), bytesOf(stat.readBack())
	m.Usage, err = g.Usage()
	return err
}

// SetMemoryLimit limits the memory of the group and everything below it, in bytes; an
// unknown amount removes the limit. On v1 the error is EBUSY where the kernel cannot
// reclaim down to the limit.
func (g *Group) SetMemoryLimit(limit stats.Amount) error {
	value := noLimit[g.version]
	if n, limited := limit.Get(); limited {
		value = strconv.FormatInt(n, 10)
	}
	return g.fault("limit memory", write(g.dirs[memory], limitFile[g.version], value, errNoSuchFile))
}

// OOMKills reads how many processes of a group, and of the existing groups below it,
// the OOM killer has killed (memory.events of v2; memory.oom_control of v1, where each
// group counts its own); unknown where v1 has more than maxGroups groups. The error is ErrGone where the group does not exist.
func (s *System) OOMKills(group string) (kills stats.Amount, err error) {
	dir, err := unix.Open(s.dir(memory, group), unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return stats.Amount{}, openFault(group, err)
	}
	defer unix.Close(dir)
	if s.version == V1 {
		t := tally{most: maxGroups, keys: [5]string{"oom_kill"}}
		if err = t.walk(dir, "memory.oom_control\x00"); !t.cut {
			kills = stats.Known(t.sums[0])
		}
	} else {
		var buf [readSize]byte
		var b []byte
		b, err = readOnce(dir, "memory.events\x00", buf[:])
		kills = flat(b, "oom_kill")
	}
	if err != nil {
		return stats.Amount{}, fmt.Errorf("read out-of-memory kills of cgroup %s: %w", group, err)
	}
	return kills, nil
}

// OOMKills reads how many processes of the machine the OOM killer has killed since boot
// (oom_kill of /proc/vmstat, Linux 4.13); unknown on older kernels.
func OOMKills() stats.Amount {
	b, err := os.ReadFile("/proc/vmstat")
	if err != nil {
		return stats.Amount{}
	}
	return flat(b, "oom_kill")
}
