package cgroup

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// lockedFiles are files of a group that can only be opened by a user that may write to it. The directory can be opened, and
// so locked, by every user of the node.
var lockedFiles = [...][]string{V1: {"memory.force_empty"}, V2: {"memory.reclaim", "cgroup.kill"}}

// Lock takes the exclusive flock(2) of a file of the group: the first of lockedFiles that this process can open, or the directory if
// it can open none. The lock holds until the file is closed or the process has ended, however it ends. If another process holds the
// lock, the error names that process.
func (s *System) Lock(group string) (*os.File, error) {
	dir := s.dir(memory, group)
	file, err := os.OpenFile(dir, os.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, fmt.Errorf("lock cgroup %s: %w", group, err)
	}
	for _, name := range lockedFiles[s.version] {
		if own, err := os.OpenFile(filepath.Join(dir, name), os.O_WRONLY, 0); err == nil {
			file.Close()
			file = own
			break
		}
	}
	err = unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if err == unix.EWOULDBLOCK {
		err = fmt.Errorf("process %d holds the lock", lockHolder(file))
	}
	if err != nil {
		file.Close()
		return nil, fmt.Errorf("lock cgroup %s: %w", group, err)
	}
	return file, nil
}

// lockHolder is the process that holds the flock of a file, by /proc/locks; 0 where it is in
// a PID namespace that cannot be seen from here, or has just ended.
func lockHolder(file *os.File) (pid int) {
	var at unix.Stat_t
	if unix.Fstat(int(file.Fd()), &at) != nil {
		return 0
	}
	want := fmt.Sprintf("%02x:%02x:%d", unix.Major(at.Dev), unix.Minor(at.Dev), at.Ino)
	text, _ := os.ReadFile("/proc/locks")
	for line := range strings.Lines(string(text)) {
		var number, kind, advice, access, inode string
		var holder int
		if _, err := fmt.Sscan(line, &number, &kind, &advice, &access, &holder, &inode); err == nil && kind == "FLOCK" && inode == want {
			return holder
		}
	}
	return 0
}
