package sandbox

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/evictd/evictd/cgroup"
	"github.com/evictd/evictd/stats"
)

// Driver is a cgroup driver of the kubelet, which names the cgroups of pods and
// containers.
type Driver string

// The kubelet's drivers. The zero value of Driver is Cgroupfs.
const (
	Cgroupfs Driver = "cgroupfs"
	Systemd  Driver = "systemd"
)

// DriverVariable names the Driver of the nodes of tests.
const DriverVariable = "EVICTD_CGROUP_DRIVER"

// PodsGroup is the name of the cgroup of the pods below a node's.
func (n *Node) PodsGroup() string {
	if n.Driver == Systemd {
		return "kubepods.slice"
	}
	return "kubepods"
}

// Container is the cgroup that the container runtime gives the container of a pod's
// cgroup. containerd names it by an id of 64 hexadecimal digits for the systemd driver.
func (n *Node) Container(pod string) string {
	if n.Driver == Systemd {
		return filepath.Join(pod, fmt.Sprintf("cri-containerd-%x.scope", sha256.Sum256([]byte(pod))))
	}
	return filepath.Join(pod, "c")
}

// hasUnits says whether systemd makes the cgroups of the pods, as its units. systemd has no
// units below a cgroup that is not a slice of its own: there the sandbox makes cgroups of
// the same names.
func (n *Node) hasUnits() bool { return n.Driver == Systemd && n.Group == "/" }

// Make makes a cgroup of a pod or above it, or sets the limits of one.
func (n *Node) Make(group string, l cgroup.Limits) error {
	if !n.hasUnits() {
		return n.Cgroups.Create(group, l)
	}
	unit := filepath.Base(group)
	if strings.HasSuffix(unit, ".slice") {
		if err := systemctl("start", unit); err != nil {
			return err
		}
	}
	if limits := properties(l); len(limits) > 0 {
		return systemctl(append([]string{"set-property", "--runtime", unit}, limits...)...)
	}
	return nil
}

// properties are limits as those of a unit, see systemd.resource-control(5). systemd
// overwrites what others write to the files of its cgroups.
func properties(l cgroup.Limits) (set []string) {
	add := func(format string, limit stats.Amount, scale func(int64) int64) {
		if value, limited := limit.Get(); limited {
			set = append(set, fmt.Sprintf(format, scale(value)))
		}
	}
	same := func(value int64) int64 { return value }
	add("MemoryMax=%d", l.Memory, same)
	add("TasksMax=%d", l.PIDs, same)
	add("CPUWeight=%d", l.CPUShares, func(shares int64) int64 { return 1 + (shares-2)*9999/262142 }) // as the kubelet and runc do
	add("CPUQuota=%d%%", l.CPUQuota, func(micros int64) int64 { return micros / 1000 })              // of 100 ms
	return set
}

// Delete removes a cgroup of a pod, or above it, that has no process. A cgroup that does
// not exist is no error.
func (n *Node) Delete(group string) error {
	var err error
	if n.hasUnits() && n.exists(group) {
		err = systemctl("stop", filepath.Base(group))
	}
	return errors.Join(err, n.Cgroups.Delete(group))
}

func (n *Node) exists(group string) bool {
	opened, err := n.Cgroups.Open(group)
	if err == nil {
		opened.Close()
	}
	return err == nil
}

func systemctl(args ...string) error {
	if out, err := exec.Command("systemctl", args...).CombinedOutput(); err != nil {
		return fmt.Errorf("systemctl %s: %w: %s", strings.Join(args, " "), err, out)
	}
	return nil
}

// inScope has systemd make the cgroup of a container, a scope in the slice of its pod, and
// the slices above it, with the properties that runc asks for. systemd-run executes the
// program in place of itself.
func inScope(container string, program string, args []string) *exec.Cmd {
	return exec.Command("systemd-run", append([]string{
		"--scope", "--quiet", "--collect",
		"--slice=" + filepath.Base(filepath.Dir(container)), "--unit=" + filepath.Base(container),
		"--property=Delegate=yes", "--property=TasksMax=infinity", "--property=MemoryAccounting=yes", "--property=CPUAccounting=yes", "--property=CPUWeight=100",
		"--", program,
	}, args...)...)
}
