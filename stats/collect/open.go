package collect

import (
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/evictd/evictd/internal/procfs"
	"github.com/evictd/evictd/stats"
)

// Bounds of what is read of a pod's processes in a scan. What is beyond them does not count.
const (
	maxDescriptors = 200_000 // which take half a second
	maxDeleted     = 16_384  // files
	maxMountTables = 1 << 20 // bytes of mountinfo: the kernel takes a second to write 15 MB
)

// overlays maps the device of every overlay filesystem mounted on this host to the
// directory of its writable layer. Mounts inside a pod, which may name any directory,
// are not among them.
func overlays(mountinfo io.Reader) (map[uint64]PodPath, error) {
	mounts, err := procfs.ReadMounts(mountinfo)
	layers := map[uint64]PodPath{}
	for _, m := range mounts {
		for _, option := range m.Options {
			if upper, is := strings.CutPrefix(option, "upperdir="); is && m.Type == "overlay" && filepath.IsAbs(upper) {
				layers[unix.Mkdev(m.Major, m.Minor)] = PodPath{filepath.Dir(upper), filepath.Base(upper)}
			}
		}
	}
	return layers, err
}

// rootDevice is the device of a process's root; 0 where the process has ended.
func rootDevice(pid int) uint64 {
	var st unix.Statx_t
	if statAt(unix.AT_FDCWD, nameZ("/proc/"+strconv.Itoa(pid)+"/root"), 0, &st) != 0 {
		return 0
	}
	return device(&st)
}

// openFiles finds the deleted files that processes have open.
type openFiles struct {
	layers  map[uint64]PodPath // writable layers by device
	volumes []PodPath          // of the pod
	// mounts are the ids of mounts of the pod's volumes, by the inode of the mount namespace.
	mounts map[uint64]map[string]bool
	// What may still be read.
	descriptors int
	tables      int64 // bytes
}

func newOpenFiles(layers map[uint64]PodPath, volumes []PodPath) *openFiles {
	return &openFiles{layers: layers, volumes: volumes, mounts: map[uint64]map[string]bool{}, descriptors: maxDescriptors, tables: maxMountTables}
}

// unlinked sums the files by device, each once. A file that is neither on a writable layer nor
// in a volume of the pod counts where it is open for writing: the files of others are not the
// pod's for being read. Anonymous memory (memfd) is on a device without files of pods.
func (o *openFiles) unlinked(pids []int) map[uint64]stats.Volume {
	type file struct{ device, ino uint64 }
	seen := map[file]bool{}
	sums := map[uint64]stats.Volume{}
	w := walk{pace: func() bool { return true }}
	buf := make([]byte, 8<<10)
	for _, pid := range pids {
		process := "/proc/" + strconv.Itoa(pid)
		fds, err := unix.Open(process+"/fd", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			continue // the process has ended
		}
		w.read(fds, buf, func(nameZ []byte) {
			var st unix.Statx_t
			if o.descriptors--; o.descriptors < 0 || len(seen) == maxDeleted || statAt(fds, &nameZ[0], 0, &st) != 0 || st.Nlink > 0 || st.Mode&unix.S_IFMT != unix.S_IFREG {
				return
			}
			of := file{device(&st), st.Ino}
			if _, layer := o.layers[of.device]; seen[of] || !layer && !o.counts(process, unix.ByteSliceToString(nameZ)) {
				return
			}
			seen[of] = true
			sums[of.device] = sums[of.device].Plus(stats.Volume{Used: stats.Known(int64(st.Blocks) * 512), Inodes: stats.Known(1)})
		})
		unix.Close(fds)
	}
	return sums
}

// counts says whether a descriptor is open for writing, or of a mount of one of the pod's
// volumes.
func (o *openFiles) counts(process, fd string) bool {
	info, err := os.ReadFile(process + "/fdinfo/" + fd)
	if err != nil {
		return false // it is closed
	}
	var mount string
	for line := range strings.Lines(string(info)) {
		switch name, value, _ := strings.Cut(line, ":"); name {
		case "flags":
			flags, err := strconv.ParseUint(strings.TrimSpace(value), 8, 64)
			if err != nil || flags&unix.O_ACCMODE != unix.O_RDONLY {
				return true
			}
		case "mnt_id":
			mount = strings.TrimSpace(value)
		}
	}
	return mount != "" && o.volumeMounts(process)[mount]
}

// volumeMounts are the ids of the mounts that a process sees of the pod's volumes.
func (o *openFiles) volumeMounts(process string) map[string]bool {
	var namespace unix.Statx_t
	if statAt(unix.AT_FDCWD, nameZ(process+"/ns/mnt"), 0, &namespace) != 0 {
		return nil // it has ended
	}
	if ids, read := o.mounts[namespace.Ino]; read {
		return ids
	}
	file, err := os.Open(process + "/mountinfo")
	if err != nil {
		return nil
	}
	defer file.Close()
	table := &io.LimitedReader{R: file, N: o.tables}
	all, _ := procfs.ReadMounts(table) // none once the process has ended
	o.tables = table.N
	ids := map[string]bool{}
	for i := range all {
		if o.isVolume(all[i].Root) {
			ids[all[i].ID] = true
		}
	}
	o.mounts[namespace.Ino] = ids
	return ids
}

// isVolume says whether a directory, a path in its filesystem, is in a volume of the pod.
func (o *openFiles) isVolume(root string) bool {
	return slices.ContainsFunc(o.volumes, func(v PodPath) bool {
		return v.Below != "" && strings.Contains(root+"/", "/"+v.Below+"/")
	})
}

// direct sums the files that are directly in a directory.
func direct(p PodPath) (sum stats.Volume) {
	fd, err := p.open(unix.O_RDONLY | unix.O_DIRECTORY)
	if err != nil {
		return sum
	}
	defer unix.Close(fd)
	w := walk{pace: func() bool { return true }}
	w.read(fd, make([]byte, 8<<10), func(nameZ []byte) {
		var st unix.Statx_t
		if statAt(fd, &nameZ[0], unix.AT_SYMLINK_NOFOLLOW, &st) == 0 && st.Mode&unix.S_IFMT != unix.S_IFDIR {
			sum = sum.Plus(stats.Volume{Used: stats.Known(int64(st.Blocks) * 512), Inodes: stats.Known(1)})
		}
	})
	return sum
}
