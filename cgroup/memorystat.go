package cgroup

import (
	"bytes"
	"math"
	"os"

	"github.com/evictd/evictd/stats"
)

// memoryStat is what is used of memory.stat: bytes, and events, each of which is of a page.
type memoryStat struct {
	inactiveFile, activeFile, slabReclaimable, shmem, refaults stats.Amount
	anonRefaults                                               stats.Amount // since Linux 5.9
	swapIns                                                    stats.Amount // v2 since Linux 6.13
	swap                                                       stats.Amount // v1, with swap accounting
}

var pageSize = int64(os.Getpagesize())

// bytesOf is how much memory pages have.
func bytesOf(pages stats.Amount) stats.Amount {
	n, known := pages.Get()
	if !known || n > math.MaxInt64/pageSize {
		return stats.Amount{}
	}
	return stats.Known(n * pageSize)
}

// readBack are the events of pages that were read back. A page that was swapped in is a refault, too, if the kernel still knows when
// it was swapped out.
func (s *memoryStat) readBack() stats.Amount {
	if !s.refaults.IsKnown() {
		return stats.Amount{}
	}
	return stats.Known(s.refaults.Or(0) + max(s.anonRefaults.Or(0), s.swapIns.Or(0)))
}

// parseMemoryStat reads memory.stat of a group and everything below it. On v1 these are
// the keys with the prefix total_; the others are of the group alone.
func parseMemoryStat(b []byte, v Version, s *memoryStat) {
	for len(b) > 0 {
		var line []byte
		line, b = cutLine(b)
		if v == V1 {
			var total bool
			if line, total = bytes.CutPrefix(line, []byte("total_")); !total {
				continue
			}
		}
		key, value, ok := bytes.Cut(line, []byte{' '})
		if !ok {
			continue
		}
		if field := s.field(key); field != nil {
			*field = amount(value)
		}
	}
}

// field is a switch because the compiler searches it without allocating or
// hashing; this runs for some forty lines a group.
func (s *memoryStat) field(key []byte) *stats.Amount {
	switch string(key) {
	case "inactive_file":
		return &s.inactiveFile
	case "active_file":
		return &s.activeFile
	case "shmem":
		return &s.shmem
	case "swap":
		return &s.swap
	case "slab_reclaimable":
		return &s.slabReclaimable
	case "workingset_refault_file", "workingset_refault": // the latter before Linux 5.9
		return &s.refaults
	case "workingset_refault_anon":
		return &s.anonRefaults
	case "pswpin":
		return &s.swapIns
	}
	return nil
}

// parseVMStat reads what /proc/vmstat has of reclaim on the machine.
func parseVMStat(vmstat []byte, m *stats.Memory) {
	var s memoryStat
	for len(vmstat) > 0 {
		var line []byte
		line, vmstat = cutLine(vmstat)
		key, value, ok := bytes.Cut(line, []byte{' '})
		if !ok {
			continue
		}
		switch string(key) {
		case "pgsteal_kswapd", "pgsteal_direct":
			m.Stolen = stats.Sum(m.Stolen, amount(value))
		default:
			if field := s.field(key); field != nil {
				*field = amount(value)
			}
		}
	}
	m.Refaulted, m.ReadBack, m.Stolen = bytesOf(s.refaults), bytesOf(s.readBack()), bytesOf(m.Stolen)
}
