package collect

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	walkPerStep = 10_000    // entries looked at without a pause, some 20 ms
	walkEntries = 1_000_000 // entries of one tree; the rest is not counted
	walkDepth   = 512       // directories open at once; what is in deeper ones is not counted
	walkLinks   = 65_536    // files with several links that are told apart; of more each link counts for its part
)

// errPartly says that a tree is made so that not all of it is counted.
var errPartly = errors.New("it holds more than is counted: more than 1,000,000 entries, or directories more than 512 deep")

// What a tree remembers of its files decides what a quick look finds.
const (
	// largeBlocks of 512 bytes make a file large.
	largeBlocks = 1 << 20 / 512
	// recently is how long after it was written to a file is looked at again, and
	// how soon after it has changed a directory is not believed to show by its
	// times that it changes again.
	recently, settling = 10 * time.Minute, 2 * time.Second
	// smallTree is looked at whole every time: entries.
	smallTree = 2000
)

// PodPath is a directory or a file of a pod's: Below, a relative path, is looked up
// below Root without following any symbolic link. The zero Place is nowhere.
type PodPath struct{ Root, Below string }

func (p PodPath) String() string { return filepath.Join(p.Root, p.Below) }

var errName = errors.New("is no path that stays below its root")

// open returns a descriptor, or ENOTDIR and the like where a link is in the way.
// Root itself is the operator's and may be a link.
func (p PodPath) open(flags int) (int, error) {
	fd, err := unix.Open(p.Root, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	elements := strings.Split(p.Below, "/")
	for i, element := range elements {
		if element == "" || element == "." || element == ".." {
			unix.Close(fd)
			return -1, errName
		}
		how := unix.O_PATH | unix.O_DIRECTORY
		if i == len(elements)-1 {
			how = flags
		}
		next, err := unix.Openat(fd, element, how|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		unix.Close(fd)
		if err != nil {
			return -1, err
		}
		fd = next
	}
	return fd, nil
}

// tree is a directory, and what the last looks at it have found: 512-byte blocks
// and distinct inodes of everything on its own filesystem, itself included, as the
// kubelet counts.
//
// The times of a directory tell that entries came or went, and nothing of files
// that grow. So a quick look reads only directories that have changed, and besides
// stats files that are large, were written to lately or have several links. A small
// file that was left alone for ten minutes and then grows shows in the next whole
// look.
type tree struct {
	place         PodPath
	bytes, inodes int64
	device        uint64
	whole         time.Time // when the last whole look began
	entries       int       // that it found
	root          *directory
	remembers     int // directories and files
}

// moveTo makes it the tree at a place, of which nothing is known where it is
// another one.
func (t *tree) moveTo(place PodPath) {
	if t.place != place {
		*t = tree{place: place}
	}
}

// directory is what a tree remembers of one: enough to know later what it holds
// without reading it.
type directory struct {
	ino          uint64
	mtime, ctime unix.StatxTimestamp
	bytes        int64 // of itself and of the files that are left alone
	inodes       int64
	lively       [][]byte // files that are looked at every time, with their NUL
	below        []subdirectory
}

type subdirectory struct {
	name string
	*directory
}

// walk is one look at a tree. It follows no symbolic link, and passes over what
// vanishes meanwhile: the pod writes there while we look.
type walk struct {
	tree   *tree
	now    time.Time
	pace   func() bool // is called after every walkPerStep entries; false ends the walk
	room   *int        // directories and files that may be remembered
	linked map[uint64]struct{}
	// buffers of directory entries, one a level.
	buffers       [][]byte
	entries       int
	bytes, inodes int64
	ended, partly bool
}

// look measures the tree: whole, or where that is remembered quickly. A directory
// that does not exist holds nothing and is no error. A look that pace ends leaves
// the figures as they were. It returns how many entries it has looked at.
func (t *tree) look(now time.Time, whole bool, room *int, pace func() bool) (entries int, err error) {
	fd, err := t.place.open(unix.O_RDONLY | unix.O_DIRECTORY)
	if err != nil {
		t.root.forget(room)
		*t = tree{place: t.place, remembers: t.remembers}
		if errors.Is(err, unix.ENOENT) {
			return 1, nil
		}
		return 1, fmt.Errorf("measure %s: %w", t.place, err)
	}
	w := &walk{tree: t, now: now, pace: pace, room: room, linked: map[uint64]struct{}{}}
	var st unix.Statx_t
	if errno := statAt(fd, &[]byte{0}[0], unix.AT_EMPTY_PATH, &st); errno != 0 {
		unix.Close(fd)
		return 1, fmt.Errorf("measure %s: %w", t.place, errno)
	}
	before := t.root
	if whole || t.entries < smallTree {
		before = nil
	}
	t.device = device(&st)
	root := w.directory(fd, &st, before, 0)
	if w.ended {
		return w.entries, nil
	}
	if before == nil {
		t.root.forget(room)
		t.whole, t.entries = now, w.entries
	}
	t.bytes, t.inodes, t.root = w.bytes, w.inodes, root
	if t.entries < smallTree {
		t.root.forget(room)
		t.root = nil
	}
	if w.partly {
		return w.entries, fmt.Errorf("measure %s: %w", t.place, errPartly)
	}
	return w.entries, nil
}

// forget gives back the room of a directory and of all below it.
func (d *directory) forget(room *int) {
	if d == nil {
		return
	}
	d.leave(room)
	for _, sub := range d.below {
		sub.forget(room)
	}
}

// leave gives back the room of a directory alone.
func (d *directory) leave(room *int) { *room += 1 + len(d.lively) + len(d.below) }

// directory counts a directory and everything below it, and closes it. It returns
// what is to be remembered: nil where there is no room.
func (w *walk) directory(fd int, st *unix.Statx_t, before *directory, depth int) *directory {
	defer unix.Close(fd)
	if before != nil && before.ino == st.Ino && before.mtime == st.Mtime && before.ctime == st.Ctime {
		return w.again(fd, before, depth)
	}
	var known map[string]*directory
	if before != nil {
		before.leave(w.room)
		known = make(map[string]*directory, len(before.below))
		for _, sub := range before.below {
			known[sub.name] = sub.directory
		}
	}
	d := &directory{ino: st.Ino, mtime: st.Mtime, ctime: st.Ctime, bytes: int64(st.Blocks) * 512, inodes: 1}
	w.bytes += d.bytes
	w.inodes++
	*w.room--
	for len(w.buffers) <= depth {
		size := 8 << 10
		if len(w.buffers) >= 32 { // rarely that deep
			size = 1 << 10
		}
		w.buffers = append(w.buffers, make([]byte, size))
	}
	complete := w.read(fd, w.buffers[depth], func(nameZ []byte) { w.entry(fd, nameZ, d, known, depth) })
	for _, gone := range known {
		gone.forget(w.room)
	}
	settled := w.now.Sub(time.Unix(st.Mtime.Sec, int64(st.Mtime.Nsec))) > settling
	if !complete || !settled || *w.room < 0 {
		d.forget(w.room)
		return nil
	}
	return d
}

// read lists a directory, and says whether it came to the end. A name has its NUL
// and is the caller's until it returns.
func (w *walk) read(fd int, buf []byte, each func(nameZ []byte)) (complete bool) {
	for {
		n, err := unix.Getdents(fd, buf)
		if n <= 0 || err != nil {
			return err == nil
		}
		for rest := buf[:n]; len(rest) > 0; {
			// struct linux_dirent64: ino, off, reclen, type, name
			length := int(binary.NativeEndian.Uint16(rest[16:]))
			nameZ := rest[19:length]
			rest = rest[length:]
			if nameZ[0] == '.' && (nameZ[1] == 0 || nameZ[1] == '.' && nameZ[2] == 0) {
				continue
			}
			if !w.step() {
				return false
			}
			each(nameZ)
		}
	}
}

// entry counts one entry of a directory that is read.
func (w *walk) entry(fd int, nameZ []byte, d *directory, known map[string]*directory, depth int) {
	var st unix.Statx_t
	if errno := statAt(fd, &nameZ[0], unix.AT_SYMLINK_NOFOLLOW, &st); errno != 0 || device(&st) != w.tree.device {
		return
	}
	if st.Mode&unix.S_IFMT == unix.S_IFDIR {
		name := unix.ByteSliceToString(nameZ)
		before := known[name]
		delete(known, name)
		*w.room--
		d.below = append(d.below, subdirectory{name, w.descend(fd, name, &st, before, depth)})
		return
	}
	written := time.Unix(st.Ctime.Sec, int64(st.Ctime.Nsec)) // the mtime is the pod's to set
	if st.Nlink > 1 || st.Blocks >= largeBlocks || w.now.Sub(written) < recently {
		d.lively = append(d.lively, bytes.Clone(nameZ[:bytes.IndexByte(nameZ, 0)+1]))
		*w.room--
		w.count(&st)
		return
	}
	size := int64(st.Blocks) * 512
	d.bytes += size
	d.inodes++
	w.bytes += size
	w.inodes++
}

// again counts a directory that has the entries it had.
func (w *walk) again(fd int, d *directory, depth int) *directory {
	w.bytes += d.bytes
	w.inodes += d.inodes
	var st unix.Statx_t
	for _, name := range d.lively {
		if !w.step() {
			return d
		}
		if statAt(fd, &name[0], unix.AT_SYMLINK_NOFOLLOW, &st) == 0 {
			w.count(&st)
		}
	}
	for i := range d.below {
		if !w.step() {
			return d
		}
		sub := &d.below[i]
		if statAt(fd, nameZ(sub.name), unix.AT_SYMLINK_NOFOLLOW, &st) == 0 && device(&st) == w.tree.device {
			sub.directory = w.descend(fd, sub.name, &st, sub.directory, depth)
		}
	}
	return d
}

// descend goes into a directory that was found, unless it is too deep.
func (w *walk) descend(in int, name string, st *unix.Statx_t, before *directory, depth int) *directory {
	fd := -1
	if depth+1 >= walkDepth {
		w.partly = true
	} else {
		fd, _ = unix.Openat(in, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	}
	if fd < 0 {
		w.bytes += int64(st.Blocks) * 512
		w.inodes++
		return nil
	}
	// It may be another one by now.
	if statAt(fd, nameZ(""), unix.AT_EMPTY_PATH, st) != 0 || device(st) != w.tree.device {
		unix.Close(fd)
		return nil
	}
	return w.directory(fd, st, before, depth+1)
}

// count counts a file, once for all its links.
func (w *walk) count(st *unix.Statx_t) {
	if st.Nlink > 1 {
		if _, seen := w.linked[st.Ino]; seen {
			return
		}
		if len(w.linked) == walkLinks {
			w.bytes += int64(st.Blocks) * 512 / int64(st.Nlink)
			return
		}
		w.linked[st.Ino] = struct{}{}
	}
	w.bytes += int64(st.Blocks) * 512
	w.inodes++
}

// step says whether to go on.
func (w *walk) step() bool {
	if w.entries >= walkEntries {
		w.partly = true
		return false
	}
	if w.ended {
		return false
	}
	w.entries++
	if w.entries%walkPerStep == 0 && !w.pace() {
		w.ended = true
	}
	return !w.ended
}

// statAt is statx of a name with its NUL, without a copy of it.
func statAt(dir int, nameZ *byte, flags int, st *unix.Statx_t) unix.Errno {
	_, _, errno := unix.Syscall6(unix.SYS_STATX, uintptr(dir), uintptr(unsafe.Pointer(nameZ)), uintptr(flags), unix.STATX_BASIC_STATS, uintptr(unsafe.Pointer(st)), 0)
	return errno
}

func nameZ(name string) *byte { return &append([]byte(name), 0)[0] }

func device(st *unix.Statx_t) uint64 { return unix.Mkdev(st.Dev_major, st.Dev_minor) }

// fileSize is what a regular file occupies; nothing where it is not there.
func (p PodPath) fileSize() (bytes int64, found bool) {
	fd, err := p.open(unix.O_PATH)
	if err != nil {
		return 0, false
	}
	f := os.NewFile(uintptr(fd), p.Below)
	defer f.Close()
	var st unix.Stat_t
	if unix.Fstat(fd, &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFREG {
		return 0, false
	}
	return st.Blocks * 512, true
}
