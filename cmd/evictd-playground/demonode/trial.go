// Package demonode makes a demo node to run evictd on: a bounded cgroup with a few pods,
// real processes, one of which leaks on a signal. It runs no evictd.
package demonode

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	v1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/evictd/evictd/cgroup"
	"github.com/evictd/evictd/cmd/evictd-playground/console"
	"github.com/evictd/evictd/cmd/evictd-playground/podprocess"
	"github.com/evictd/evictd/eviction/config"
	"github.com/evictd/evictd/eviction/pods"
	"github.com/evictd/evictd/internal/manifest"
	"github.com/evictd/evictd/internal/podspec"
	"github.com/evictd/evictd/stats"
)

// What the node has.
const (
	memory = 512 * console.MiB
	pids   = 256
)

// processAnnotation has the process id of a pod.
const processAnnotation = "evictd-playground/process"

var (
	//go:embed pods.yaml
	podManifests []byte
	//go:embed evictd.yaml
	settings []byte
)

// node is the cgroup, its pods, and the directory that describes both.
type node struct {
	*console.Printer
	dir     string // absolute
	cgroups *cgroup.System
	root    string   // path of the cgroup
	program []string // what pods run
	ended   chan *pod
}

// pod is one of the node's.
type pod struct {
	*v1.Pod
	process *podprocess.Process
}

// Run makes the node, describes it below dir as evictd reads it, and keeps it until
// ctx ends. Then it ends the pods and removes the cgroup; dir stays. The pods run
// program, as the command pod of evictd-playground.
func Run(ctx context.Context, t *console.Printer, dir string, program ...string) (err error) {
	if os.Geteuid() != 0 {
		return errors.New("make a node: cgroups need root; sudo, or without cgroups: evictd-playground --procfs")
	}
	n := &node{Printer: t, root: "/evictd-playground-" + strconv.Itoa(os.Getpid()), program: program, ended: make(chan *pod)}
	if n.dir, err = filepath.Abs(dir); err != nil {
		return err
	}
	if n.cgroups, err = cgroup.Discover(""); err != nil {
		return err
	}
	running, stop := context.WithCancel(ctx)
	all, err := n.comeUp(running)
	if err == nil {
		n.describe(dir, all)
		n.follow(ctx)
	}
	stop()
	for _, p := range all {
		p.process.Kill()
	}
	return errors.Join(err, n.cgroups.Delete(n.root))
}

func (n *node) manifest(name string) string { return filepath.Join(n.dir, "pods", name+".yaml") }

// comeUp returns the pods that have been started, also where one was not.
func (n *node) comeUp(ctx context.Context) (all []*pod, err error) {
	if err := os.MkdirAll(filepath.Dir(n.manifest("")), 0o755); err != nil {
		return nil, err
	}
	if err := n.cgroups.Create(n.root, cgroup.Limits{Memory: stats.Known(memory), PIDs: stats.Known(pids)}); err != nil {
		return nil, err
	}
	for _, document := range manifest.Split(podManifests) {
		p := &pod{Pod: &v1.Pod{}}
		err := manifest.Decode(document, p.Pod)
		if err == nil {
			err = n.start(ctx, p)
		}
		if p.process != nil {
			all = append(all, p)
		}
		if err != nil {
			return all, fmt.Errorf("start pod %s: %w", p.Name, err)
		}
	}
	return all, n.configure()
}

// start runs a pod in its cgroup until it holds what it shall.
func (n *node) start(ctx context.Context, p *pod) error {
	group := path.Join(n.root, "kubepods", p.Name)
	if err := n.cgroups.Create(group, cgroup.Limits{}); err != nil {
		return err
	}
	process, err := podprocess.Start(n.program, p.Spec.Containers[0].Args...)
	if err != nil {
		return err
	}
	p.process = process
	if err := n.cgroups.Add(group, process.PID()); err != nil {
		return err
	}
	if err := process.Fill(); err != nil {
		return err
	}
	p.Annotations = map[string]string{pods.CgroupAnnotation: p.Name, processAnnotation: strconv.Itoa(process.PID())}
	text, err := yaml.Marshal(p.Pod)
	if err == nil {
		err = os.WriteFile(n.manifest(p.Name), text, 0o644)
	}
	go func() { // Run ends after it
		process.End()
		select {
		case n.ended <- p:
		case <-ctx.Done():
		}
	}()
	return err
}

// configure writes the configuration of an evictd that protects the node.
func (n *node) configure() error {
	text := fmt.Sprintf("apiVersion: %s\nkind: %s\nnodeName: trial\ncgroupRoot: %s\npodManifests: %s\nstateDir: %s\n%s",
		config.APIVersion, config.Kind, n.root, filepath.Join(n.dir, "pods"), filepath.Join(n.dir, "state"), settings)
	return os.WriteFile(filepath.Join(n.dir, "evictd.yaml"), []byte(text), 0o644)
}

// describe says what there is, and what can be done with it.
func (n *node) describe(dir string, all []*pod) {
	n.Print(time.Now(), console.Blue, "node", "%s of memory: cgroup %s", console.Size(memory), n.root)
	rows := [][]string{{"POD", "CLASS", "REQUEST", "HOLDS"}}
	for _, p := range all {
		request := p.Spec.Containers[0].Resources.Requests.Memory()
		rows = append(rows, []string{p.Namespace + "/" + p.Name, string(podspec.QOSClass(p.Pod)), request.String(), p.Spec.Containers[0].Args[1]})
	}
	n.Table(rows)
	n.More("protect it:     evictd run --config %s", filepath.Join(dir, "evictd.yaml"))
	n.More("have one leak:  evictd-playground leak %s worker", dir)
	n.More("^C ends the pods and removes the cgroup")
}

// follow shows which pods have ended until ctx ends.
func (n *node) follow(ctx context.Context) {
	for {
		select {
		case p := <-n.ended:
			at, state := p.process.End()
			n.Print(at, console.Red, "ended", "%s/%s: %v", p.Namespace, p.Name, state)
		case <-ctx.Done():
			return
		}
	}
}

// Leak has a pod of the node that dir describes take more memory.
func Leak(dir, name string) error {
	n := node{dir: dir}
	text, err := os.ReadFile(n.manifest(name))
	if err != nil {
		return fmt.Errorf("find pod %s; evictd-playground node %s makes it: %w", name, dir, err)
	}
	p := &v1.Pod{}
	if err := manifest.Decode(text, p); err != nil {
		return err
	}
	pid, err := strconv.Atoi(p.Annotations[processAnnotation])
	if err != nil || !own(pid) {
		return fmt.Errorf("pod %s does not run", name)
	}
	if err := syscall.Kill(pid, syscall.SIGUSR1); err != nil {
		return fmt.Errorf("signal pod %s to leak: %w", name, err)
	}
	return nil
}

// own says whether a process runs this program.
func own(pid int) bool {
	theirs, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
	if err != nil {
		return false
	}
	self, err := os.Executable()
	return err == nil && theirs == self
}
