package collect

import (
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

const (
	walkPerStep = 10_000    // entries looked at without a pause, some 20 ms
	walkPerDir  = 1_000_000 // entries of one directory; the rest is not counted
	walkDepth   = 64        // directories open at once; deeper ones are not counted
	walkLinks   = 65_536    // files with several links that are told apart; more are not counted
)

// walk counts what a directory occupies as the kubelet does: 512-byte blocks and
// distinct inodes of everything on its own filesystem, itself included. It follows
// no symbolic link, and files that vanish meanwhile are passed over: the pod
// writes there while we look.
type walk struct {
	device        uint64
	bytes, inodes int64
	entries       int
	linked        map[uint64]struct{} // inodes with several links
	open          []level
}

type level struct {
	dir   *os.File
	names []string // read from it, and not yet looked at
}

// newWalk opens a directory. One that does not exist is no error and no walk.
func newWalk(path string) (*walk, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err == unix.ENOENT {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("measure %s: %w", path, err)
	}
	w := &walk{linked: map[uint64]struct{}{}, open: []level{{dir: os.NewFile(uintptr(fd), path)}}}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		w.close()
		return nil, fmt.Errorf("measure %s: %w", path, err)
	}
	w.device = st.Dev
	w.count(&st)
	return w, nil
}

// step looks at entries until it has seen them all, then it closes the walk and
// returns true, or until the budget is used up.
func (w *walk) step(budget *int) (done bool) {
	for len(w.open) > 0 && w.entries < walkPerDir {
		top := &w.open[len(w.open)-1]
		if len(top.names) == 0 {
			var err error
			if top.names, err = top.dir.Readdirnames(256); len(top.names) == 0 || err != nil && err != io.EOF {
				top.dir.Close()
				w.open = w.open[:len(w.open)-1]
				continue
			}
		}
		if *budget == 0 {
			return false
		}
		*budget--
		name := top.names[0]
		top.names = top.names[1:]
		w.look(top.dir, name)
	}
	w.close()
	return true
}

// look counts an entry, and opens it if it is a directory.
func (w *walk) look(in *os.File, name string) {
	w.entries++
	var st unix.Stat_t
	if err := unix.Fstatat(int(in.Fd()), name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil || st.Dev != w.device {
		return
	}
	w.count(&st)
	if st.Mode&unix.S_IFMT != unix.S_IFDIR || len(w.open) == walkDepth {
		return
	}
	fd, err := unix.Openat(int(in.Fd()), name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err == nil {
		w.open = append(w.open, level{dir: os.NewFile(uintptr(fd), name)})
	}
}

func (w *walk) count(st *unix.Stat_t) {
	if st.Mode&unix.S_IFMT != unix.S_IFDIR && st.Nlink > 1 {
		if _, seen := w.linked[st.Ino]; seen || len(w.linked) == walkLinks {
			return
		}
		w.linked[st.Ino] = struct{}{}
	}
	w.bytes += st.Blocks * 512
	w.inodes++
}

func (w *walk) close() {
	for _, l := range w.open {
		l.dir.Close()
	}
	w.open = nil
}
