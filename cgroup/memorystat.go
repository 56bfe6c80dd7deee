package cgroup

import (
	"bytes"

	"github.com/evictd/evictd/stats"
)

// memoryStat is what is used of memory.stat: bytes, and events.
type memoryStat struct {
	inactiveFile, activeFile, slabReclaimable, shmem, refaults stats.Amount
	swap                                                       stats.Amount // v1, with swap accounting
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
	}
	return nil
}

// refaults reads the refaults of the machine from /proc/vmstat.
func refaults(vmstat []byte) stats.Amount {
	if n := flat(vmstat, "workingset_refault_file"); n.IsKnown() {
		return n
	}
	return flat(vmstat, "workingset_refault")
}
