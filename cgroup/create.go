package cgroup

import (
	"errors"
	"fmt"
	"os"
	"path"

	"github.com/containerd/cgroups/v3/cgroup1"
	"github.com/containerd/cgroups/v3/cgroup2"
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/evictd/evictd/stats"
)

// Limits bounds a group that is created. An unknown amount is no limit.
type Limits struct {
	Memory    stats.Amount // bytes
	PIDs      stats.Amount // tasks
	CPUShares stats.Amount // weight among its siblings, 2 to 262144; v2 gets the cpu.weight that stands for it
	CPUQuota  stats.Amount // microseconds in every 100 ms
}

const cpuPeriod = 100_000 // microseconds: the kernel's default, and the kubelet's

// Create makes a group and all missing groups above it, in the hierarchies of memory,
// pids, cpu and freezer and in v2, and sets its limits. An existing group is no error.
// On v2 it enables the memory, pids and cpu controllers down the path; the kernel
// refuses that where a group above has processes of its own.
func (s *System) Create(group string, l Limits) error {
	err := s.create(path.Join("/", group), l)
	if err != nil {
		return fmt.Errorf("create cgroup %s: %w", group, err)
	}
	return nil
}

func (s *System) create(group string, l Limits) error {
	if s.version == V2 {
		_, err := cgroup2.NewManager(s.dir(unified, "/"), group, l.v2())
		return err
	}
	if _, err := cgroup1.New(cgroup1.StaticPath(group), l.v1(), s.v1(), nothingRequired); err != nil {
		return err
	}
	if s.of[unified] == nil {
		return nil
	}
	_, err := cgroup2.NewManager(s.dir(unified, "/"), group, &cgroup2.Resources{})
	return err
}

// Add moves a process and its threads into a group, in every hierarchy.
func (s *System) Add(group string, pid int) error {
	if err := s.add(path.Join("/", group), uint64(pid)); err != nil {
		return fmt.Errorf("move process %d into cgroup %s: %w", pid, group, err)
	}
	return nil
}

func (s *System) add(group string, pid uint64) error {
	if s.version == V1 {
		g, err := cgroup1.Load(cgroup1.StaticPath(group), s.v1(), nothingRequired)
		if err != nil {
			return err
		}
		if err := g.AddProc(pid); err != nil || s.of[unified] == nil {
			return err
		}
	}
	g, err := cgroup2.Load(group, cgroup2.WithMountpoint(s.dir(unified, "/")))
	if err != nil {
		return err
	}
	return g.AddProc(pid)
}

// Delete removes a group and all groups below it from every hierarchy. It retries for a
// third of a second while the kernel returns EBUSY. It fails while the group has a
// process; a group that does not exist is no error.
func (s *System) Delete(group string) error {
	if err := s.delete(path.Join("/", group)); err != nil {
		return fmt.Errorf("delete cgroup %s: %w", group, err)
	}
	return nil
}

func (s *System) delete(group string) error {
	if group == "/" {
		return errors.New("it is the top of the hierarchy")
	}
	var faults error
	if s.version == V1 {
		g, err := cgroup1.Load(cgroup1.StaticPath(group), s.v1(), nothingRequired)
		if err == nil {
			err = g.Delete()
		}
		if err != nil && !errors.Is(err, cgroup1.ErrCgroupDeleted) {
			faults = err
		}
	}
	if s.of[unified] == nil || notThere(s.dir(unified, group)) {
		return faults
	}
	g, err := cgroup2.Load(group, cgroup2.WithMountpoint(s.dir(unified, "/")))
	if err == nil {
		err = g.Delete()
	}
	return errors.Join(faults, err)
}

func notThere(dir string) bool {
	_, err := os.Stat(dir)
	return errors.Is(err, os.ErrNotExist)
}

// v1 gives the library the hierarchies that exist on this host. The library looks for
// each under its controller's name beside the others: a hierarchy mounted under another
// name, without the usual symbolic link, is left out.
func (s *System) v1() cgroup1.InitOpts {
	return cgroup1.WithHierarchy(func() ([]cgroup1.Subsystem, error) {
		var found []cgroup1.Subsystem
		for h := range unified {
			if s.of[h] == nil {
				continue
			}
			parent := path.Dir(s.dir(h, "/"))
			if notThere(path.Join(parent, controllers[h])) {
				continue
			}
			found = append(found, subsystem[h](parent))
		}
		return found, nil
	})
}

var subsystem = [unified]func(parent string) cgroup1.Subsystem{
	memory:  func(parent string) cgroup1.Subsystem { return cgroup1.NewMemory(parent) },
	pids:    func(parent string) cgroup1.Subsystem { return cgroup1.NewPids(parent) },
	cpu:     func(parent string) cgroup1.Subsystem { return cgroup1.NewCpu(parent) },
	freezer: func(parent string) cgroup1.Subsystem { return cgroup1.NewFreezer(parent) },
}

// nothingRequired makes the library accept a host without the devices controller.
func nothingRequired(c *cgroup1.InitConfig) error {
	c.InitCheck = cgroup1.AllowAny
	return nil
}

func (l Limits) v1() *specs.LinuxResources {
	var r specs.LinuxResources
	if n, limited := l.Memory.Get(); limited {
		r.Memory = &specs.LinuxMemory{Limit: &n}
	}
	if n, limited := l.PIDs.Get(); limited {
		r.Pids = &specs.LinuxPids{Limit: &n}
	}
	r.CPU = &specs.LinuxCPU{}
	if n, weighted := l.CPUShares.Get(); weighted {
		r.CPU.Shares = new(uint64(n))
	}
	if n, limited := l.CPUQuota.Get(); limited {
		r.CPU.Quota, r.CPU.Period = &n, new(uint64(cpuPeriod))
	}
	return &r
}

func (l Limits) v2() *cgroup2.Resources {
	r := &cgroup2.Resources{CPU: &cgroup2.CPU{}, Memory: &cgroup2.Memory{}, Pids: &cgroup2.Pids{Max: l.PIDs.Or(0)}}
	if n, limited := l.Memory.Get(); limited {
		r.Memory.Max = &n
	}
	if n, weighted := l.CPUShares.Get(); weighted {
		r.CPU.Weight = new(cgroup2.ConvertCPUSharesToCgroupV2Value(uint64(n)))
	}
	if n, limited := l.CPUQuota.Get(); limited {
		r.CPU.Max = cgroup2.NewCPUMax(&n, new(uint64(cpuPeriod)))
	}
	return r
}
