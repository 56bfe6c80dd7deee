package sandbox

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"syscall"

	v1 "k8s.io/api/core/v1"

	"github.com/evictd/evictd/cgroup"
	"github.com/evictd/evictd/internal/podspec"
	"github.com/evictd/evictd/internal/wait"
)

// Node is a bounded cgroup that stands for a node, and a directory of files.
type Node struct {
	Cgroups *cgroup.System
	Driver  Driver
	Group   string // path of the cgroup
	Dir     string // of the files of evictd and others; its path is short enough for sockets
	RunDir  string // directory on a tmpfs for what an evictd leaves for the next one, as /run is; "" for one in Dir
}

// NewNode makes a node's cgroup, with that of the pods below it, and the directory of
// manifests in a directory that is there. What was made before an error is removed.
func NewNode(cgroups *cgroup.System, driver Driver, group, dir string, limits cgroup.Limits) (*Node, error) {
	n := &Node{Cgroups: cgroups, Driver: driver, Group: group, Dir: dir}
	err := errors.Join(cgroups.Create(group, limits), os.MkdirAll(n.Manifests(), 0o755))
	if err == nil {
		// The controllers are enabled down to the pods, which the kernel can refuse.
		err = cgroups.Create(n.Pods().Path(), cgroup.Limits{})
	}
	if err != nil {
		return nil, errors.Join(err, cgroups.Delete(group))
	}
	return n, nil
}

// Files of the node.

func (n *Node) Manifests() string  { return filepath.Join(n.Dir, "manifests") }
func (n *Node) StatusFile() string { return filepath.Join(n.Dir, "node.yaml") }
func (n *Node) StateDir() string   { return filepath.Join(n.Dir, "state") }
func (n *Node) RuntimeDir() string { return cmp.Or(n.RunDir, filepath.Join(n.Dir, "run")) }
func (n *Node) Socket() string     { return Socket(n.Dir) }

// Pods is where the kubelet places pods below the node's cgroup.
func (n *Node) Pods() cgroup.Pods { return cgroup.PodsAt(filepath.Join(n.Group, n.PodsGroup())) }

// PodGroup is the cgroup that the kubelet gives a pod.
func (n *Node) PodGroup(m *v1.Pod) string { return n.Pods().Pod(string(m.UID), podspec.QOSClass(m)) }

// Evictd are the arguments of an evictd that reads the node's manifests and writes its
// status file. Those that follow win.
func (n *Node) Evictd(more ...string) []string {
	return append(Run(n.Dir, PodManifests(n.Manifests()), NodeStatusFile(n.StatusFile()), RuntimeDir(n.RuntimeDir())), more...)
}

// WriteManifest puts the manifest of a pod in place at once, or replaces it.
func (n *Node) WriteManifest(m *v1.Pod) error {
	text, err := json.Marshal(m)
	if err != nil {
		return err
	}
	return n.WriteFile(m.Name+".json", text)
}

// WriteFile puts a file among the manifests at once, or replaces it.
func (n *Node) WriteFile(name string, text []byte) error {
	draft := filepath.Join(n.Manifests(), "."+name)
	if err := os.WriteFile(draft, text, 0o644); err != nil {
		return err
	}
	return os.Rename(draft, filepath.Join(n.Manifests(), name))
}

// Processes are the ids of those in a cgroup and below it; none where there is no such
// cgroup.
func (n *Node) Processes(group string) []int {
	opened, err := n.Cgroups.Open(group)
	if err != nil {
		return nil
	}
	defer opened.Close()
	pids, _ := opened.AppendProcesses(nil)
	return pids
}

// Clear kills the processes in a cgroup of the node and removes it.
func (n *Node) Clear(ctx context.Context, group string) error {
	var fault error
	if err := wait.That(ctx, func() bool {
		for _, pid := range n.Processes(group) {
			_ = syscall.Kill(pid, syscall.SIGKILL) // it may have ended
		}
		fault = n.Delete(group)
		return fault == nil
	}); err != nil {
		return errors.Join(err, fault)
	}
	return nil
}

// Remove kills the processes in the node's cgroup and removes it. The directory stays.
func (n *Node) Remove(ctx context.Context) error { return n.Clear(ctx, n.Group) }
