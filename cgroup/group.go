package cgroup

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/evictd/evictd/stats"
)

// Group is one open control group. One goroutine at a time reads its statistics; any
// may list its processes and act on them. Every method returns ErrGone after the group
// was removed.
type Group struct {
	path    string
	version Version
	top     bool // root of the hierarchy: the whole machine, with other files
	dirs    [numHierarchies]int

	usage, stat, limit, swap, meminfo, vmstat File
	threads, maxPIDs                          File
	seen                                      statSnapshot
	pressure                                  [numResources]File
	reclaimed                                 stats.Memory // /proc/vmstat for the top of v2, as read at refaulted
	refaulted                                 time.Time
	last                                      struct { // result of Memory
		stats.Memory
		time.Time
	}
}

// Open opens a group. The error is ErrGone where it does not exist in the hierarchy of
// the memory controller; where it does not exist in another hierarchy, the values of
// that one are unknown.
func (s *System) Open(group string) (*Group, error) {
	g := &Group{path: group, version: s.version}
	for h := range g.dirs {
		g.dirs[h] = -1
	}
	for h := range numHierarchies {
		if s.of[h] == nil {
			continue
		}
		if h != memory && s.of[h] == s.of[memory] {
			g.dirs[h] = g.dirs[memory]
			continue
		}
		fd, err := unix.Open(s.dir(h, group), unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil && h == memory {
			g.Close()
			return nil, openFault(group, err)
		}
		if err == nil {
			g.dirs[h] = fd
		}
	}
	g.top = g.isTop()
	if g.top {
		var err error
		if g.meminfo, err = OpenFile(s.host + "/proc/meminfo"); err == nil && g.version == V2 {
			g.vmstat, err = OpenFile(s.host + "/proc/vmstat")
		}
		if err != nil {
			g.Close()
			return nil, err
		}
	}
	return g, nil
}

func openFault(group string, err error) error {
	if err == unix.ENOENT || err == unix.ENODEV {
		return fmt.Errorf("open cgroup %s: %w", group, ErrGone)
	}
	return fmt.Errorf("open cgroup %s: %w", group, err)
}

// isTop looks for a file that exists only in the root of a hierarchy (v1) or in every
// group but the root (v2). The path does not say it: in a cgroup namespace "/" is an
// ordinary group.
func (g *Group) isTop() bool {
	nameZ, onTop := "cgroup.events\x00", false
	if g.version == V1 {
		nameZ, onTop = "cgroup.sane_behavior\x00", true
	}
	fd, err := openat(g.dirs[memory], nameZ, unix.O_PATH)
	if err == nil {
		unix.Close(fd)
	}
	return (err == nil) == onTop
}

// Path is the path the group was opened by.
func (g *Group) Path() string { return g.path }

// Close closes every descriptor of the group.
func (g *Group) Close() {
	for _, f := range []*File{&g.usage, &g.stat, &g.limit, &g.swap, &g.meminfo, &g.vmstat, &g.threads, &g.maxPIDs, &g.seen.failcnt,
		&g.pressure[MemoryStall], &g.pressure[IOStall], &g.pressure[CPUStall]} {
		f.Close()
	}
	first := g.dirs[memory]
	for h, fd := range g.dirs {
		if fd >= 0 && (hierarchy(h) == memory || fd != first) {
			unix.Close(fd)
		}
		g.dirs[h] = -1
	}
}

// fault adds the group and the operation to an error, except to ErrGone, which is no
// fault.
func (g *Group) fault(operation string, err error) error {
	if err == nil || err == ErrGone || err == errors.ErrUnsupported {
		return err
	}
	return fmt.Errorf("%s of cgroup %s: %w", operation, g.path, err)
}
