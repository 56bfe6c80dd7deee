package cgroup

import (
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// Room is how many more groups of pods may stay open between two uses. The process keeps a part of the descriptors that
// it may open (RLIMIT_NOFILE) for its own sources, for the processes of victims and for readers, however many
// pods a node has.
type Room struct{ left atomic.Int64 }

const (
	groupDescriptors = 10      // at most: five directories of v1, and the files that are read at each look
	ownDescriptors   = 16_384  // are kept for everything else, or half where fewer than twice as many may be opened
	anyDescriptors   = 1 << 20 // without a limit
)

func newRoom() *Room {
	limit := unix.Rlimit{Cur: anyDescriptors}
	_ = unix.Getrlimit(unix.RLIMIT_NOFILE, &limit) // fails for no process
	return roomOf(int64(min(limit.Cur, anyDescriptors)))
}

// roomOf is the room where a process may open so many descriptors.
func roomOf(descriptors int64) *Room {
	r := &Room{}
	r.left.Store((descriptors - min(descriptors/2, ownDescriptors)) / groupDescriptors)
	return r
}

// Take reports whether a group may stay open; if so, Give ends that. If the Room is nil, every group may.
func (r *Room) Take() bool {
	if r == nil {
		return true
	}
	if r.left.Add(-1) >= 0 {
		return true
	}
	r.left.Add(1)
	return false
}

// Give ends what Take began.
func (r *Room) Give() {
	if r != nil {
		r.left.Add(1)
	}
}

// IsFull reports whether no further group may stay open.
func (r *Room) IsFull() bool { return r.left.Load() <= 0 }
