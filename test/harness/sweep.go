package harness

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/evictd/evictd/internal/procfs"
	"github.com/evictd/evictd/internal/wait"
)

// Trace is something outside a directory that is there because of what happened in it.
type Trace struct {
	What   string
	Remove func() error
}

// traces are the processes, cgroups, mounts and loop devices of a directory of Dir or of
// the whole run, in the order in which they can be removed.
func traces(dir string, more []func(dir string) []Trace) (found []Trace) {
	for _, find := range more {
		found = append(found, find(dir)...)
	}
	mounts := mountTable()
	return slices.Concat(found, cgroups(CgroupOf(dir), mounts), cgroups(SliceOf(dir), mounts), mountsBelow(dir, mounts), loopDevices(dir, mounts))
}

// Sweep removes all traces of a directory, whatever state they are in.
func Sweep(dir string, more ...func(dir string) []Trace) error {
	ctx, cancel := context.WithTimeout(context.Background(), wait.Limit)
	defer cancel()
	var faults error
	err := wait.That(ctx, func() bool {
		faults = nil
		found := traces(dir, more)
		for _, t := range found {
			if err := t.Remove(); err != nil {
				faults = errors.Join(faults, fmt.Errorf("remove %s: %w", t.What, err))
			}
		}
		return len(found) == 0
	})
	if err != nil {
		return errors.Join(err, faults)
	}
	return nil
}

// keeperTraces finds the descendants of the keeper. It finds as well the cgroups at the
// top named evictd- in which it ever found one of them: a program that tests run may make
// its own.
func keeperTraces() func(string) []Trace {
	groups := map[string]bool{}
	return func(string) (found []Trace) {
		own := topCgroups(os.Getpid())
		for _, pid := range descendants(os.Getpid()) {
			line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
			process := ProcessTrace(pid, line)
			if isKeeper(line) {
				process.Remove = func() error { return nil } // it ends by itself
			}
			found = append(found, process)
			for _, group := range topCgroups(pid) {
				if strings.HasPrefix(group, "evictd-") && !slices.Contains(own, group) {
					groups[group] = true
				}
			}
		}
		mounts := mountTable()
		for group := range groups {
			found = append(found, cgroups(group, mounts)...)
		}
		return found
	}
}

// ProcessTrace is a process with its command line, as /proc/PID/cmdline has it.
func ProcessTrace(pid int, line []byte) Trace {
	return Trace{fmt.Sprintf("process %d, %s", pid, bytes.ReplaceAll(line, []byte{0}, []byte{' '})), func() error { return kill(pid) }}
}

// kill ends a process, which may have ended.
func kill(pid int) error {
	if err := syscall.Kill(pid, syscall.SIGKILL); !errors.Is(err, syscall.ESRCH) {
		return err
	}
	return nil
}

// children are the processes that a process has started, or became the parent of; see
// proc_pid_task(5).
func children(pid int) (found []int) {
	files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, file := range files {
		text, _ := os.ReadFile(file) // the thread may have ended
		for field := range strings.FieldsSeq(string(text)) {
			child, _ := strconv.Atoi(field)
			found = append(found, child)
		}
	}
	return found
}

// descendants are the processes below a process that have not ended. A keeper is one of
// them, but not the descendants of a keeper: it removes its own.
func descendants(pid int) (found []int) {
	for _, child := range children(pid) {
		if hasEnded(child) {
			continue
		}
		found = append(found, child)
		line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", child))
		if !isKeeper(line) {
			found = append(found, descendants(child)...)
		}
	}
	return found
}

// hasEnded says whether a process is gone or a zombie, by /proc/PID/stat. Its command line
// does not say so: it is empty as well in the middle of execve(2).
func hasEnded(pid int) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return true
	}
	_, state, _ := bytes.Cut(text[max(0, bytes.LastIndexByte(text, ')')):], []byte(" "))
	return bytes.HasPrefix(state, []byte("Z")) || bytes.HasPrefix(state, []byte("X"))
}

// isKeeper says whether a command line is a keeper's.
func isKeeper(line []byte) bool { return bytes.HasPrefix(line, []byte(keeperName+"\x00")) }

// topCgroups are the first elements of the cgroups of a process, see cgroups(7).
func topCgroups(pid int) (groups []string) {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	for line := range strings.Lines(string(text)) {
		if fields := strings.SplitN(strings.TrimSpace(line), ":", 3); len(fields) == 3 {
			top, _, _ := strings.Cut(strings.TrimPrefix(fields[2], "/"), "/")
			groups = append(groups, top)
		}
	}
	return groups
}

func mountTable() []procfs.Mount {
	text, _ := os.ReadFile("/proc/self/mountinfo")
	table, _ := procfs.ReadMounts(bytes.NewReader(text))
	return table
}

func mountsBelow(dir string, table []procfs.Mount) (found []Trace) {
	for _, m := range slices.Backward(table) {
		if strings.HasPrefix(m.Point, dir+"/") {
			found = append(found, Trace{"mount of " + m.Type + " at " + m.Point, func() error { return syscall.Unmount(m.Point, 0) }})
		}
	}
	return found
}

// CgroupOf is the cgroup of what is in a directory of Dir. The names of a run's cgroups
// begin with that of its directory and a dash.
func CgroupOf(dir string) string {
	return "/" + strings.ReplaceAll(dir[strings.LastIndex(dir, "/"+dirName)+1:], "/", "-")
}

// SliceOf is CgroupOf as a kubelet with the cgroup driver systemd names it, a slice at the top.
func SliceOf(dir string) string { return strings.ReplaceAll(CgroupOf(dir), "-", "_") + ".slice" }

// cgroups finds a cgroup, and those whose names continue with a dash.
func cgroups(group string, table []procfs.Mount) (found []Trace) {
	for _, at := range append(cgroupsAt(group, table), cgroupsAt(group+"-*", table)...) {
		found = append(found, Trace{"cgroup " + at, func() error { return removeCgroup(at) }})
	}
	return found
}

// CgroupsAt are the directories of the cgroups that match a pattern, in every hierarchy:
// a container runtime makes cgroups in more of them than evictd does.
func CgroupsAt(pattern string) []string { return cgroupsAt(pattern, mountTable()) }

func cgroupsAt(pattern string, table []procfs.Mount) (found []string) {
	for _, m := range table {
		if m.Type == "cgroup" || m.Type == "cgroup2" {
			here, _ := filepath.Glob(filepath.Join(m.Point, pattern))
			found = append(found, here...)
		}
	}
	return found
}

// RemoveCgroup kills the processes in a cgroup and below it, and removes it in every
// hierarchy.
func RemoveCgroup(t testing.TB, group string) {
	t.Helper()
	Await(t, "cgroup "+group+" to be removed", func() bool {
		left := CgroupsAt(group)
		for _, at := range left {
			_ = removeCgroup(at) // it fails while processes end
		}
		return len(left) == 0
	})
}

// removeCgroup kills the processes in a cgroup and removes it, as far as it can. On v1 a
// frozen process ends only once it is thawed.
func removeCgroup(at string) error {
	var groups []string
	_ = filepath.WalkDir(at, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.IsDir() {
			groups = append(groups, path)
		}
		return nil // a cgroup may vanish meanwhile
	})
	for _, group := range slices.Backward(groups) {
		_ = os.WriteFile(filepath.Join(group, "freezer.state"), []byte("THAWED"), 0)
		_ = os.WriteFile(filepath.Join(group, "cgroup.freeze"), []byte("0"), 0)
		pids, _ := os.ReadFile(filepath.Join(group, "cgroup.procs"))
		for text := range strings.FieldsSeq(string(pids)) {
			if pid, err := strconv.Atoi(text); err == nil && pid > 0 {
				_ = kill(pid)
			}
		}
	}
	var faults error
	for _, group := range slices.Backward(groups) {
		if err := syscall.Rmdir(group); err != nil && !errors.Is(err, syscall.ENOENT) {
			faults = errors.Join(faults, err)
		}
	}
	return faults
}

// loopDevices are those with a file below the directory. One without a mount that clears
// itself is held by another mount namespace alone, which was made with a copy of all
// mounts.
func loopDevices(dir string, table []procfs.Mount) (found []Trace) {
	files, _ := filepath.Glob("/sys/block/loop*/loop/backing_file")
	for _, file := range files {
		image, _ := os.ReadFile(file)
		clears, _ := os.ReadFile(filepath.Join(filepath.Dir(file), "autoclear"))
		foreign := string(clears) == "1\n" && len(mountsBelow(filepath.Dir(string(image)), table)) == 0
		if strings.HasPrefix(string(image), dir+"/") && !foreign {
			device := filepath.Join("/dev", filepath.Base(filepath.Dir(filepath.Dir(file))))
			found = append(found, Trace{"loop device " + device, func() error { return detach(device) }})
		}
	}
	return found
}

// loopClear is LOOP_CLR_FD, see loop(4).
const loopClear = 0x4c01

func detach(device string) error {
	file, err := os.Open(device)
	if err != nil {
		return err
	}
	defer file.Close()
	if _, _, errno := syscall.Syscall(syscall.SYS_IOCTL, file.Fd(), loopClear, 0); errno != 0 && errno != syscall.ENXIO {
		return errno
	}
	return nil
}
