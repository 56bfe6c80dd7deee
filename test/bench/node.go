package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/evictd/evictd/cgroup"
	"github.com/evictd/evictd/internal/sandbox"
	"github.com/evictd/evictd/stats"
)

// patience bounds every wait for what is to come.
const patience = 30 * time.Second

// size of a node, in MiB.
type size struct {
	memory    int
	threshold int // of memory.available
	prefilled int // what a pod holds before its memory is measured to fill
	most      int // what a pod fills if nothing ends it
}

// sized is a node with a threshold at a fifth of its memory, where a pod holds three fifths before it is measured.
func sized(memory int) size {
	return size{memory, memory * 100 / 512, memory * 300 / 512, memory * 3 / 2}
}

// node is a bounded cgroup that stands for a node.
type node struct {
	*sandbox.Node
	size
	opened *cgroup.Group
	pods   int
}

// newNode makes a node and, in a directory, one of its own for its files.
func newNode(cgroups *cgroup.System, s size, in string) (*node, error) {
	dir, err := os.MkdirTemp(in, "evictd-bench-")
	if err != nil {
		return nil, err
	}
	limits := cgroup.Limits{Memory: stats.Known(int64(s.memory) * mib), PIDs: stats.Known(200)}
	made, err := sandbox.NewNode(cgroups, sandbox.Cgroupfs, fmt.Sprintf("/evictd-bench-%d", os.Getpid()), dir, limits)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	n := &node{Node: made, size: s}
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

// available is what the threshold is held against, in bytes.
func (n *node) available() (int64, error) {
	used, err := n.opened.WorkingSet()
	return int64(n.memory)*mib - used.Or(0), err
}

// result is one run. Times in nanoseconds from the crossing of the threshold.
type result struct {
	signalled int64 // by the program's own word; 0 if it has none
	stopped   int64 // to the last memory the pod took
	overshoot int64 // bytes it took beyond the threshold
	byKernel  bool
}

// fill lets one pod fill the node's memory until it is ended.
func (n *node) fill(ctx context.Context, p program, rate float64) (r result, err error) {
	filler, err := n.newPod(ctx, p)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, filler.remove()) }()
	err = filler.hold(n.prefilled)
	if err == nil {
		err = p.expect(filler.runs, filler)
	}
	if filler.runs.Err() != nil && ctx.Err() == nil {
		return r, fmt.Errorf("pod %s ended before it was to fill the node: %s", filler.Name, n.ending(p, filler))
	}
	if err != nil {
		return r, err
	}
	left, err := n.available()
	if err != nil {
		return r, err
	}
	crossing := int64(n.prefilled-n.threshold)*mib + left
	if _, err := fmt.Fprintf(filler.orders, "%d %g\n", n.most, rate); err != nil {
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
	if r.byKernel, err = n.killed(filler); r.byKernel || err != nil {
		return r, err
	}
	at, err := p.signalled(filler)
	if at != 0 {
		r.signalled = at - crossed
	}
	return r, err
}

// killed reports whether the kernel has killed the pod's process for memory.
func (n *node) killed(filler *pod) (bool, error) {
	kills, err := n.Cgroups.OOMKills(n.Container(filler.group))
	return kills.Or(0) > 0, err
}

// ending says what ended a pod: the kernel, the program by its own word, or a signal or status of the pod's process.
func (n *node) ending(p program, filler *pod) string {
	if byKernel, err := n.killed(filler); err != nil {
		return err.Error()
	} else if byKernel {
		return "the kernel killed it for memory"
	}
	if why := p.ended(filler); why != "" {
		return why
	}
	_ = filler.process.Wait()
	return filler.process.ProcessState.String()
}
