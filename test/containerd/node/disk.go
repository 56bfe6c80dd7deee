package node

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/evictd/evictd/internal/require"
	"github.com/evictd/evictd/test/harness"
)

// Filesystem is a kind of filesystem that a Disk can have.
type Filesystem string

// The filesystems of disks. An xfs has 320 MiB at the least.
const (
	Ext4 Filesystem = "ext4"
	XFS  Filesystem = "xfs"
)

// minXFS is the least that mkfs.xfs is content with, and inodeXFS what it makes
// an inode of.
const (
	minXFS   = 320 * MiB
	inodeXFS = 512
)

// Disk mounts a new filesystem of some bytes and inodes at a directory of its own
// until the end of the test, and returns that. Both are about what the filesystem
// has: statfs has the exact values. It skips the test where that cannot be.
func Disk(t testing.TB, kind Filesystem, bytes, inodes int64) string {
	t.Helper()
	dir := newDir(t)
	image, disk := filepath.Join(dir, "image"), filepath.Join(dir, "disk")
	var program string
	var args []string
	switch kind {
	case Ext4:
		program = harness.Need(t, "mke2fs", "e2fsprogs")
		// Blocks reserved for root would count as used.
		args = []string{"-q", "-t", "ext4", "-m", "0", "-N", strconv.FormatInt(inodes, 10), "-O", "^has_journal", image}
	case XFS:
		program = harness.Need(t, "mkfs.xfs", "xfsprogs")
		bytes = max(bytes, minXFS)
		percent := max(1, inodes*inodeXFS*100/bytes)
		args = []string{"-q", "-i", "maxpct=" + strconv.FormatInt(percent, 10), image}
	}
	file, err := os.Create(image)
	require.NoError(t, err)
	defer file.Close()
	require.NoError(t, file.Truncate(bytes))
	require.NoError(t, os.Mkdir(disk, 0o755))
	if out, err := exec.Command(program, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v: %s", program, err, out)
	}
	options := "loop"
	if kind == XFS { // else it sets aside for a file that grows as much as it has, for a while
		options += ",allocsize=4k"
	}
	if out, err := exec.Command(harness.Need(t, "mount", "mount"), "-o", options, image, disk).CombinedOutput(); err != nil {
		why, _, _ := strings.Cut(strings.TrimPrefix(string(out), "mount: "+disk+": "), "\n")
		t.Skipf("skipped: no %s can be mounted from a file, which the kernel's loop devices and CONFIG_%s_FS are for: %s", kind, strings.ToUpper(string(kind)), why)
	}
	return disk
}
