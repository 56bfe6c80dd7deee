package collect

import (
	"errors"
	"io/fs"
	"log/slog"
	"math"
	"sync/atomic"
	"time"

	"github.com/evictd/evictd/cgroup"
	"github.com/evictd/evictd/stats"
)

// NodeConfig says where the node is measured.
type NodeConfig struct {
	// Host is prepended to /proc; "" on the host itself.
	Host string
	// Cgroups is where the node's memory is measured; nil where Virtual is used.
	Cgroups *cgroup.System
	// Root is the group taken as the node, from Cgroups.Resolve; "" is the top.
	Root string
	// Pods is the name of the group of all pods below Root; "" finds
	// kubepods or kubepods.slice.
	Pods string
	// Disks are the node's filesystems.
	Disks *Disks
	// Virtual is the memory of a node without usable cgroups.
	Virtual *VirtualMemory
}

// Node reads the node. Reading a source again allocates nothing.
type Node struct {
	log      *slog.Logger
	cgroups  *cgroup.System
	disks    *Disks
	virtual  *VirtualMemory
	root     group
	pods     group
	tasks    tasks
	pressure [numPressures]procFile
	absent   [numPressures]error // the kernel has no such pressure file
	meminfo  procFile
	sources  []*source
	above    cgroup.LimitsAbove
	machine  stats.Amount // MemTotal
	spare    [2]int64     // of the running Read
	stalls   bool         // of the pods, in the running Read
}

// source is one reading function. Its failure is logged once, and its recovery; for an
// optional source, which the kernel may not have, only after the first success.
type source struct {
	name     string
	read     func(*stats.Node) error
	optional bool
	lost     bool
	fault    atomic.Pointer[error] // of the last read; nil for none
}

// NewNode opens nothing. A source that cannot be read is retried at every Read, but for the machine's
// pressure, which a kernel has from its boot or never.
func NewNode(cfg NodeConfig, log *slog.Logger) *Node {
	n := &Node{log: log, cgroups: cfg.Cgroups, disks: cfg.Disks, virtual: cfg.Virtual, tasks: newTasks(cfg.Host)}
	if cfg.Virtual == nil {
		n.meminfo.path = cfg.Host + "/proc/meminfo"
		n.sources = append(n.sources, &source{name: "swap", read: n.readSwap})
	}
	n.sources = append(n.sources, &source{name: "memory", read: n.readMemory})
	if cfg.Cgroups != nil {
		n.pods.open = cfg.openPods
		n.root.open = func() (*cgroup.Group, error) {
			n.above.Close()
			n.above = cfg.Cgroups.LimitsAbove(cfg.Root)
			return cfg.openRoot()
		}
		n.sources = append(n.sources, &source{name: "pods memory", read: n.readPodsMemory})
	}
	n.sources = append(n.sources, cfg.Disks.sources()...)
	n.sources = append(n.sources, &source{name: "tasks", read: n.readTasks})
	for p, name := range pressures {
		n.pressure[p].path = cfg.Host + "/proc/pressure/" + name
		n.sources = append(n.sources, &source{
			name:     name + " pressure",
			read:     func(s *stats.Node) error { return n.readPressure(cgroup.Resource(p), s) },
			optional: true,
			lost:     true,
		})
	}
	return n
}

func (cfg *NodeConfig) openRoot() (*cgroup.Group, error) {
	if cfg.Cgroups == nil {
		return nil, errors.ErrUnsupported
	}
	return cfg.Cgroups.Open(cfg.Root)
}

func (cfg *NodeConfig) openPods() (*cgroup.Group, error) {
	if cfg.Cgroups == nil {
		return nil, errors.ErrUnsupported
	}
	pods, err := cfg.Cgroups.FindPods(cfg.Root, cfg.Pods)
	if err != nil {
		return nil, err
	}
	return cfg.Cgroups.Open(pods.Path())
}

const numPressures = 3

var pressures = [numPressures]string{cgroup.MemoryStall: "memory", cgroup.IOStall: "io", cgroup.CPUStall: "cpu"}

// Ask is what a Read is to measure.
type Ask struct {
	// Disks requests new figures of disks, which are measured on other goroutines.
	Disks bool
	// Spare of the node and of the pods, bytes, see cgroup.Group.MemoryFar; nothing has all
	// figures read.
	Spare *[2]int64
	// Stalls asks for those of the pods' memory.
	Stalls bool
}

// Read measures the node. A source that fails leaves its values unknown; the failure
// and the recovery are logged. Disks have their last figures.
func (n *Node) Read(s *stats.Node, ask Ask) {
	*s = stats.Node{Time: time.Now()}
	n.spare = [2]int64{math.MaxInt64, math.MaxInt64}
	if ask.Spare != nil {
		n.spare = *ask.Spare
	}
	n.stalls = ask.Stalls
	if ask.Disks {
		n.disks.request(s.Time)
	}
	for _, src := range n.sources {
		err := src.read(s)
		if before := src.fault.Load(); err == nil && before != nil {
			src.fault.Store(nil)
		} else if err != nil && (before == nil || *before != err && (*before).Error() != err.Error()) {
			kept := err // err stays on the stack
			src.fault.Store(&kept)
		}
		switch {
		case err != nil && !src.lost:
			src.lost = true
			n.log.Warn("a source of measurements failed", "source", src.name, "error", err)
		case err == nil && src.lost:
			src.lost = false
			if !src.optional {
				n.log.Info("a source of measurements works again", "source", src.name)
			}
			src.optional = false
		}
	}
}

// Fault is why a source could not be read at the last Read: memory, pods memory, swap, nodefs, imagefs, containerfs,
// tasks, or memory pressure. Any goroutine may call it.
func (n *Node) Fault(name string) error {
	for _, src := range n.sources {
		if err := src.fault.Load(); src.name == name && err != nil {
			return *err
		}
	}
	return nil
}

// Close closes what is open.
func (n *Node) Close() {
	n.root.close()
	n.above.Close()
	n.pods.close()
	n.tasks.close()
	n.meminfo.file.Close()
	for i := range n.pressure {
		n.pressure[i].file.Close()
	}
}

func (n *Node) readMemory(s *stats.Node) error {
	switch {
	case n.cgroups != nil:
		err := n.root.read(func(g *cgroup.Group) error { return g.MemoryFar(&s.Memory, n.spare[0]) })
		s.Memory.Limit = s.Memory.Limit.Least(n.above.Least()).Least(n.machine)
		return err
	case n.virtual != nil:
		return n.virtual.read(&s.Memory)
	}
	return errors.New("neither cgroups nor processes to measure")
}

func (n *Node) readPodsMemory(s *stats.Node) error {
	return n.pods.read(func(g *cgroup.Group) (err error) {
		if n.stalls {
			if s.PodsStall, err = g.Pressure(cgroup.MemoryStall); err != nil {
				return err
			}
		}
		return g.MemoryFar(&s.PodsMemory, n.spare[1])
	})
}

// readSwap reads the swap of the machine, which a group taken as the node has, too, and MemTotal.
func (n *Node) readSwap(s *stats.Node) error {
	var buf [4096]byte
	b, err := n.meminfo.read(buf[:])
	s.Swap, n.machine = cgroup.ParseSwap(b)
	return err
}

func (n *Node) readTasks(s *stats.Node) error { return n.tasks.read(n.root.group, &s.Tasks) }

// readPressure reads the pressure of the node's group, or of the machine where the
// group has none.
func (n *Node) readPressure(r cgroup.Resource, s *stats.Node) error {
	to := [numPressures]*stats.Stall{cgroup.MemoryStall: &s.MemoryStall, cgroup.IOStall: &s.IOStall, cgroup.CPUStall: &s.CPUStall}[r]
	if n.root.group != nil {
		stall, err := n.root.group.Pressure(r)
		if err == nil && stall.Known {
			*to = stall
			return nil
		}
	}
	if n.absent[r] != nil {
		return n.absent[r]
	}
	var buf [256]byte
	b, err := n.pressure[r].read(buf[:])
	if errors.Is(err, fs.ErrNotExist) {
		n.absent[r] = err
	}
	if err != nil {
		return err
	}
	*to = cgroup.ParsePressure(b)
	return nil
}

// group is a cgroup that is opened when it exists, and again when it was recreated. It stays open
// where there is room.
type group struct {
	open  func() (*cgroup.Group, error)
	room  *cgroup.Room
	group *cgroup.Group // nil while it is not open
}

// read reads the group; if it was removed, the group now at its path.
func (g *group) read(from func(*cgroup.Group) error) error {
	opened, kept := g.group, g.group != nil
	if !kept {
		var err error
		if opened, err = g.open(); err != nil {
			return err
		}
		if g.room.Take() {
			g.group = opened
		} else {
			defer opened.Close()
		}
	}
	err := from(opened)
	if !errors.Is(err, cgroup.ErrGone) {
		return err
	}
	g.close()
	if kept {
		return g.read(from)
	}
	return err
}

func (g *group) close() {
	if g.group != nil {
		g.group.Close()
		g.group = nil
		g.room.Give()
	}
}

// procFile is a file of /proc that is opened at its first read.
type procFile struct {
	path string
	file cgroup.File
}

func (f *procFile) read(buf []byte) ([]byte, error) {
	if f.file == (cgroup.File{}) {
		opened, err := cgroup.OpenFile(f.path)
		if err != nil {
			return nil, err
		}
		f.file = opened
	}
	return f.file.Read(buf)
}
