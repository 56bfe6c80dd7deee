package collect

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/evictd/evictd/stats"
)

const (
	walkPerStep = 10_000    // entries without a pause, some 20 ms
	walkEntries = 1_000_000 // entries of one tree; the rest is not counted
	walkDepth   = 512       // open directories; deeper ones are not counted
	walkLinks   = 65_536    // inodes with several links that are remembered; each link of others counts for its part
)

// errIncomplete says that a tree is too large or too deep to be counted in full.
var errIncomplete = errors.New("it holds more than is counted: more than 1,000,000 entries, or directories more than 512 deep")

// What an incremental measurement checks.
const (
	// largeBlocks of 512 bytes make a file large.
	largeBlocks = 1 << 20 / 512
	// A file written to within recently is checked again. A directory that changed
	// within settling is read again: its times may not show a further change.
	recently, settling = 10 * time.Minute, 2 * time.Second
	// smallTree, in entries, is measured in full every time.
	smallTree = 2000
)

// PodPath is a directory or a file of a pod: Below, a relative path, is resolved below
// Root without following any symbolic link. The zero PodPath is none.
type PodPath struct{ Root, Below string }

func (p PodPath) String() string { return filepath.Join(p.Root, p.Below) }

var errName = errors.New("is not a path below its root")

// open returns a descriptor, or an error such as ENOTDIR at a symbolic link. Root is
// configured and may be a symbolic link.
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

// tree is a directory and its last measurement: 512-byte blocks and distinct inodes of
// everything on its own filesystem, itself included, as the kubelet counts.
//
// The times of a directory show added and removed entries, not files that grow. So an
// incremental measurement reads only directories that have changed, and stats files
// that are large, were written to recently or have several links. A small file that was
// not written to for ten minutes and then grows is found by the next full measurement.
type tree struct {
	place         PodPath
	own           bool // a pod's own directory, see excludes
	bytes, inodes int64
	device        uint64
	lastFull      time.Time // when the last full measurement began
	entries       int       // of the last full measurement
	root          *directory
	remembered    int           // directories and files
	counted       stats.Volume  // by the measurement that is not complete yet; unknown without one
	failed        bool          // the fault of the last measurement was logged
	steps         *atomic.Int64 // entries measured so far, for others to see; may be nil
}

// ownBlocks of 512 bytes are what a file of a pod's own directory may hold that the kubelet has written, such as etc-hosts.
const ownBlocks = 4096 / 512

// volumesOfPod are the directories in a pod's own directory that are measured by volume, or have other filesystems mounted.
var volumesOfPod = []string{"volumes", "volume-subpaths", "volumeDevices"}

// excludes says whether an entry does not count in a pod's own directory. A pod writes there through single files that are
// mounted into its containers: its termination message, and etc-hosts.
func (t *tree) excludes(nameZ []byte, st *unix.Statx_t, depth int) bool {
	if !t.own {
		return false
	}
	if st.Mode&unix.S_IFMT == unix.S_IFDIR {
		return depth == 0 && slices.Contains(volumesOfPod, unix.ByteSliceToString(nameZ))
	}
	return st.Blocks <= ownBlocks
}

// moveTo sets the path of the tree; a new path discards its results.
func (t *tree) moveTo(place PodPath) {
	if t.place != place {
		*t = tree{place: place}
	}
}

// directory is what a tree remembers of a directory, to measure it without reading it.
type directory struct {
	ino          uint64
	mtime, ctime unix.StatxTimestamp
	bytes        int64 // of itself and of files that are not checked
	inodes       int64
	checked      [][]byte // names of the checked files, with NUL
	below        []subdirectory
	taken        int  // of the room: one for itself and for each entry that it remembers
	cut          bool // there was no room for all
}

type subdirectory struct {
	name string
	*directory
}

// walk is one measurement of a tree. It follows no symbolic link, and skips entries
// that are deleted meanwhile: the pod may write at the same time.
type walk struct {
	tree   *tree
	now    time.Time
	pace   func() bool // is called after every walkPerStep entries; false ends the walk
	room   *int        // directories and files that may be remembered
	linked map[uint64]struct{}
	// buffers of directory entries, one a level.
	buffers           [][]byte
	entries           int
	bytes, inodes     int64
	remote            bool // the filesystem has a server, which knows better than the kernel
	ended, incomplete bool
}

// measure measures the tree: in full, or incrementally where it was measured before. A
// directory that does not exist is empty and no error. If pace ends the measurement,
// the results do not change. It returns the number of entries.
func (t *tree) measure(now time.Time, whole bool, room *int, pace func() bool) (entries int, err error) {
	fd, err := t.place.open(unix.O_RDONLY | unix.O_DIRECTORY)
	if err != nil {
		t.root.releaseRoomBelow(room)
		*t = tree{place: t.place, own: t.own, remembered: t.remembered, failed: t.failed}
		if errors.Is(err, unix.ENOENT) {
			return 1, nil
		}
		return 1, fmt.Errorf("measure %s: %w", t.place, err)
	}
	w := &walk{tree: t, now: now, pace: pace, room: room, linked: map[uint64]struct{}{}, remote: isRemote(fd)}
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
	t.counted = stats.Volume{}
	if w.ended {
		return w.entries, nil
	}
	if before == nil {
		t.root.releaseRoomBelow(room)
		t.lastFull, t.entries = now, w.entries
	}
	t.bytes, t.inodes, t.root = w.bytes, w.inodes, root
	if t.entries < smallTree || w.remote {
		t.root.releaseRoomBelow(room)
		t.root = nil
	}
	if w.incomplete {
		return w.entries, fmt.Errorf("measure %s: %w", t.place, errIncomplete)
	}
	return w.entries, nil
}

// releaseRoomBelow releases the room of a directory and of all below it.
func (d *directory) releaseRoomBelow(room *int) {
	if d == nil {
		return
	}
	d.releaseRoom(room)
	for _, sub := range d.below {
		sub.releaseRoomBelow(room)
	}
}

// take takes the room for one entry of the directory or for itself, and says whether there was any.
func (d *directory) take(room *int) bool {
	if d.cut = d.cut || *room <= 0; !d.cut {
		*room--
		d.taken++
	}
	return !d.cut
}

// releaseRoom releases the room of a directory alone.
func (d *directory) releaseRoom(room *int) { *room += d.taken }

// directory counts a directory and everything below it, and closes it. It returns what
// is remembered: nil without room.
func (w *walk) directory(fd int, st *unix.Statx_t, before *directory, depth int) *directory {
	defer unix.Close(fd)
	if before != nil && before.ino == st.Ino && before.mtime == st.Mtime && before.ctime == st.Ctime {
		return w.revisit(fd, before, depth)
	}
	var known map[string]*directory
	if before != nil {
		before.releaseRoom(w.room)
		known = make(map[string]*directory, len(before.below))
		for _, sub := range before.below {
			known[sub.name] = sub.directory
		}
	}
	d := &directory{ino: st.Ino, mtime: st.Mtime, ctime: st.Ctime, bytes: int64(st.Blocks) * 512, inodes: 1}
	if w.tree.own {
		d.bytes, d.inodes = 0, 0
	}
	w.bytes += d.bytes
	w.inodes += d.inodes
	d.take(w.room)
	for len(w.buffers) <= depth {
		size := 8 << 10
		if len(w.buffers) >= 32 { // rare
			size = 1 << 10
		}
		w.buffers = append(w.buffers, make([]byte, size))
	}
	complete := w.read(fd, w.buffers[depth], func(nameZ []byte) { w.entry(fd, nameZ, d, known, depth) })
	for _, gone := range known {
		gone.releaseRoomBelow(w.room)
	}
	settled := w.now.Sub(time.Unix(st.Mtime.Sec, int64(st.Mtime.Nsec))) > settling
	if !complete || !settled || d.cut {
		d.releaseRoomBelow(w.room)
		return nil
	}
	return d
}

// read lists a directory, and says whether it was completed. each may use the name,
// with its NUL, until it returns.
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

// entry counts one entry of a directory.
func (w *walk) entry(fd int, nameZ []byte, d *directory, known map[string]*directory, depth int) {
	var st unix.Statx_t
	if errno := statAt(fd, &nameZ[0], unix.AT_SYMLINK_NOFOLLOW, &st); errno != 0 || device(&st) != w.tree.device || w.tree.excludes(nameZ, &st, depth) {
		return
	}
	if w.remote && statx(fd, &nameZ[0], unix.AT_SYMLINK_NOFOLLOW|unix.AT_NO_AUTOMOUNT, &st) != 0 {
		return
	}
	if st.Mode&unix.S_IFMT == unix.S_IFDIR {
		name := unix.ByteSliceToString(nameZ)
		before := known[name]
		delete(known, name)
		if sub := w.descend(fd, name, &st, before, depth); d.take(w.room) {
			d.below = append(d.below, subdirectory{name, sub})
		} else {
			sub.releaseRoomBelow(w.room)
		}
		return
	}
	written := time.Unix(st.Ctime.Sec, int64(st.Ctime.Nsec)) // the mtime is the pod's to set
	if st.Nlink > 1 || st.Blocks >= largeBlocks || w.now.Sub(written) < recently {
		if d.take(w.room) {
			d.checked = append(d.checked, bytes.Clone(nameZ[:bytes.IndexByte(nameZ, 0)+1]))
		}
		w.count(&st)
		return
	}
	size := int64(st.Blocks) * 512
	d.bytes += size
	d.inodes++
	w.bytes += size
	w.inodes++
}

// revisit counts a directory whose entries have not changed.
func (w *walk) revisit(fd int, d *directory, depth int) *directory {
	w.bytes += d.bytes
	w.inodes += d.inodes
	var st unix.Statx_t
	for _, name := range d.checked {
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

// descend counts a directory that was found, unless it is too deep.
func (w *walk) descend(in int, name string, st *unix.Statx_t, before *directory, depth int) *directory {
	fd := -1
	if depth+1 >= walkDepth {
		w.incomplete = true
	} else {
		fd, _ = unix.Openat(in, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	}
	if fd < 0 {
		w.bytes += int64(st.Blocks) * 512
		w.inodes++
		return nil
	}
	// The name may be of another directory by now.
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

// step says whether to continue.
func (w *walk) step() bool {
	if w.entries >= walkEntries {
		w.incomplete = true
		return false
	}
	if w.ended {
		return false
	}
	w.entries++
	if w.tree != nil && w.tree.steps != nil {
		w.tree.steps.Add(1)
	}
	if w.entries%walkPerStep == 0 {
		if w.tree != nil {
			w.tree.counted = stats.Volume{Time: w.now, Used: stats.Known(w.bytes), Inodes: stats.Known(w.inodes)}
		}
		w.ended = !w.pace()
	}
	return !w.ended
}

// statAt is statx of a name with its NUL, with what the kernel knows: it asks no server of a
// network or FUSE filesystem that is mounted there, and mounts nothing.
func statAt(dir int, nameZ *byte, flags int, st *unix.Statx_t) unix.Errno {
	return statx(dir, nameZ, flags|unix.AT_STATX_DONT_SYNC|unix.AT_NO_AUTOMOUNT, st)
}

// statx is statx of a name with its NUL, without a copy of it.
func statx(dir int, nameZ *byte, flags int, st *unix.Statx_t) unix.Errno {
	_, _, errno := unix.Syscall6(unix.SYS_STATX, uintptr(dir), uintptr(unsafe.Pointer(nameZ)), uintptr(flags), unix.STATX_BASIC_STATS, uintptr(unsafe.Pointer(st)), 0)
	return errno
}

// isRemote says whether an open directory is on a network or FUSE filesystem.
func isRemote(fd int) bool {
	var st unix.Statfs_t
	if unix.Fstatfs(fd, &st) != nil {
		return false
	}
	switch uint32(st.Type) {
	case unix.FUSE_SUPER_MAGIC, unix.NFS_SUPER_MAGIC, unix.CIFS_SUPER_MAGIC, unix.SMB_SUPER_MAGIC, unix.SMB2_SUPER_MAGIC,
		unix.CEPH_SUPER_MAGIC, unix.V9FS_MAGIC, unix.AFS_SUPER_MAGIC:
		return true
	}
	return false
}

func nameZ(name string) *byte { return &append([]byte(name), 0)[0] }

func device(st *unix.Statx_t) uint64 { return unix.Mkdev(st.Dev_major, st.Dev_minor) }

// fileSize is the size on disk of a regular file; found is false where there is none.
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
