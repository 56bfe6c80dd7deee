// Package runc finds the containers that runc runs on this host, by the states it
// keeps of them. It starts, stops and changes none.
package runc

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/opencontainers/runc/libcontainer"

	"github.com/evictd/evictd/cri/inventory"
	"github.com/evictd/evictd/internal/wire"
)

const (
	// period is how often the states are looked at; those that have not changed are
	// not read again.
	period = 5 * time.Second
	// maxContainers are sent, the first by their directories.
	maxContainers = 2048
)

// roots are the directories that runc keeps states in by default: on its own, under
// containerd in one for each namespace, and under Docker.
var roots = []string{"/run/runc", "/run/containerd/runc/*", "/run/docker/runtime-runc/*"}

// Containers follows containers.
type Containers struct {
	roots []string // patterns
	say   func(wire.FromAgent)
	log   *slog.Logger

	known  map[string]*container // by the directory of the state
	sent   []inventory.RuncContainer
	faults map[string]string // that were logged, by directory
}

// container is one whose state was read.
type container struct {
	stamp     os.FileInfo // of the state
	loaded    *libcontainer.Container
	described inventory.RuncContainer
}

// New looks below the roots, patterns of directories; none are the usual ones. What
// it finds it says in wire.FromAgent.Runc, on the goroutine of Run.
func New(given []string, say func(wire.FromAgent), log *slog.Logger) *Containers {
	if len(given) == 0 {
		given = roots
	}
	return &Containers{roots: given, say: say, log: log, known: map[string]*container{}, faults: map[string]string{}}
}

// Run follows the containers until ctx ends.
func (c *Containers) Run(ctx context.Context) {
	tick := time.NewTicker(period)
	defer tick.Stop()
	for sent := (time.Time{}); ; {
		found := c.look()
		// An agent that sends nothing for long counts as stuck.
		if time.Since(sent) > wire.AgentTimeout/3 || !reflect.DeepEqual(found, c.sent) {
			c.sent, sent = found, time.Now()
			c.say(wire.FromAgent{Runc: &wire.RuncContainers{Containers: found}})
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// look reads the states that are new or have changed, and lists the containers that
// run.
func (c *Containers) look() (running []inventory.RuncContainer) {
	known := map[string]*container{}
	for _, root := range c.roots {
		states, err := filepath.Glob(filepath.Join(root, "*", "state.json"))
		if err != nil {
			c.fault(root, err)
		}
		for _, state := range states {
			dir := filepath.Dir(state)
			if len(known) == maxContainers {
				c.fault(root, fmt.Errorf("more than %d containers; the others are not known", maxContainers))
				break
			}
			one, err := c.load(state, c.known[dir])
			if err != nil {
				if !errors.Is(err, os.ErrNotExist) && !errors.Is(err, libcontainer.ErrNotExist) {
					c.fault(dir, err)
				}
				continue
			}
			known[dir] = one
			if status, err := one.loaded.Status(); err == nil && status != libcontainer.Stopped {
				running = append(running, one.described)
			}
		}
	}
	c.known = known
	slices.SortFunc(running, func(a, b inventory.RuncContainer) int {
		return cmp.Or(cmp.Compare(a.ID, b.ID), cmp.Compare(a.Cgroup, b.Cgroup))
	})
	return running
}

// fault logs what is wrong with a directory, once while it stays the same.
func (c *Containers) fault(dir string, err error) {
	if c.faults[dir] == err.Error() {
		return
	}
	c.faults[dir] = err.Error()
	c.log.Warn("the state of a container run by runc cannot be used", "directory", dir, "error", err)
}

// load reads a state unless it is as it was.
func (c *Containers) load(file string, before *container) (*container, error) {
	stamp, err := os.Stat(file)
	if err != nil {
		return nil, err
	}
	if before != nil && os.SameFile(before.stamp, stamp) && before.stamp.ModTime().Equal(stamp.ModTime()) {
		return before, nil
	}
	dir := filepath.Dir(file)
	loaded, err := libcontainer.Load(filepath.Dir(dir), filepath.Base(dir))
	if err != nil {
		return nil, err
	}
	state, err := loaded.State()
	if err != nil {
		return nil, err
	}
	return &container{stamp: stamp, loaded: loaded, described: describe(state)}, nil
}

// describe is the container of a state.
func describe(s *libcontainer.State) inventory.RuncContainer {
	b := inventory.RuncContainer{ID: s.ID, Cgroup: s.CgroupPaths["memory"]}
	if b.Cgroup == "" { // cgroup v2; where both are mounted v1 has the memory
		b.Cgroup = s.CgroupPaths[""]
	}
	if cg := s.Config.Cgroups; cg != nil && cg.Resources != nil {
		b.MemoryLimit, b.MemoryReservation = max(0, cg.Memory), max(0, cg.MemoryReservation)
		b.CPUQuota, b.CPUPeriod = max(0, cg.CpuQuota), cg.CpuPeriod
	}
	// libcontainer keeps annotations as labels, KEY=VALUE.
	labels := map[string]string{}
	for _, label := range s.Config.Labels {
		key, value, _ := strings.Cut(label, "=")
		labels[key] = value
	}
	for _, of := range owners {
		if labels[of.sandbox] == "" {
			continue
		}
		b.Sandbox, b.UID, b.Namespace, b.Name, b.Container = labels[of.sandbox], labels[of.uid], labels[of.namespace], labels[of.name], labels[of.container]
	}
	return b
}

// owners are the annotations by which runtimes of pods say what a container is part
// of: containerd's, and CRI-O's.
var owners = []struct{ sandbox, uid, namespace, name, container string }{
	{"io.kubernetes.cri.sandbox-id", "io.kubernetes.cri.sandbox-uid", "io.kubernetes.cri.sandbox-namespace", "io.kubernetes.cri.sandbox-name", "io.kubernetes.cri.container-name"},
	{"io.kubernetes.cri-o.SandboxID", "io.kubernetes.pod.uid", "io.kubernetes.pod.namespace", "io.kubernetes.pod.name", "io.kubernetes.container.name"},
}
