package cgroup

import (
	"context"
	"errors"
	"fmt"
	"math"
	"path"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/evictd/evictd/stats"
)

// ErrReclaimedLess says that the kernel could not reclaim all that it was asked for.
var ErrReclaimedLess = errors.New("the kernel has reclaimed less")

// MemoryReclaimFile is the path of a group's memory.reclaim (Linux 5.19): the kernel reclaims the bytes
// that are written to it from the group before the write returns. ok is false on v1.
func (s *System) MemoryReclaimFile(group string) (string, bool) {
	if s.version != V2 {
		return "", false
	}
	return path.Join(s.dir(memory, group), "memory.reclaim"), true
}

// ReclaimMemory has the kernel reclaim memory of a group and everything below it, bytes, and
// waits for it. The kernel takes page cache, and where there is swap anonymous memory, by the age of their
// pages. The error is ErrReclaimedLess where there was not as much, errors.ErrUnsupported where the kernel has no
// memory.reclaim, and ErrGone where the group does not exist.
func (s *System) ReclaimMemory(group string, bytes int64) error {
	if s.version != V2 {
		return errors.ErrUnsupported
	}
	dir, err := unix.Open(s.dir(memory, group), unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return openFault(group, err)
	}
	defer unix.Close(dir)
	fd, err := openat(dir, "memory.reclaim\x00", unix.O_WRONLY)
	if err == nil { // after a signal, which ends the write, it is not repeated: the kernel would reclaim more
		_, err = unix.Write(fd, []byte(strconv.FormatInt(bytes, 10)))
		unix.Close(fd)
	}
	switch {
	case err == nil:
		return nil
	case err == unix.ENOENT && alive(dir) == nil:
		return errors.ErrUnsupported
	case err == unix.ENOENT || err == unix.ENODEV:
		return ErrGone
	case err == unix.EAGAIN || err == unix.EINTR:
		return ErrReclaimedLess
	default:
		return fmt.Errorf("reclaim memory of cgroup %s: %w", group, err)
	}
}

// freeStep is the most that FreeMemory has reclaimed at once, bytes.
const freeStep = 64 << 20

// FreeMemory has the kernel free the page cache of a group without processes, until ctx ends (memory.reclaim; v1:
// memory.force_empty, which is written once). After the removal of the group its page cache would stay, and count in the
// groups above. A group that has processes is left alone. The error is errors.ErrUnsupported where the kernel has
// no memory.reclaim, and ErrGone where the group does not exist.
func (s *System) FreeMemory(ctx context.Context, group string) error {
	g, err := s.Open(group)
	if err != nil {
		return err
	}
	defer g.Close()
	for before := int64(math.MaxInt64); ctx.Err() == nil; {
		var m stats.Memory
		populated, err := g.Populated()
		if err == nil {
			err = g.usageAndStat(&m, &memoryStat{})
		}
		cache := m.InactiveFile.Plus(m.ActiveFile).Or(0)
		if err != nil || populated || cache == 0 || cache >= before {
			return err
		}
		if before = cache; s.version == V1 {
			return g.fault("free memory", write(g.dirs[memory], "memory.force_empty\x00", "0", errors.ErrUnsupported))
		}
		if err := s.ReclaimMemory(group, min(cache, freeStep)); err != nil && !errors.Is(err, ErrReclaimedLess) {
			return err
		}
	}
	return nil
}

// ReclaimState is what shows how much memory of a group can be reclaimed, and whether the group misses what
// was; of v2.
type ReclaimState struct {
	// Usage is memory.current, and WorkingSet is as of Group.WorkingSet.
	Usage, WorkingSet stats.Amount
	// PageCache is the part of the usage that the kernel can read again from files: without that of
	// tmpfs.
	PageCache stats.Amount
	// Refaulted is what was read again, of files or anonymous memory, after it had been reclaimed.
	Refaulted stats.Amount
	// Stall is of memory.pressure; unknown without PSI.
	Stall stats.Stall
}

// ReclaimState reads that of a group and everything below it. The error is ErrGone where the group does not exist.
func (s *System) ReclaimState(group string) (r ReclaimState, err error) {
	dir, err := unix.Open(s.dir(memory, group), unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return r, openFault(group, err)
	}
	defer unix.Close(dir)
	var buf [readSize]byte
	read := func(nameZ string) (b []byte) {
		if err == nil {
			b, err = readOnce(dir, nameZ, buf[:])
		}
		return b
	}
	r.Usage = amount(read("memory.current\x00"))
	b := read("memory.stat\x00")
	inactive, active := flat(b, "inactive_file"), flat(b, "active_file")
	r.WorkingSet, r.PageCache = r.Usage.Minus(stats.Known(inactive.Or(0))), inactive.Plus(active)
	refaults := flat(b, "workingset_refault_file").Plus(flat(b, "workingset_refault_anon"))
	if !refaults.IsKnown() {
		refaults = flat(b, "workingset_refault") // before Linux 5.9
	}
	r.Refaulted = bytesOf(refaults)
	r.Stall = ParsePressure(read("memory.pressure\x00"))
	if err != nil && !errors.Is(err, ErrGone) {
		err = fmt.Errorf("read the memory of cgroup %s: %w", group, err)
	}
	return r, err
}
