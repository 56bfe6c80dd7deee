package collect

import (
	"slices"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/evictd/evictd/stats"
)

// Numbers of linux/fs.h and linux/quota.h.
const (
	getProject   = 0x801c581f        // FS_IOC_FSGETXATTR
	getQuota     = 0x800007<<8 | 0x2 // QCMD(Q_GETQUOTA, PRJQUOTA)
	spaceIsValid = 1 << 1            // QIF_SPACE
	inodeIsValid = 1 << 3            // QIF_INODES
)

// projectOf is struct fsxattr.
type projectOf struct {
	flags, extentSize, extents, project, cowExtentSize uint32
	_                                                  [8]byte
}

// projectQuota is struct if_dqblk: limits in blocks of 1 KiB, use in bytes.
type projectQuota struct {
	hardSpace, softSpace, space    uint64
	hardInodes, softInodes, inodes uint64
	spaceGrace, inodeGrace         uint64
	valid                          uint32
	_                              uint32
}

// used is the usage of the quota; unknown where the kernel does not set it.
func (q *projectQuota) used(now time.Time) (v stats.Volume) {
	v.Time = now
	if q.valid&spaceIsValid != 0 {
		v.Used = stats.Known(int64(q.space))
	}
	if q.valid&inodeIsValid != 0 {
		v.Inodes = stats.Known(int64(q.inodes))
	}
	return v
}

// quotaOf reads the usage of a directory's project quota, in constant time and with
// deleted open files. The project must be the directory's own: not that of its parent,
// and not in taken. Zero is none, as without project quotas, and before Linux 5.14.
//
// The kubelet assigns projects to emptyDirs with its feature
// LocalStorageCapacityIsolationFSQuotaMonitoring; evictd assigns none.
func quotaOf(p PodPath, taken []uint32) (project uint32, used stats.Volume) {
	fd, err := p.open(unix.O_RDONLY | unix.O_DIRECTORY)
	if err != nil {
		return 0, used
	}
	defer unix.Close(fd)
	project = projectAt(fd)
	if project == 0 || slices.Contains(taken, project) {
		return 0, used
	}
	parent, err := unix.Openat(fd, "..", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, used
	}
	defer unix.Close(parent)
	if projectAt(parent) == project {
		return 0, used
	}
	var quota projectQuota
	now := time.Now()
	if _, _, errno := unix.Syscall6(unix.SYS_QUOTACTL_FD, uintptr(fd), getQuota, uintptr(project), uintptr(unsafe.Pointer(&quota)), 0, 0); errno != 0 {
		return 0, used
	}
	if used = quota.used(now); !used.Used.IsKnown() || !used.Inodes.IsKnown() {
		return 0, stats.Volume{}
	}
	return project, used
}

// projectAt is the project of an open directory; zero where it has none.
func projectAt(fd int) uint32 {
	var of projectOf
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), getProject, uintptr(unsafe.Pointer(&of))); errno != 0 {
		return 0
	}
	return of.project
}
