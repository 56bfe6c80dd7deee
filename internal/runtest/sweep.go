package runtest

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// trace is something outside a directory that exists because of what happened
// inside it.
type trace struct {
	what   string
	remove func() error
}

// Sweep removes what is left of a directory below Dir, whatever state it is in:
// processes of container runtimes and of evictd that have it in their arguments, the
// sockets of shims, cgroups named after it and who lives there, mounts and loop devices.
func Sweep(dir string) error {
	return sweep(func() []trace { return append(processes(dir), traces(dir)...) })
}

// GroupOf is the cgroup that Sweep removes with a directory below Dir.
func GroupOf(dir string) string {
	return "/" + strings.ReplaceAll(strings.TrimPrefix(dir, filepath.Dir(Dir())+"/"), "/", "-")
}

// traces finds what a directory leaves behind that is neither in it nor a process, in
// the order in which it can be removed.
func traces(dir string) []trace {
	mounts := mountTable()
	return slices.Concat(sockets(dir), cgroups(GroupOf(dir), mounts), mountsBelow(dir, mounts), loopDevices(dir, mounts))
}

// sweep removes everything that is found, until nothing is. It gives up where that gets
// no less.
func sweep(find func() []trace) error {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	var deadline time.Time
	for fewest := math.MaxInt; ; {
		found := find()
		if len(found) == 0 {
			return nil
		}
		if len(found) < fewest {
			fewest, deadline = len(found), time.Now().Add(Patience)
		}
		var faults error
		for _, t := range found {
			if err := t.remove(); err != nil {
				faults = errors.Join(faults, fmt.Errorf("remove %s: %w", t.what, err))
			}
		}
		if time.Now().After(deadline) {
			return errors.Join(faults, fmt.Errorf("%s is left behind", found[0].what))
		}
		<-tick.C
	}
}

// daemons are the programs that have the directory in their arguments.
var daemons = []string{"containerd", "containerd-shim-runc-v2", "runc", "ctr", "evictd"}

func processes(dir string) (found []trace) {
	commands, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, command := range commands {
		line, _ := os.ReadFile(command) // empty once it has ended
		program, arguments, _ := bytes.Cut(line, []byte{0})
		if !slices.Contains(daemons, filepath.Base(string(program))) || !bytes.Contains(arguments, []byte(dir+"/")) {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(command)))
		if err != nil {
			continue
		}
		found = append(found, trace{fmt.Sprintf("process %d, %s", pid, bytes.ReplaceAll(line, []byte{0}, []byte{' '})), func() error { return end(pid) }})
	}
	return found
}

func end(pid int) error {
	if err := syscall.Kill(pid, syscall.SIGKILL); !errors.Is(err, syscall.ESRCH) {
		return err
	}
	return nil
}

// Where a shim's bundle says what it listens on. The socket itself is below
// /run/containerd, wherever containerd's own state is.
var (
	bundles      = []string{"state/io.containerd.runtime.v2.task/*/*/address", "state/io.containerd.runtime.v2.task/*/*/bootstrap.json"}
	shimListener = regexp.MustCompile(`unix://(/[^"\s]+)`)
)

func sockets(dir string) (found []trace) {
	for _, bundle := range bundles {
		here, _ := filepath.Glob(filepath.Join(dir, bundle))
		below, _ := filepath.Glob(filepath.Join(dir, "*", bundle))
		for _, file := range append(here, below...) {
			text, _ := os.ReadFile(file)
			socket := shimListener.FindSubmatch(text)
			if socket == nil {
				continue
			}
			path := string(socket[1])
			if _, err := os.Lstat(path); err == nil {
				found = append(found, trace{"socket " + path, func() error { return os.RemoveAll(path) }})
			}
		}
	}
	return found
}

// mounted is a line of the mount table.
type mounted struct{ point, kind string }

// mountTable reads /proc/self/mountinfo, see proc_pid_mountinfo(5).
func mountTable() (table []mounted) {
	text, _ := os.ReadFile("/proc/self/mountinfo")
	for line := range strings.Lines(string(text)) {
		before, after, _ := strings.Cut(line, " - ")
		mount, kind := strings.Fields(before), strings.Fields(after)
		if len(mount) > 4 && len(kind) > 0 {
			table = append(table, mounted{mount[4], kind[0]})
		}
	}
	return table
}

func mountsBelow(dir string, table []mounted) (found []trace) {
	for _, m := range slices.Backward(table) {
		if strings.HasPrefix(m.point, dir+"/") {
			found = append(found, trace{"mount of " + m.kind + " at " + m.point, func() error { return syscall.Unmount(m.point, 0) }})
		}
	}
	return found
}

// cgroups finds a group, and those whose names go on after its name and a dash.
func cgroups(group string, table []mounted) (found []trace) {
	for _, at := range append(groupsAt(group, table), groupsAt(group+"-*", table)...) {
		found = append(found, trace{"cgroup " + at, func() error { return removeGroup(at) }})
	}
	return found
}

// groupsAt are the directories of a group, or of those that match a pattern, in
// every hierarchy: the container runtime makes groups in more of them than evictd
// does.
func groupsAt(group string, table []mounted) (found []string) {
	for _, m := range table {
		if m.kind == "cgroup" || m.kind == "cgroup2" {
			here, _ := filepath.Glob(filepath.Join(m.point, group))
			found = append(found, here...)
		}
	}
	return found
}

// RemoveGroup ends the processes of a cgroup and below it, and removes it in every
// hierarchy. It fails while they end.
func RemoveGroup(group string) error {
	var faults error
	for _, at := range groupsAt(group, mountTable()) {
		faults = errors.Join(faults, removeGroup(at))
	}
	return faults
}

// removeGroup ends whoever lives in a group and removes it, as far as it can: on
// v1 who is frozen dies only once thawed.
func removeGroup(at string) error {
	var groups []string
	_ = filepath.WalkDir(at, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.IsDir() {
			groups = append(groups, path)
		}
		return nil // it is normal that a group vanishes
	})
	for _, group := range slices.Backward(groups) {
		_ = os.WriteFile(filepath.Join(group, "freezer.state"), []byte("THAWED"), 0)
		_ = os.WriteFile(filepath.Join(group, "cgroup.freeze"), []byte("0"), 0)
		pids, _ := os.ReadFile(filepath.Join(group, "cgroup.procs"))
		for text := range strings.FieldsSeq(string(pids)) {
			if pid, err := strconv.Atoi(text); err == nil && pid > 0 {
				_ = end(pid)
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

// loopDevices finds those with a file below the directory. One that is mounted no
// more and goes by itself is held by another mount namespace alone, which was made
// meanwhile with a copy of all mounts.
func loopDevices(dir string, table []mounted) (found []trace) {
	files, _ := filepath.Glob("/sys/block/loop*/loop/backing_file")
	for _, file := range files {
		image, _ := os.ReadFile(file)
		clears, _ := os.ReadFile(filepath.Join(filepath.Dir(file), "autoclear"))
		foreign := string(clears) == "1\n" && len(mountsBelow(filepath.Dir(string(image)), table)) == 0
		if strings.HasPrefix(string(image), dir+"/") && !foreign {
			device := filepath.Join("/dev", filepath.Base(filepath.Dir(filepath.Dir(file))))
			found = append(found, trace{"loop device " + device, func() error { return detach(device) }})
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
