package demo

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/evictd/evictd/cgroup"
	"github.com/evictd/evictd/cmd/evictd-playground/console"
	"github.com/evictd/evictd/eviction/config"
	"github.com/evictd/evictd/internal/manifest"
	"github.com/evictd/evictd/internal/podspec"
)

var (
	//go:embed trial.yaml
	trialPods []byte
	//go:embed evictd.yaml
	trialSettings []byte
)

// Node makes a node to try an evictd on, with pods one of which leaks on a signal. It
// describes the node below dir as evictd reads it, and keeps it until ctx ends; dir
// stays. The pods run a program, as the command pod of evictd-playground.
func Node(ctx context.Context, t *console.Printer, dir, program string) error {
	if os.Geteuid() != 0 {
		return errors.New("make a node: cgroups need root; sudo, or without cgroups: evictd-playground --procfs")
	}
	absolute, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	cgroups, err := cgroup.Discover("")
	if err != nil {
		return err
	}
	n, err := newNode(cgroups, shape{name: "trial", memory: 512 * console.MiB, cgroup: ownCgroup()}, absolute)
	if err == nil {
		err = n.startPods(program, trialPods)
	}
	if err == nil {
		text := fmt.Sprintf("apiVersion: %s\nkind: %s\nnodeName: %s\ncgroupRoot: %s\npodManifests: %s\nstateDir: %s\n%s",
			config.APIVersion, config.Kind, n.name, n.cgroup, n.manifests(), n.state(), trialSettings)
		err = os.WriteFile(n.configuration(), []byte(text), 0o644)
	}
	if err == nil {
		n.describe(t, dir)
		n.showEnds(ctx, t)
	}
	return errors.Join(err, n.remove())
}

// describe shows what there is, and what can be done with it.
func (n *node) describe(t *console.Printer, dir string) {
	t.Print(time.Now(), console.Blue, "node", "%s of memory: cgroup %s", console.Size(n.memory), n.cgroup)
	rows := [][]string{{"POD", "CLASS", "REQUEST", "HOLDS"}}
	for _, p := range n.own {
		container := p.Spec.Containers[0]
		rows = append(rows, []string{p.String(), string(podspec.QOSClass(p.Pod)), container.Resources.Requests.Memory().String(), container.Args[1]})
	}
	t.Table(rows)
	t.More("protect it:     evictd run --config %s", filepath.Join(dir, filepath.Base(n.configuration())))
	t.More("have one leak:  evictd-playground leak %s worker", dir)
	t.More("^C ends the pods and removes the cgroup")
}

// showEnds shows which pods have ended, until ctx ends.
func (n *node) showEnds(ctx context.Context, t *console.Printer) {
	ended := make(chan *pod)
	var watching sync.WaitGroup
	for _, p := range n.own {
		watching.Go(func() {
			select {
			case <-p.process.Ended():
			case <-ctx.Done():
			}
			select {
			case ended <- p:
			case <-ctx.Done():
			}
		})
	}
	defer watching.Wait()
	for {
		select {
		case p := <-ended:
			at, state := p.process.End()
			t.Print(at, console.Red, "ended", "%v: %v", p, state)
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
