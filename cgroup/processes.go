package cgroup

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/evictd/evictd/stats"
)

// maxGroups bounds the groups of a count: a container may nest as many as it likes, and the loop
// waits for the count. maxListed bounds the processes of a list.
const (
	maxGroups = 256
	maxListed = 1 << 16
)

// Processes counts the entries of cgroup.procs in the group and everything below it, which the kubelet counts as a
// pod's pids. If there are more than maxGroups groups, it counts their tasks instead.
func (g *Group) Processes() (stats.Amount, error) {
	n, cut, err := g.count("cgroup.procs\x00")
	if !cut {
		return n, err
	}
	return g.Threads()
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
	n, _, err := g.count([...]string{V1: "tasks\x00", V2: "cgroup.threads\x00"}[g.version])
	return n, err
}

// MaxPIDs reads how many tasks the group and everything below it may have;
// unknown where it is not limited.
func (g *Group) MaxPIDs() (stats.Amount, error) {
	var buf [32]byte
	b, err := readKept(&g.maxPIDs, g.dirs[pids], "pids.max\x00", buf[:])
	return amount(b), g.fault("read pids.max", err)
}

// AppendProcesses appends the pids of the processes in the group and everything below
// it, however deep, and of more than maxListed the first ones. A pid may have been reused since; callers that
// send signals must check.
func (g *Group) AppendProcesses(pids []int) ([]int, error) {
	t := tally{keep: true, pids: pids, enough: maxListed}
	err := t.walk(g.dirs[memory], "cgroup.procs\x00")
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
	t := tally{enough: 1}
	err := t.walk(g.dirs[memory], "cgroup.procs\x00")
	return t.lines > 0, g.fault("look for processes", err)
}

// count counts the lines of a file of at most maxGroups groups; cut says that there are more.
func (g *Group) count(nameZ string) (lines stats.Amount, cut bool, err error) {
	t := tally{most: maxGroups}
	if err := t.walk(g.dirs[memory], nameZ); err != nil {
		return stats.Amount{}, false, g.fault("count processes", err)
	}
	return stats.Known(t.lines), t.cut, nil
}

// tally counts the lines of the files it is fed. With keep it collects their numbers
// instead; a chunk may end within a number. With keys it sums the values of these keys,
// each file in one chunk. With write it writes the files instead.
type tally struct {
	// most bounds the groups that are visited, unless it is zero; cut says that there are
	// more.
	most, visited int
	cut           bool
	enough        int // lines or kept numbers that end the walk; zero: none do
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

// walk feeds one file of the group and of each group below it, however deep: it has two directories open at a time. A
// group below that was removed is skipped.
func (t *tally) walk(top int, nameZ string) error {
	below, err := t.visit(top, nameZ)
	if err != nil || !below {
		return err
	}
	dir, err := openat(top, ".\x00", unix.O_RDONLY|unix.O_DIRECTORY) // a list of its own: several goroutines may read top
	if err != nil {
		return asGone(err)
	}
	defer func() { unix.Close(dir) }()
	var buf [2048]byte
	var next []int64 // where the lists of the directories above continue
	for !t.done() {
		n, err := unix.Getdents(dir, buf[:])
		switch {
		case err == unix.EINTR:
		case n <= 0 && len(next) == 0:
			return asGone(err)
		case n <= 0:
			above, err := openat(dir, "..\x00", unix.O_RDONLY|unix.O_DIRECTORY)
			if err != nil {
				return asGone(err)
			}
			unix.Close(dir)
			dir = above
			if _, err := unix.Seek(dir, next[len(next)-1], io.SeekStart); err != nil {
				return err
			}
			next = next[:len(next)-1]
		default:
			child, after, err := t.children(dir, buf[:n], nameZ)
			if err != nil {
				return err
			}
			if child >= 0 {
				unix.Close(dir)
				dir, next = child, append(next, after)
			}
		}
	}
	return nil
}

// visit feeds the file of one group, and says whether the group has groups below it.
func (t *tally) visit(dir int, nameZ string) (below bool, err error) {
	if t.visited++; t.most > 0 && t.visited > t.most {
		t.cut = true
		return false, nil
	}
	if err := t.read(dir, nameZ); err != nil {
		return false, err
	}
	var st unix.Stat_t
	if err := unix.Fstat(dir, &st); err != nil {
		return false, err
	}
	return st.Nlink != 2, nil // kernfs counts a directory's children in its links
}

func (t *tally) done() bool {
	return t.cut || t.enough > 0 && (t.lines >= int64(t.enough) || len(t.pids) >= t.enough)
}

// children visits the directories among raw directory entries (getdents64(2)): inode and offset of the next (8 bytes
// each), length (2), type (1), name and its NUL. It stops at one that has directories itself, and returns
// that and the offset after it; else child is -1.
func (t *tally) children(dir int, entries []byte, nameZ string) (child int, after int64, err error) {
	const offsetAt, lengthAt, typeAt, nameAt = 8, 16, 18, 19
	for len(entries) > nameAt && !t.done() {
		length := int(binary.NativeEndian.Uint16(entries[lengthAt:]))
		if length <= nameAt || length > len(entries) {
			break
		}
		entry := entries[:length]
		entries = entries[length:]
		name := entry[nameAt:]
		if entry[typeAt] != unix.DT_DIR || bytes.HasPrefix(name, []byte(".\x00")) || bytes.HasPrefix(name, []byte("..\x00")) {
			continue
		}
		child, err := openat(dir, unsafe.String(unsafe.SliceData(name), len(name)), unix.O_RDONLY|unix.O_DIRECTORY)
		below := false
		if err == nil {
			if below, err = t.visit(child, nameZ); err == nil && below {
				return child, int64(binary.NativeEndian.Uint64(entry[offsetAt:])), nil
			}
			unix.Close(child)
		}
		if err = asGone(err); err != nil && !errors.Is(err, ErrGone) {
			return -1, 0, err
		}
	}
	return -1, 0, nil
}

// read feeds one file of a directory from its beginning to its end.
func (t *tally) read(dir int, nameZ string) error {
	if t.write != "" {
		return write(dir, nameZ, t.write, nil) // a group without the file has no such setting
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
