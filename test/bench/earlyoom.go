package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// earlyoom of Debian. It knows nothing of cgroups, so it is shown a machine that is
// the node: a pid namespace with the pod alone, where /proc/meminfo is a file that
// has the node's figures, written every millisecond.
type earlyoom struct {
	path    string // of the program
	node    *node
	meminfo string
	end     context.CancelFunc
	running sync.WaitGroup
}

func (e *earlyoom) name() string { return "earlyoom" }

func (e *earlyoom) start(n *node) error {
	if _, err := exec.LookPath(e.path); err != nil {
		return unavailable("it is not installed: apt-get install earlyoom")
	}
	e.node, e.meminfo = n, filepath.Join(n.Dir, "meminfo")
	f, err := os.Create(e.meminfo)
	if err != nil {
		return err
	}
	ctx, end := context.WithCancel(context.Background())
	e.end = end
	e.running.Go(func() {
		defer f.Close()
		for ctx.Err() == nil {
			if available, err := n.available(); err == nil {
				_, _ = f.WriteAt(meminfo(int64(n.memory)*mib, available), 0)
			}
			time.Sleep(time.Millisecond)
		}
	})
	return nil
}

// meminfo is /proc/meminfo of a machine of a size, of constant length.
func meminfo(total, available int64) []byte {
	var text strings.Builder
	for _, row := range []struct {
		key   string
		bytes int64
	}{
		{"MemTotal", total}, {"MemFree", available}, {"MemAvailable", available}, {"Buffers", 0}, {"Cached", 0},
		{"SwapCached", 0}, {"AnonPages", total - available}, {"SwapTotal", 0}, {"SwapFree", 0},
	} {
		fmt.Fprintf(&text, "%-16s%8d kB\n", row.key+":", row.bytes>>10)
	}
	return []byte(text.String())
}

func (e *earlyoom) stop() {
	if e.end != nil {
		e.end()
		e.running.Wait()
	}
}

// wrap makes the pod's process the first one of a machine of its own.
func (e *earlyoom) wrap(fill []string) *exec.Cmd {
	kib := e.node.threshold << 10
	c := self("inside", append([]string{e.path, e.meminfo, fmt.Sprintf("%d,%d", kib, kib)}, fill...)...)
	c.SysProcAttr.Cloneflags = syscall.CLONE_NEWPID | syscall.CLONE_NEWNS
	return c
}

// inside runs earlyoom beside the pod until that has ended. Its arguments are earlyoom, the file for /proc/meminfo, the
// thresholds and what fill is given. It starts its children when it is in its cgroup, as the line begin says.
func inside(args []string) {
	earlyoom, shown, thresholds, fill := args[0], args[1], args[2], args[3:]
	_, err := io.ReadFull(os.Stdin, make([]byte, len(begin+"\n")))
	must(err)
	must(unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""))
	must(unix.Mount("proc", "/proc", "proc", 0, ""))
	must(unix.Mount(shown, "/proc/meminfo", "", unix.MS_BIND, ""))
	guard := exec.Command(earlyoom, "-p", "-r", "0", "-M", thresholds)
	must(guard.Start())
	filler := self("fill", fill...)
	filler.SysProcAttr.Setsid = false
	filler.Stdin, filler.Stdout = os.Stdin, os.Stdout
	must(filler.Start())
	_ = filler.Wait() // which says how it ended
	os.Exit(0)
}

// expect gives earlyoom time to look around.
func (e *earlyoom) expect(ctx context.Context, _ *pod) error {
	select {
	case <-time.After(300 * time.Millisecond):
	case <-ctx.Done():
	}
	return ctx.Err()
}

// signalled: earlyoom's log has seconds alone.
func (e *earlyoom) signalled(*pod) (int64, error) { return 0, nil }

func (e *earlyoom) ended(*pod) string { return "" }
