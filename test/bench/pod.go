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
	"strconv"
	"time"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"github.com/evictd/evictd/cgroup"
	"github.com/evictd/evictd/internal/sandbox"
)

// pod is one that fills memory.
type pod struct {
	*v1.Pod
	n       *node
	group   string
	stamps  []byte
	process *exec.Cmd
	orders  io.Writer
	answers chan string     // lines that its process writes
	runs    context.Context // ends with its process
}

// newPod runs a pod that holds nothing yet. It requests memory: a node that has just been short of memory admits no
// BestEffort pod.
func (n *node) newPod(ctx context.Context, p program) (*pod, error) {
	n.pods++
	f := &pod{n: n, Pod: sandbox.Spec{Request: "1Mi"}.Manifest(fmt.Sprintf("filler-%d", n.pods), sandbox.UID(n.pods)), answers: make(chan string, 1)}
	f.group = n.PodGroup(f.Pod)
	stamps := filepath.Join(n.Dir, f.Name)
	err := errors.Join(n.Cgroups.Create(n.Container(f.group), cgroup.Limits{}), os.WriteFile(stamps, make([]byte, stampsSize(n.most)), 0o644), n.WriteManifest(f.Pod))
	if err != nil {
		return nil, err
	}
	if f.stamps, err = mapStamps(stamps, n.most, os.O_RDONLY, unix.PROT_READ); err != nil {
		return nil, err
	}
	f.process = p.wrap([]string{stamps, strconv.Itoa(n.most)})
	in, err := f.process.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := f.process.StdoutPipe()
	if err != nil {
		return nil, err
	}
	f.orders = in
	if err := f.process.Start(); err != nil {
		return nil, err
	}
	var end context.CancelFunc
	f.runs, end = context.WithCancel(ctx)
	go func() {
		defer end()
		for lines := bufio.NewScanner(out); lines.Scan(); {
			select {
			case f.answers <- lines.Text():
			default: // nothing asks any more
			}
		}
	}()
	if err := n.Cgroups.Add(n.Container(f.group), f.process.Process.Pid); err != nil {
		return nil, errors.Join(err, f.remove())
	}
	_, err = fmt.Fprintln(f.orders, begin)
	return f, err
}

// hold fills memory and waits for it.
func (f *pod) hold(mibs int) error {
	if _, err := fmt.Fprintf(f.orders, "%d 0\n", mibs); err != nil {
		return err
	}
	select {
	case answer := <-f.answers:
		if answer != done {
			return errors.New(answer)
		}
		return nil
	case <-f.runs.Done():
		return f.runs.Err()
	}
}

// stamp is when so much was held (CLOCK_MONOTONIC, nanoseconds); zero if it never was.
func (f *pod) stamp(bytes int64) int64 {
	at := (bytes + stampEvery - 1) / stampEvery * 8
	if at < 0 || at >= int64(len(f.stamps)) {
		return 0
	}
	return int64(binary.NativeEndian.Uint64(f.stamps[at:]))
}

// held is the most the pod has stamped, and when.
func (f *pod) held() (bytes, at int64) {
	for bytes = 0; f.stamp(bytes+stampEvery) != 0; bytes += stampEvery {
	}
	return bytes, f.stamp(bytes)
}

// awaitEnd waits for the end of the pod's process.
func (f *pod) awaitEnd(ctx context.Context) error {
	select {
	case <-f.runs.Done():
		return ctx.Err()
	case <-time.After(patience):
		return fmt.Errorf("pod %s was not ended in %v", f.Name, patience)
	}
}

// remove takes the pod away after its end.
func (f *pod) remove() error {
	_ = f.process.Process.Kill()
	<-f.runs.Done()
	_ = f.process.Wait() // which says how it ended
	return errors.Join(unix.Munmap(f.stamps), os.Remove(filepath.Join(f.n.Manifests(), f.Name+".json")), f.n.Cgroups.Delete(f.group))
}
