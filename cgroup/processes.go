package cgroup

import (
	"bytes"
	"errors"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/evictd/evictd/stats"
)

// maxDepth bounds the depth of nested groups; the kubelet and container runtimes nest
// them three deep. maxGroups bounds the groups of a count: a container may nest as many as it
// likes, and the loop waits for it.
const (
	maxDepth  = 32
	maxGroups = 4096
)

// Processes counts the processes in the group and everything below it, as
// entries of cgroup.procs: what the kubelet counts as a pod's pids. Of more than maxGroups groups the
// count is of these.
func (g *Group) Processes() (stats.Amount, error) {
	return g.count("cgroup.procs\x00")
}

// Threads counts the tasks in the group and everything below it, as the pids controller
// does: pids.current, or the tasks themselves where the group is not in the hierarchy
// of the pids controller.
func (g *Group) Threads() (stats.Amount, error) {
	var buf [32]byte
	b, err := readKept(&g.threads, g.dirs[pids], "pids.current\x00", buf[:])
	if n := amount(b); n.IsKnown() || err != nil {
		return n, g.fault("read pids.current", err)
	}
	return g.count([...]string{V1: "tasks\x00", V2: "cgroup.threads\x00"}[g.version])
}

// MaxPIDs reads how many tasks the group and everything below it may have;
// unknown where it is not limited.
func (g *Group) MaxPIDs() (stats.Amount, error) {
	var buf [32]byte
	b, err := readKept(&g.maxPIDs, g.dirs[pids], "pids.max\x00", buf[:])
	return amount(b), g.fault("read pids.max", err)
}

// AppendProcesses appends the pids of the processes in the group and everything below
// it. A pid may have been reused since; callers that send signals must check.
func (g *Group) AppendProcesses(pids []int) ([]int, error) {
	t := tally{keep: true, pids: pids}
	err := t.walk(g.dirs[memory], "cgroup.procs\x00", 0)
	return t.pids, g.fault("list processes", err)
}

// AppendOwnProcesses is AppendProcesses without those in the groups below.
func (g *Group) AppendOwnProcesses(pids []int) ([]int, error) {
	t := tally{keep: true, pids: pids}
	err := t.read(g.dirs[memory], "cgroup.procs\x00")
	return t.pids, g.fault("list processes", err)
}

// Populated says whether the group or one below it has a process.
func (g *Group) Populated() (bool, error) {
	if g.version == V2 && !g.top {
		var buf [readSize]byte
		b, err := readOnce(g.dirs[memory], "cgroup.events\x00", buf[:])
		return flat(b, "populated") == stats.Known(1), g.fault("read cgroup.events", err)
	}
	n, err := g.Processes()
	return n.Or(0) > 0, err
}

func (g *Group) count(nameZ string) (stats.Amount, error) {
	t := tally{most: maxGroups}
	if err := t.walk(g.dirs[memory], nameZ, 0); err != nil {
		return stats.Amount{}, g.fault("count processes", err)
	}
	return stats.Known(t.lines), nil
}

// tally counts the lines of the files it is fed. With keep it collects their numbers
// instead; a chunk may end within a number. With keys it sums the values of these keys,
// each file in one chunk. With write it writes the files instead.
type tally struct {
	// most bounds the groups that are visited, unless it is zero; cut says that there are
	// more.
	most, visited int
	cut           bool
	write         string
	lines         int64
	keys          [5]string // of flat keyed files: their values are added up; "" is none
	sums          [5]int64
	keep          bool
	pids          []int
	part          int // the digits of a number whose line has not ended
}

func (t *tally) feed(chunk []byte) {
	if t.keys[0] != "" {
		for i, key := range t.keys {
			t.sums[i] += flat(chunk, key).Or(0)
		}
		return
	}
	if !t.keep {
		t.lines += int64(bytes.Count(chunk, []byte{'\n'}))
		return
	}
	for _, c := range chunk {
		switch {
		case c >= '0' && c <= '9' && t.part < 1<<30:
			t.part = t.part*10 + int(c-'0')
		case c == '\n':
			// 0 stands for a process of another pid namespace.
			if t.part > 0 {
				t.pids = append(t.pids, t.part)
			}
			t.part = 0
		}
	}
}

// walk feeds one file of the group and of each group below it. A group below it that
// was removed is skipped.
func (t *tally) walk(dir int, nameZ string, depth int) error {
	if t.visited++; t.most > 0 && t.visited > t.most {
		t.cut = true
		return nil
	}
	if err := t.read(dir, nameZ); err != nil {
		return err
	}
	var st unix.Stat_t
	if err := unix.Fstat(dir, &st); err != nil {
		return err
	}
	if st.Nlink == 2 || depth == maxDepth { // kernfs counts a directory's children in its links
		return nil
	}
	// A new open file description: several goroutines may list one dir.
	list, err := openat(dir, ".\x00", unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return asGone(err)
	}
	defer unix.Close(list)
	var buf [2048]byte
	for {
		n, err := unix.Getdents(list, buf[:])
		if n <= 0 || err != nil {
			return asGone(err)
		}
		if err := t.children(list, buf[:n], nameZ, depth); err != nil {
			return err
		}
	}
}

// children walks the directories among raw directory entries (getdents64(2)):
// inode and offset (8 bytes each), length (2), type (1), name and its NUL.
func (t *tally) children(dir int, entries []byte, nameZ string, depth int) error {
	const lengthAt, typeAt, nameAt = 16, 18, 19
	for len(entries) > nameAt {
		length := int(entries[lengthAt]) | int(entries[lengthAt+1])<<8
		if length <= nameAt || length > len(entries) {
			return nil
		}
		name := entries[nameAt:length]
		isDir := entries[typeAt] == unix.DT_DIR
		entries = entries[length:]
		if !isDir || bytes.HasPrefix(name, []byte(".\x00")) || bytes.HasPrefix(name, []byte("..\x00")) {
			continue
		}
		child, err := openat(dir, unsafe.String(unsafe.SliceData(name), len(name)), unix.O_RDONLY|unix.O_DIRECTORY)
		if err == nil {
			err = t.walk(child, nameZ, depth+1)
			unix.Close(child)
		}
		if err = asGone(err); err != nil && !errors.Is(err, ErrGone) {
			return err
		}
	}
	return nil
}

// read feeds one file of a directory from its beginning to its end.
func (t *tally) read(dir int, nameZ string) error {
	if t.write != "" {
		return write(dir, nameZ, t.write, errors.ErrUnsupported)
	}
	fd, err := openat(dir, nameZ, unix.O_RDONLY)
	if err != nil {
		return asGone(err)
	}
	defer unix.Close(fd)
	t.part = 0
	var buf [readSize]byte
	for {
		n, err := unix.Read(fd, buf[:])
		switch {
		case err == unix.EINTR:
		case err == unix.EOPNOTSUPP: // cgroup.procs of a threaded group: its processes are listed above it
			return nil
		case err != nil || n <= 0:
			return asGone(err)
		default:
			t.feed(buf[:n])
		}
	}
}

func asGone(err error) error {
	if err == unix.ENOENT || err == unix.ENODEV {
		return ErrGone
	}
	return err
}
