package collect

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/evictd/evictd/stats"
)

// The raw system call below takes struct statfs as 64-bit systems have it; this
// constant does not compile elsewhere.
const _ = uint(unsafe.Sizeof(uintptr(0)) - 8)

// filesystem measures the filesystem that a path is on, at every reading anew: a
// descriptor kept open would keep it from being unmounted, and would not see what
// is mounted over it later.
type filesystem struct {
	pathZ []byte // with its NUL, because unix.Statfs copies the path
}

// read fills bytes for ordinary users and inodes. A filesystem without a fixed
// number of inodes (btrfs) tells none.
func (f *filesystem) read(s *stats.Filesystem) error {
	var st unix.Statfs_t
	_, _, errno := unix.Syscall(unix.SYS_STATFS, uintptr(unsafe.Pointer(unsafe.SliceData(f.pathZ))), uintptr(unsafe.Pointer(&st)), 0)
	if errno != 0 {
		return fmt.Errorf("statfs %s: %w", f.pathZ[:len(f.pathZ)-1], errno)
	}
	*s = stats.Filesystem{
		Capacity:  stats.Known(int64(st.Blocks) * int64(st.Frsize)),
		Available: stats.Known(int64(st.Bavail) * int64(st.Frsize)),
	}
	if st.Files > 0 {
		s.Inodes, s.InodesFree = stats.Known(int64(st.Files)), stats.Known(int64(st.Ffree))
	}
	return nil
}

// filesystems returns a source for each of the three.
func filesystems(cfg NodeConfig) []source {
	sources := make([]source, 0, 3)
	for i, path := range cfg.paths() {
		f := &filesystem{pathZ: append([]byte(path), 0)}
		sources = append(sources, source{
			name: [...]string{"nodefs", "imagefs", "containerfs"}[i],
			read: func(s *stats.Node) error {
				return f.read([...]*stats.Filesystem{&s.NodeFs, &s.ImageFs, &s.ContainerFs}[i])
			},
		})
	}
	return sources
}

// paths are those of nodefs, imagefs and containerfs.
func (cfg NodeConfig) paths() [3]string {
	image := cfg.ImageFs
	if image == "" {
		image = cfg.NodeFs
	}
	container := cfg.ContainerFs
	if container == "" {
		container = image
	}
	return [3]string{cfg.NodeFs, image, container}
}

// Layout says which of the three filesystems are one.
type Layout int

// The layouts the kubelet knows.
const (
	SharedFs Layout = iota // one filesystem for everything
	ImageFs                // images and writable layers on a filesystem of their own
	SplitFs                // images on one of their own, writable layers on nodefs
)

func (l Layout) String() string {
	return [...]string{SharedFs: "shared", ImageFs: "imagefs", SplitFs: "split"}[l]
}

// Layout finds out by the devices of the three paths. Writable layers on a third
// device are no layout of the kubelet's, and an error.
func (cfg NodeConfig) Layout() (Layout, error) {
	paths := cfg.paths()
	var devices [3]uint64
	for i, path := range paths {
		var st unix.Stat_t
		if err := unix.Stat(path, &st); err != nil {
			return SharedFs, fmt.Errorf("stat %s: %w", path, err)
		}
		devices[i] = st.Dev
	}
	node, image, container := devices[0], devices[1], devices[2]
	switch {
	case node == image && image == container:
		return SharedFs, nil
	case image == container:
		return ImageFs, nil
	case node == container:
		return SplitFs, nil
	}
	return SharedFs, fmt.Errorf("containerfs %s is neither on the filesystem of nodefs %s nor on that of imagefs %s", paths[2], paths[0], paths[1])
}
