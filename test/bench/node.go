package main

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evictd/evictd/cgroup"
	"github.com/evictd/evictd/internal/sandbox"
	"github.com/evictd/evictd/stats"
)

const (
	nodeMemory = 512 * mib
	threshold  = 100 * mib
	// prefilled is what a pod holds before its memory is measured to fill.
	prefilled = 300
	// patience bounds every wait for what is to come.
	patience = 30 * time.Second
)

// node is a bounded cgroup that stands for a node.
type node struct {
	*sandbox.Node
	opened *cgroup.Group
	pods   int
}

func newNode() (*node, error) {
	cgroups, err := cgroup.Discover("")
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "evictd-bench-")
	if err != nil {
		return nil, err
	}
	made, err := sandbox.NewNode(cgroups, sandbox.Cgroupfs, fmt.Sprintf("/evictd-bench-%d", os.Getpid()), dir, cgroup.Limits{Memory: stats.Known(nodeMemory), PIDs: stats.Known(200)})
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	n := &node{Node: made}
	if n.opened, err = cgroups.Open(n.Group); err != nil {
		return nil, errors.Join(err, n.remove())
	}
	return n, nil
}

// remove kills the processes in the node and removes it.
func (n *node) remove() error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	err := n.Remove(ctx)
	if n.opened != nil {
		n.opened.Close()
	}
	return errors.Join(err, os.RemoveAll(n.Dir))
}

// available is what the threshold is held against.
func (n *node) available() (int64, error) {
	used, err := n.opened.WorkingSet()
	return nodeMemory - used.Or(0), err
}

// pod is one that fills memory.
type pod struct {
	v1.Pod
	n       *node
	group   string
	stamps  []byte
	process *exec.Cmd
	orders  io.Writer
	answers *bufio.Reader
}

// newPod runs a besteffort pod that holds nothing yet.
func (n *node) newPod(wrap func(stamps string) *exec.Cmd) (*pod, error) {
	n.pods++
	p := &pod{n: n, Pod: v1.Pod{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{
			Name: fmt.Sprintf("filler-%d", n.pods), Namespace: "default", UID: types.UID(fmt.Sprintf("00000000-0000-4000-8000-%012d", n.pods)),
		},
		Spec: v1.PodSpec{Containers: []v1.Container{{Name: "c"}}},
	}}
	p.group = n.PodGroup(&p.Pod)
	stamps := filepath.Join(n.Dir, p.Name)
	err := errors.Join(n.Cgroups.Create(n.Container(p.group), cgroup.Limits{}), os.WriteFile(stamps, make([]byte, stampsSize), 0o644), n.WriteManifest(&p.Pod))
	if err != nil {
		return nil, err
	}
	if p.stamps, err = mapFile(stamps); err != nil {
		return nil, err
	}
	if wrap == nil {
		wrap = func(stamps string) *exec.Cmd { return self("fill " + stamps) }
	}
	p.process = wrap(stamps)
	in, err := p.process.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := p.process.StdoutPipe()
	if err != nil {
		return nil, err
	}
	p.orders, p.answers = in, bufio.NewReader(out)
	if err := p.process.Start(); err != nil {
		return nil, err
	}
	return p, n.Cgroups.Add(n.Container(p.group), p.process.Process.Pid)
}

func mapFile(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return unix.Mmap(int(f.Fd()), 0, stampsSize, unix.PROT_READ, unix.MAP_SHARED|unix.MAP_POPULATE)
}

// hold fills memory and waits for it.
func (p *pod) hold(mibs int) error {
	if _, err := fmt.Fprintf(p.orders, "%d 0\n", mibs); err != nil {
		return err
	}
	line, err := p.answers.ReadString('\n')
	if err == nil && line != "ok\n" {
		err = errors.New(line)
	}
	return err
}

// stamp is when so much was held (CLOCK_MONOTONIC); zero if it never was.
func (p *pod) stamp(bytes int64) int64 {
	at := (bytes + stampEvery - 1) / stampEvery * 8
	if at < 0 || at >= stampsSize {
		return 0
	}
	return int64(binary.NativeEndian.Uint64(p.stamps[at:]))
}

// held is the most the pod has stamped, and when.
func (p *pod) held() (bytes, at int64) {
	for bytes = 0; p.stamp(bytes+stampEvery) != 0; bytes += stampEvery {
	}
	return bytes, p.stamp(bytes)
}

// remove takes the pod away after its end.
func (p *pod) remove() error {
	_ = p.process.Process.Kill()
	_ = p.process.Wait() // which says how it ended
	unix.Munmap(p.stamps)
	return errors.Join(os.Remove(filepath.Join(p.n.Manifests(), p.Name+".json")), p.n.Cgroups.Delete(p.group))
}

// result is one run. Times in nanoseconds from the crossing of the threshold.
type result struct {
	signalled int64 // by the program's own word; 0 where it has none
	stopped   int64 // to the last memory the pod took
	overshoot int64 // bytes it took beyond the threshold
	byKernel  bool
}

// fill lets one pod fill the node's memory until it is ended.
func (n *node) fill(ctx context.Context, p program, rate float64) (r result, err error) {
	wrapper, _ := p.(interface{ wrap(stamps string) *exec.Cmd })
	var wrap func(string) *exec.Cmd
	if wrapper != nil {
		wrap = wrapper.wrap
	}
	filler, err := n.newPod(wrap)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, filler.remove()) }()
	if err := filler.hold(prefilled); err != nil {
		return r, err
	}
	if err := p.expect(ctx, filler); err != nil {
		return r, err
	}
	left, err := n.available()
	if err != nil {
		return r, err
	}
	crossing := prefilled*mib + left - threshold
	if _, err := fmt.Fprintf(filler.orders, "%d %g\n", most/mib, rate); err != nil {
		return r, err
	}
	if err := filler.awaitEnd(ctx); err != nil {
		return r, err
	}
	held, last := filler.held()
	crossed := filler.stamp(crossing)
	if crossed == 0 { // ended before it had touched the page that crossed
		crossed = last
	}
	r = result{stopped: last - crossed, overshoot: held - crossing}
	kills, err := n.Cgroups.OOMKills(n.Container(filler.group))
	if r.byKernel = kills.Or(0) > 0; r.byKernel || err != nil {
		return r, err
	}
	at, err := p.signalled(filler)
	if at != 0 {
		r.signalled = at - crossed
	}
	return r, err
}

// awaitEnd waits for the end of the pod's process.
func (p *pod) awaitEnd(ctx context.Context) error {
	ended := make(chan struct{})
	go func() {
		_, _ = p.answers.ReadString('\n') // it ends with the process
		close(ended)
	}()
	select {
	case <-ended:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(patience):
		return fmt.Errorf("pod %s was not ended in %v", p.Name, patience)
	}
}
