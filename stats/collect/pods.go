package collect

import (
	"errors"
	"path/filepath"
	"slices"
	"time"

	"github.com/evictd/evictd/cgroup"
	"github.com/evictd/evictd/stats"
)

// PodConfig says where a pod is measured.
type PodConfig struct {
	// Cgroups and Cgroup are the pod's group. Without Cgroups, Processes and
	// Leader are its processes.
	Cgroups *cgroup.System
	Cgroup  string
	// Processes is the table of the host's processes, and Leader the pod's
	// session leader in it.
	Processes *Processes
	Leader    int
	// Containers are the names in the order of the manifest, init containers
	// first.
	Containers []string
	// Child returns the name of a container's group below the pod's; "" where it is
	// not known. Without Child it is the container's name.
	Child func(container string) string
	// Disk has the results of the disk scanner; nil leaves volumes and logs unknown.
	Disk *PodDisk
}

// Pod reads one pod through descriptors that stay open where there is room (cgroup.Room). The values of a pod that does
// not exist yet, or no longer, are unknown.
type Pod struct {
	cfg        PodConfig
	pod        group
	containers []group
}

// NewPod opens nothing before the first read.
func NewPod(cfg PodConfig) *Pod {
	p := &Pod{cfg: cfg, containers: make([]group, len(cfg.Containers))}
	if cfg.Cgroups != nil {
		p.pod.room = cfg.Cgroups.Room()
	}
	p.pod.open = func() (*cgroup.Group, error) { return cfg.Cgroups.Open(cfg.Cgroup) }
	for i, name := range cfg.Containers {
		p.containers[i].room = p.pod.room
		p.containers[i].open = func() (*cgroup.Group, error) {
			child := name
			if cfg.Child != nil {
				child = cfg.Child(name)
			}
			if child == "" {
				return nil, cgroup.ErrGone
			}
			return cfg.Cgroups.Open(filepath.Join(cfg.Cgroup, child))
		}
	}
	return p
}

// Read measures the pod and adds the results of the last disk scan. Slices of s are
// reused. The error joins what could not be read; a removed group is no error, its
// values are unknown.
func (p *Pod) Read(s *stats.Pod) error {
	err := p.ReadMemory(s, true)
	if p.cfg.Cgroups == nil {
		return err
	}
	return errors.Join(err, existing(p.pod.read(func(g *cgroup.Group) (err error) {
		s.Processes, err = g.Processes()
		return err
	})))
}

// ReadMemory is Read without the processes, whose files must be opened to count them:
// it uses open descriptors and, for a pod with a cgroup, takes a tenth of the time.
// containers selects whether containers are read.
func (p *Pod) ReadMemory(s *stats.Pod, containers bool) error {
	*s = stats.Pod{
		Time:       time.Now(),
		Containers: zeroed(s.Containers, len(p.cfg.Containers)),
		Volumes:    s.Volumes[:0],
	}
	if p.cfg.Disk != nil {
		p.cfg.Disk.read(s)
	}
	if p.cfg.Cgroups == nil {
		if p.cfg.Processes != nil {
			p.cfg.Processes.pod(p.cfg.Leader, s)
		}
		return nil
	}
	err := existing(p.pod.read(func(g *cgroup.Group) error {
		err1 := g.PodMemory(s)
		var err2 error
		s.Threads, err2 = g.Threads()
		return errors.Join(err1, err2)
	}))
	if !containers {
		return err
	}
	for i := range p.containers {
		err = errors.Join(err, existing(p.containers[i].read(func(g *cgroup.Group) (err error) {
			s.Containers[i].Memory, err = g.WorkingSet()
			return err
		})))
	}
	return err
}

// ReadStall reads how long the pod's tasks have waited for memory; unknown without PSI and on cgroup v1.
func (p *Pod) ReadStall() (stall stats.Stall, err error) {
	if p.cfg.Cgroups == nil {
		return stall, nil
	}
	err = p.pod.read(func(g *cgroup.Group) (err error) {
		stall, err = g.Pressure(cgroup.MemoryStall)
		return err
	})
	return stall, existing(err)
}

func zeroed[T any](s []T, n int) []T {
	s = slices.Grow(s[:0], n)[:n]
	clear(s)
	return s
}

// existing drops the error of a removed group.
func existing(err error) error {
	if errors.Is(err, cgroup.ErrGone) {
		return nil
	}
	return err
}

// Close closes what is open.
func (p *Pod) Close() {
	p.pod.close()
	for i := range p.containers {
		p.containers[i].close()
	}
}
