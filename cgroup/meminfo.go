package cgroup

import (
	"bytes"

	"github.com/evictd/evictd/stats"
)

// meminfo is what is used of /proc/meminfo, bytes. File is all of the page cache,
// as memory.stat counts it.
type meminfo struct {
	total, free, available, slabReclaimable, hugetlb stats.Amount
	anon, file, inactiveFile, activeFile             stats.Amount
}

// parseMeminfo reads the "Key:   N kB" lines of /proc/meminfo (proc(5)).
func parseMeminfo(b []byte) (m meminfo) {
	for len(b) > 0 {
		var line []byte
		line, b = cutLine(b)
		key, value, ok := bytes.Cut(line, []byte(":"))
		if !ok {
			continue
		}
		switch string(key) {
		case "MemTotal":
			m.total = kilobytes(value)
		case "MemFree":
			m.free = kilobytes(value)
		case "MemAvailable":
			m.available = kilobytes(value)
		case "SReclaimable":
			m.slabReclaimable = kilobytes(value)
		case "Hugetlb": // all sizes, since Linux 4.20
			m.hugetlb = kilobytes(value)
		case "AnonPages":
			m.anon = kilobytes(value)
		case "Cached", "Buffers", "SwapCached": // disjoint parts of it
			m.file = stats.Sum(m.file, kilobytes(value))
		case "Inactive(file)":
			m.inactiveFile = kilobytes(value)
		case "Active(file)":
			m.activeFile = kilobytes(value)
		}
	}
	return m
}

// ParseSwap reads SwapTotal and SwapFree of /proc/meminfo, and MemTotal before them.
func ParseSwap(meminfo []byte) (s stats.Swap, memory stats.Amount) {
	for len(meminfo) > 0 && !(s.Total.IsKnown() && s.Free.IsKnown()) {
		var line []byte
		line, meminfo = cutLine(meminfo)
		if value, ok := bytes.CutPrefix(line, []byte("MemTotal:")); ok {
			memory = kilobytes(value)
		} else if value, ok := bytes.CutPrefix(line, []byte("SwapTotal:")); ok {
			s.Total = kilobytes(value)
		} else if value, ok := bytes.CutPrefix(line, []byte("SwapFree:")); ok {
			s.Free = kilobytes(value)
		}
	}
	return s, memory
}

func kilobytes(value []byte) stats.Amount {
	digits, ok := bytes.CutSuffix(bytes.TrimSpace(value), []byte(" kB"))
	n, isNumber := number(digits)
	if !ok || !isNumber || n > unlimited/1024/4 { // so that some can be added up
		return stats.Amount{}
	}
	return stats.Known(n * 1024)
}
