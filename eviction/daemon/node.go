package daemon

import (
	"cmp"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/evictd/evictd/cgroup"
	"github.com/evictd/evictd/eviction"
	"github.com/evictd/evictd/eviction/config"
	"github.com/evictd/evictd/internal/cli"
	"github.com/evictd/evictd/internal/manifest"
	"github.com/evictd/evictd/internal/procfs"
	"github.com/evictd/evictd/nodestatus"
	"github.com/evictd/evictd/stats"
	"github.com/evictd/evictd/stats/collect"
)

// maxPods is how many pods a node takes (kubelet, maxPods).
const maxPods = 110

// statfsPatience is how long the start waits for a filesystem that does not
// answer.
const statfsPatience = 3 * time.Second

// node is the host as the settings describe it: where to measure, and what was
// measured first.
type node struct {
	name      string
	mode      nodestatus.Mode
	cgroups   *cgroup.System // nil where the node is a virtual one
	root      string
	processes *collect.Processes
	collect   collect.NodeConfig
	nodeFs    string
	kubelet   Kubelet
	first     stats.Node

	capacity, allocatable v1.ResourceList
	podsLimit             stats.Amount // memory of the pods' cgroup; unknown: not enforced
}

// openNode finds everything that the settings name. What is not there yet is logged, and
// measured when it is. leaders are the session leaders of the pods, for a virtual node.
func openNode(run *config.Run, compiled *config.Config, leaders func() []int, log *slog.Logger) (*node, error) {
	n := &node{name: run.NodeName, processes: collect.NewProcesses("")}
	if n.name == "" {
		host, err := os.Hostname()
		if err != nil {
			return nil, fmt.Errorf("find the node's name: %w", err)
		}
		n.name = strings.ToLower(host)
	}
	var err error
	if n.mode, err = nodestatus.ParseMode(cmp.Or(run.Mode, defaultMode(run).String())); err != nil {
		return nil, err
	}
	n.nodeFs = cmp.Or(run.NodeFs, defaultNodeFs())
	n.kubelet = FindKubelet(n.nodeFs)
	n.collect = collect.NodeConfig{
		Pods:  run.PodsCgroup,
		Disks: collect.NewDisks(collect.Paths{NodeFs: n.nodeFs, ImageFs: run.ImageFs, ContainerFs: run.ContainerFs}, log),
	}
	if err := n.openMemory(run, leaders, log); err != nil {
		return nil, err
	}
	for _, missing := range manifest.Faults(n.collect.Disks.Measure(statfsPatience)) {
		log.Warn("a filesystem cannot be measured yet: nothing is evicted for it until it can", "error", missing)
	}
	return n, n.measure(run, compiled, log)
}

// alone reports whether evictd does what a kubelet would do: in native mode, without a kubelet.
func (n *node) alone() bool { return n.mode == nodestatus.Native && !n.kubelet.Found() }

// layout is as the disks were when last measured.
func (n *node) layout() eviction.Layout {
	layout, _ := eviction.ParseLayout(n.collect.Disks.Layout().String())
	return layout
}

// openMemory decides where memory is measured: in cgroups, or for a node that
// was given its memory in the pods' processes.
func (n *node) openMemory(run *config.Run, leaders func() []int, log *slog.Logger) error {
	if run.NodeMemory != "" {
		q, err := resource.ParseQuantity(run.NodeMemory)
		if err != nil {
			return err
		}
		n.collect.Virtual = &collect.VirtualMemory{Capacity: q.Value(), Processes: n.processes, Leaders: leaders}
		return nil
	}
	var err error
	if n.cgroups, err = cgroup.Discover(""); err != nil {
		return cli.BadInput(fmt.Errorf("%w; give --node-memory to measure pods by their processes", err))
	}
	if n.root, err = n.cgroups.Resolve(run.CgroupRoot); n.root == "" {
		return cli.BadInput(err)
	}
	if err != nil {
		log.Warn("the cgroup taken as the node cannot be measured yet: no pod is evicted for memory until it can", "error", err)
	}
	n.collect.Cgroups, n.collect.Root = n.cgroups, n.root
	return nil
}

// measure reads the node for the first time, and holds the configuration
// against its capacity.
func (n *node) measure(run *config.Run, compiled *config.Config, log *slog.Logger) error {
	reader := collect.NewNode(n.collect, slog.New(slog.DiscardHandler)) // the loop logs what is missing
	defer reader.Close()
	reader.Read(&n.first, collect.Ask{})
	o := (&eviction.Observer{}).Observe(&n.first)
	warnings, err := checkCapacity(compiled, o)
	if err != nil {
		return cli.BadInput(err)
	}
	for _, warning := range warnings {
		log.Warn("configuration", "warning", warning)
	}
	n.capacity = v1.ResourceList{
		v1.ResourceCPU:  *resource.NewQuantity(int64(runtime.NumCPU()), resource.DecimalSI),
		v1.ResourcePods: *resource.NewQuantity(maxPods, resource.DecimalSI),
	}
	for name, amount := range map[v1.ResourceName]stats.Amount{
		v1.ResourceMemory: n.first.Memory.Limit, v1.ResourceEphemeralStorage: n.first.NodeFs.Capacity,
	} {
		if size, known := amount.Get(); known {
			n.capacity[name] = *resource.NewQuantity(size, resource.BinarySI)
		}
	}
	reserved := nodestatus.Reserved{System: compiled.SystemReserved, Kube: compiled.KubeReserved, Hard: hardThresholds(compiled, &o)}
	for _, list := range []v1.ResourceList{compiled.SystemReserved, compiled.KubeReserved} {
		for name := range list { // a resource without a measured capacity is not reserved
			if _, known := n.capacity[name]; !known {
				delete(list, name)
			}
		}
	}
	if n.allocatable, err = reserved.Allocatable(n.capacity); err != nil {
		small := n.capacity[v1.ResourceEphemeralStorage]
		withoutDisk := maps.Clone(n.capacity)
		delete(withoutDisk, v1.ResourceEphemeralStorage)
		for _, list := range []v1.ResourceList{reserved.System, reserved.Kube, reserved.Hard} {
			delete(list, v1.ResourceEphemeralStorage)
		}
		if n.allocatable, err = reserved.Allocatable(withoutDisk); err != nil {
			return cli.InFile("systemReserved, kubeReserved and evictionHard", err)
		}
		n.capacity = withoutDisk
		log.Warn("the node has no capacity of ephemeral-storage: more is reserved than the disk has, which another may be mounted over", "path", n.nodeFs, "capacity", small.String())
	}
	if limit, known := reserved.PodsLimit(n.capacity, v1.ResourceMemory); known && compiled.EnforcePods && run.PodsCgroup != "" {
		n.podsLimit = stats.Known(limit.Value())
	}
	return nil
}

// checkCapacity compares the thresholds with what was observed. A threshold above the capacity of a disk is a
// warning: that of the disk under a mount point, until another is mounted.
func checkCapacity(compiled *config.Config, o eviction.Observations) (warnings []string, err error) {
	disks := o
	for _, s := range eviction.Signals() {
		if s.Condition() == eviction.DiskPressure {
			o[s] = eviction.Observation{}
		} else {
			disks[s] = eviction.Observation{}
		}
	}
	warnings, err = compiled.CheckCapacity(o)
	ofDisks, small := compiled.CheckCapacity(disks)
	for _, fault := range manifest.Faults(small) {
		warnings = append(warnings, fmt.Sprintf("%v: the threshold is not evaluated until a larger disk is mounted there", fault))
	}
	return append(warnings, ofDisks...), err
}

// scenarioCapacity is what a scenario says of the node: its memory and process ids.
func (n *node) scenarioCapacity() v1.ResourceList {
	list := v1.ResourceList{}
	if memory, known := n.capacity[v1.ResourceMemory]; known {
		list[v1.ResourceMemory] = memory
	}
	if most, known := n.first.Tasks.Max.Get(); known {
		list["pid"] = *resource.NewQuantity(most, resource.DecimalSI)
	}
	return list
}

// hardThresholds are the amounts that hard thresholds keep from scheduling.
func hardThresholds(compiled *config.Config, o *eviction.Observations) v1.ResourceList {
	hard := v1.ResourceList{}
	for i := range compiled.Eviction.Thresholds {
		t := &compiled.Eviction.Thresholds[i]
		name, counts := map[eviction.Signal]v1.ResourceName{
			eviction.MemoryAvailable: v1.ResourceMemory, eviction.NodeFsAvailable: v1.ResourceEphemeralStorage,
		}[t.Signal]
		if amount, known := t.Value.Of(o[t.Signal]); counts && known && t.Hard() && !t.AboveDisk(o[t.Signal]) {
			hard[name] = *resource.NewQuantity(amount, resource.BinarySI)
		}
	}
	return hard
}

// defaultMode uses the names of our own where a cluster around the node may have
// an eviction manager of its own.
func defaultMode(run *config.Run) nodestatus.Mode {
	if hasAPI(run) && !strings.HasPrefix(run.Server, "unix:") {
		return nodestatus.Backstop
	}
	return nodestatus.Native
}

// defaultNodeFs is the kubelet's directory, or the root where there is none.
func defaultNodeFs() string {
	const kubelet = "/var/lib/kubelet"
	if info, err := os.Stat(kubelet); err == nil && info.IsDir() {
		return kubelet
	}
	return "/"
}

// statusField is a line of /proc/PID/status (proc_pid_status(5)), which escapes the
// ends of lines in the process's name.
func statusField(text []byte, name string) string {
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, name+":"); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// ownSession is the daemon's session, or zero.
func ownSession() int {
	line, err := os.ReadFile("/proc/self/stat")
	if err != nil {
		return 0
	}
	stat, _ := procfs.ParseStat(line)
	return stat.Session
}

// CapabilitySet has a bit for each capability of a process (capabilities(7)).
type CapabilitySet uint64

// Capabilities that the daemon uses (linux/capability.h).
const (
	CapDACOverride = 1
	CapKill        = 5
	CapIPCLock     = 14
	CapSysPtrace   = 19
	CapSysNice     = 23
	CapSysResource = 24
)

// Capabilities reads the effective set of this process; none if it cannot be read.
func Capabilities() CapabilitySet {
	p, _ := PrivilegesOf("self")
	return p.Capabilities
}

// Privileges are what a process may do, and whether it has locked memory.
type Privileges struct {
	Program      string // its name, of 15 bytes at most
	Capabilities CapabilitySet
	Locked       bool
}

// PrivilegesOf reads those of a process, a directory of /proc, from its status.
func PrivilegesOf(process string) (Privileges, error) {
	status, err := os.ReadFile(filepath.Join("/proc", process, "status"))
	if err != nil {
		return Privileges{}, err
	}
	set, err := strconv.ParseUint(statusField(status, "CapEff"), 16, 64)
	locked := statusField(status, "VmLck")
	return Privileges{
		Program: statusField(status, "Name"), Capabilities: CapabilitySet(set), Locked: locked != "" && locked != "0 kB",
	}, err
}

// Has says whether a capability is in the set.
func (s CapabilitySet) Has(capability int) bool { return s&(1<<capability) != 0 }

// mayAct says why the daemon could not end pods whose processes belong to other
// users, or nothing.
func mayAct() error {
	if set := Capabilities(); os.Geteuid() != 0 && !(set.Has(CapKill) && set.Has(CapDACOverride)) {
		return fmt.Errorf("user %d may not end other users' processes: run evictd as root, or with CAP_KILL and CAP_DAC_OVERRIDE, or give --dry-run", os.Geteuid())
	}
	return nil
}
