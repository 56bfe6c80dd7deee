package cgroup

import (
	"bytes"

	"github.com/evictd/evictd/stats"
)

// meminfo is what is used of /proc/meminfo, bytes.
type meminfo struct {
	total, available, slabReclaimable, hugetlb stats.Amount
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
		case "MemAvailable":
			m.available = kilobytes(value)
		case "SReclaimable":
			m.slabReclaimable = kilobytes(value)
		case "Hugetlb": // all sizes, since Linux 4.20
			m.hugetlb = kilobytes(value)
		}
	}
	return m
}

func kilobytes(value []byte) stats.Amount {
	digits, ok := bytes.CutSuffix(bytes.TrimSpace(value), []byte(" kB"))
	n, isNumber := number(digits)
	if !ok || !isNumber || n > unlimited/1024 {
		return stats.Amount{}
	}
	return stats.Known(n * 1024)
}
