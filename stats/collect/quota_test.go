package collect

import (
	"bytes"
	"os"
	"os/exec"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/evictd/evictd/internal/require"
	"github.com/evictd/evictd/stats"
)

// A project that uses 8392704 bytes in 3 inodes, of 16 MiB and 100 inodes, as
// Q_GETQUOTA returns it on ext4.
var quotaOfExt4 = [72]byte{
	0x00, 0x40, 0, 0, 0, 0, 0, 0, // hard limit, KiB
	0x00, 0x30, 0, 0, 0, 0, 0, 0,
	0x00, 0x10, 0x80, 0, 0, 0, 0, 0, // bytes in use
	100, 0, 0, 0, 0, 0, 0, 0,
	0, 0, 0, 0, 0, 0, 0, 0,
	3, 0, 0, 0, 0, 0, 0, 0, // inodes in use
	0, 0, 0, 0, 0, 0, 0, 0,
	0, 0, 0, 0, 0, 0, 0, 0,
	0x3f, 0, 0, 0, // all of it is valid
}

func TestAQuotaShowsWhatItsProjectUses(t *testing.T) {
	if size := unsafe.Sizeof(projectQuota{}); size != 72 {
		t.Fatalf("struct if_dqblk has 72 bytes, ours %d", size)
	}
	if size := unsafe.Sizeof(projectOf{}); size != 28 {
		t.Fatalf("struct fsxattr has 28 bytes, ours %d", size)
	}
	quota := *(*projectQuota)(unsafe.Pointer(&quotaOfExt4))
	now := time.Now()
	if got, want := quota.used(now), (stats.Volume{Time: now, Used: stats.Known(8392704), Inodes: stats.Known(3)}); got != want {
		t.Errorf("got %v, want %v", got, want)
	}
	quota.valid = 0
	if got := quota.used(now); got.Used.IsKnown() || got.Inodes.IsKnown() {
		t.Errorf("nothing valid: got %v", got)
	}
}

func TestADirectoryWithoutAProjectIsCountedByNoQuota(t *testing.T) {
	for _, place := range []PodPath{placed(t.TempDir()), {t.TempDir(), "missing"}} {
		if project, used := quotaOf(place, nil); project != 0 || used != (stats.Volume{}) {
			t.Errorf("%v: got project %d, %v", place, project, used)
		}
	}
}

func TestAProjectsQuotaCountsInPlaceOfAWalk(t *testing.T) {
	disk := loopMount(t, "e2fsprogs", 64, "prjquota", "mke2fs", "-q", "-t", "ext4", "-m", "0", "-O", "quota,project", "-E", "quotatype=prjquota")
	const project = 1048577
	volume := disk + "/volume"
	require.NoError(t, os.Mkdir(volume, 0o755))
	dir, err := os.Open(volume)
	require.NoError(t, err)
	defer dir.Close()
	of := projectOf{project: project, flags: 0x200} // FS_XFLAG_PROJINHERIT
	const setProject = 0x401c5820                   // FS_IOC_FSSETXATTR
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, dir.Fd(), setProject, uintptr(unsafe.Pointer(&of))); errno != 0 {
		t.Fatal(errno)
	}
	put(t, volume+"/file", string(make([]byte, 1<<20)))
	got, used := quotaOf(placed(volume), nil)
	if got != project || used.Used.Or(0) < 1<<20 || used.Inodes != stats.Known(2) {
		t.Errorf("got project %d, %v", got, used)
	}
	if again, _ := quotaOf(placed(volume), []uint32{project}); again != 0 {
		t.Error("a project counts twice")
	}
	put(t, volume+"/below/file", "x")
	if below, _ := quotaOf(placed(volume+"/below"), nil); below != 0 {
		t.Error("a directory counts as the project that it inherits")
	}
}

// loopMount makes a filesystem in a file of some MiB, by a program of a Debian package, and mounts it.
func loopMount(t *testing.T, debian string, mib int64, options string, make ...string) (dir string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("skipped: needs root, to mount a disk of its own")
	}
	if _, err := exec.LookPath(make[0]); err != nil {
		t.Skipf("skipped: needs Debian's package %s: %v", debian, err)
	}
	image, dir := t.TempDir()+"/image", t.TempDir()
	put(t, image, "")
	require.NoError(t, os.Truncate(image, mib<<20))
	if out, err := exec.Command(make[0], append(make[1:], image)...).CombinedOutput(); err != nil {
		t.Skipf("skipped: needs a %s that knows %q: %v: %s", make[0], make[1:], err, bytes.TrimSpace(out))
	}
	if out, err := exec.Command("mount", "-o", "loop,"+options, image, dir).CombinedOutput(); err != nil {
		t.Skipf("skipped: needs loop devices and a kernel that mounts what %s makes with %s: %v: %s", make[0], options, err, bytes.TrimSpace(out))
	}
	t.Cleanup(func() {
		if out, err := exec.Command("umount", dir).CombinedOutput(); err != nil {
			t.Errorf("umount: %v: %s", err, out)
		}
	})
	return dir
}
