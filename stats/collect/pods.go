package collect

import (
	"errors"
	"path/filepath"
	"slices"
	"time"

	"github.com/evictd/evictd/cgroup"
	"github.com/evictd/evictd/stats"
)

// PodConfig says where a pod's figures are.
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
	// Child names the group of a container below the pod's; "" where it is not
	// known now. Without Child it is the container's own name.
	Child func(container string) string
	// Logs is the pod's log directory, with one directory a container; "" leaves
	// logs unknown. See LogDir.
	Logs string
	// Volumes are the host directories of the volumes, in the order of the
	// manifest; "" leaves one unknown. See EmptyDir.
	Volumes []string
}

// EmptyDir is the directory of an emptyDir volume below the kubelet's root
// directory. id is the pod's uid, or the config hash of a static pod.
func EmptyDir(root, id, volume string) string {
	return filepath.Join(root, "pods", id, "volumes", "kubernetes.io~empty-dir", volume)
}

// LogDir is the directory of a pod's logs below the kubelet's, /var/log/pods.
func LogDir(root, namespace, name, id string) string {
	return filepath.Join(root, namespace+"_"+name+"_"+id)
}

// Pod reads one pod through descriptors that stay open. The pod need not exist
// yet, and may be gone: then its figures are unknown.
type Pod struct {
	cfg        PodConfig
	pod        group
	containers []group
	disk       disk
}

// NewPod takes what it is told; nothing is opened before it is read.
func NewPod(cfg PodConfig) *Pod {
	p := &Pod{cfg: cfg, containers: make([]group, len(cfg.Containers))}
	p.pod.open = func() (*cgroup.Group, error) { return cfg.Cgroups.Open(cfg.Cgroup) }
	for i, name := range cfg.Containers {
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
	for _, dir := range cfg.Volumes {
		p.disk.dirs = append(p.disk.dirs, directory{path: dir})
	}
	for _, name := range cfg.Containers {
		var logs string
		if cfg.Logs != "" {
			logs = filepath.Join(cfg.Logs, name)
		}
		p.disk.dirs = append(p.disk.dirs, directory{path: logs})
	}
	return p
}

// Read measures the pod now; of its directories it walks a bounded part, at most
// once a minute unless they are wanted fresh, and tells what the last whole walk
// found. Slices of s are used again. The error joins what could not be read for
// another reason than being gone, and leaves it unknown.
func (p *Pod) Read(s *stats.Pod, fresh bool) error {
	now := time.Now()
	*s = stats.Pod{
		Time:       now,
		Containers: zeroed(s.Containers, len(p.cfg.Containers)),
		Volumes:    zeroed(s.Volumes, len(p.cfg.Volumes)),
	}
	err := p.readDisk(now, fresh, s)
	switch {
	case p.cfg.Cgroups != nil:
		err = errors.Join(err, p.readGroups(s))
	case p.cfg.Processes != nil:
		p.cfg.Processes.pod(p.cfg.Leader, s)
	}
	return err
}

func zeroed[T any](s []T, n int) []T {
	s = slices.Grow(s[:0], n)[:n]
	clear(s)
	return s
}

func (p *Pod) readGroups(s *stats.Pod) error {
	err := present(p.pod.read(func(g *cgroup.Group) error {
		var err1, err2, err3 error
		s.Memory, err1 = g.WorkingSet()
		s.Processes, err2 = g.Processes()
		s.Threads, err3 = g.Threads()
		return errors.Join(err1, err2, err3)
	}))
	for i := range p.containers {
		err = errors.Join(err, present(p.containers[i].read(func(g *cgroup.Group) (err error) {
			s.Containers[i].Memory, err = g.WorkingSet()
			return err
		})))
	}
	return err
}

// present drops the error of a group that is not there: pods come and go.
func present(err error) error {
	if errors.Is(err, cgroup.ErrGone) {
		return nil
	}
	return err
}

func (p *Pod) readDisk(now time.Time, fresh bool, s *stats.Pod) error {
	err := p.disk.walk(now, fresh)
	volumes, logs := p.disk.dirs[:len(p.cfg.Volumes)], p.disk.dirs[len(p.cfg.Volumes):]
	for i := range volumes {
		s.Volumes[i] = volumes[i].found
	}
	for i := range logs {
		s.Containers[i].Logs, s.Containers[i].LogsInodes = logs[i].found.Used, logs[i].found.Inodes
	}
	return err
}

// Close closes what is open.
func (p *Pod) Close() {
	p.pod.close()
	for i := range p.containers {
		p.containers[i].close()
	}
	p.disk.close()
}
