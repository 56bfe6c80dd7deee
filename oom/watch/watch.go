// Package watch follows what the kernel kills for want of memory. Its log says who
// it was, as far as the kernel says it of each, and the counters of the pods'
// cgroups say how many there were. It decides nothing and kills nothing.
package watch

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evictd/evictd/cgroup"
	"github.com/evictd/evictd/stats"
)

// Log is where the kernel's log is read. With kernel.dmesg_restrict=1 that needs
// CAP_SYSLOG.
const Log = "/dev/kmsg"

// Limit says whose limit was reached.
type Limit string

// The limits: of the node, of a group that holds pods, of a pod or a container of
// it, of a group that has nothing to do with pods. The counters tell of none.
const (
	OfNode    Limit = "node"
	OfPods    Limit = "pods"
	OfPod     Limit = "pod"
	OfOther   Limit = "other"
	OfUnknown Limit = "unknown"
)

// Kill is what the kernel has killed.
type Kill struct {
	At    time.Time
	Pod   types.UID // "" for none
	Limit Limit
	// Cgroup is "" where the kernel left it out, and the pod's where the counters tell.
	Cgroup string
	// Processes is 1 where the log tells; the rest is known only then.
	Processes int64
	PID       int
	Process   string // its name, with what does not print as \xNN
	Memory    stats.Amount
}

// Pod is a pod and its group, or a container that is no pod's: it has no UID.
type Pod struct {
	UID    types.UID
	Cgroup string
}

// Config of a Watcher.
type Config struct {
	// Log is the path of the kernel's log. Held is the log where somebody who may has
	// opened it; else nil.
	Log  string
	Held *os.File
	// Cgroups are the host's, and Root is the group that is the node.
	Cgroups *cgroup.System
	Root    string
	// Pods are those that there are now; of those outside Root nothing is told. Any
	// goroutine may call it.
	Pods func() []Pod
	// Every is how often the counters are looked at where they have something to
	// tell; else, where the log is read, it is calm times as long. Zero means 10 s.
	Every time.Duration
}

// Watcher follows the kernel.
type Watcher struct {
	cfg     Config
	tell    func(Kill)
	log     *slog.Logger
	line    string            // said so far
	chosen  *summary          // and not killed yet
	unsaid  bool              // of whom was killed lately
	counted map[string]*count // by the group of the pod
	kills   stats.Amount      // of the machine, when they were counted
	same    bool              // as when they were counted before
}

// New makes a Watcher that tells what was killed by tell, on the goroutine of Run.
func New(cfg Config, tell func(Kill), log *slog.Logger) *Watcher {
	if cfg.Every == 0 {
		cfg.Every = 10 * time.Second
	}
	return &Watcher{cfg: cfg, tell: tell, log: log, counted: map[string]*count{}}
}

// Run follows the kernel from now on until ctx ends, and returns nil.
func (w *Watcher) Run(ctx context.Context) error {
	log, err := w.open()
	w.count(false)
	if err != nil {
		w.log.Warn("kernel OOM kills are told by the pods' counters alone, without the process, and late: the kernel's log cannot be read", "error", err)
	} else {
		err := w.follow(ctx, log)
		log.Close()
		if ctx.Err() != nil {
			return nil
		}
		w.log.Warn("kernel OOM kills are told by the pods' counters alone from now on: the kernel's log is lost", "error", err)
	}
	again := time.NewTicker(w.cfg.Every)
	defer again.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-again.C:
			w.count(false)
		}
	}
}

// open opens the log at its end.
func (w *Watcher) open() (log *os.File, err error) {
	if w.cfg.Held == nil {
		log, err = os.OpenFile(w.cfg.Log, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	} else {
		log, err = pollable(w.cfg.Held)
	}
	if err != nil {
		return nil, err
	}
	if _, err := log.Seek(0, io.SeekEnd); err != nil && !errors.Is(err, syscall.ESPIPE) {
		return nil, errors.Join(err, log.Close())
	}
	return log, nil
}

// pollable takes over a descriptor that was opened to block, so that a deadline ends
// its reads.
func pollable(f *os.File) (*os.File, error) {
	defer f.Close()
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	if err := unix.SetNonblock(fd, true); err != nil {
		return nil, errors.Join(err, unix.Close(fd))
	}
	return os.NewFile(uintptr(fd), f.Name()), nil
}

// calm is how much rarer the counters are looked at while the log tells of each kill.
const calm = 6

// maxRecord bounds a record of the log (PRINTK_MESSAGE_MAX is 2048 since Linux 6.4,
// and was 8192), and what is put together of several.
const maxRecord = 16 << 10

// follow reads the log, and looks at the counters now and then, until ctx ends or
// the log does.
func (w *Watcher) follow(ctx context.Context, log *os.File) error {
	stop := context.AfterFunc(ctx, func() { log.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	buf := make([]byte, maxRecord)
	for look := time.Now().Add(calm * w.cfg.Every); ; {
		if err := log.SetReadDeadline(look); err != nil {
			return err
		}
		if ctx.Err() != nil { // it came before the deadline was set
			return nil
		}
		n, err := log.Read(buf)
		switch {
		case err == nil:
			for line := range bytes.Lines(buf[:n]) {
				w.hear(strings.TrimSuffix(string(line), "\n"))
			}
		case errors.Is(err, os.ErrDeadlineExceeded):
		case errors.Is(err, syscall.EPIPE): // overwritten before they were read
			w.log.Warn("messages of the kernel's log were lost; the pods' counters tell what was killed meanwhile")
			w.line, w.chosen, w.unsaid = "", nil, true
		default:
			return fmt.Errorf("read %s: %w", log.Name(), err)
		}
		now := time.Now()
		if soon := now.Add(w.cfg.Every); w.unsaid && soon.Before(look) {
			look = soon
		}
		w.unsaid = false
		if now.After(look) {
			look = now.Add(calm * w.cfg.Every)
			if w.count(true) {
				look = now.Add(w.cfg.Every)
			}
		}
	}
}

// hear takes up a line of the log.
func (w *Watcher) hear(line string) {
	said, more, kernel := text(line)
	if !kernel {
		return
	}
	if more && len(w.line)+len(said) < maxRecord {
		said = w.line + said
	}
	w.line = said
	if s, ok := parseSummary(said); ok {
		w.chosen = &s
		return
	}
	k, ok := parseKilled(said)
	if !ok {
		return
	}
	kill, of := Kill{At: time.Now(), Limit: OfNode, Processes: 1, PID: k.pid, Process: k.process, Memory: k.memory}, Pod{}
	if w.chosen != nil && w.chosen.pid == k.pid {
		var ours bool
		if of, ours = w.place(&kill, w.chosen); !ours {
			return
		}
	} else if !k.machine { // by one of many summaries that were left out: counted
		w.unsaid = true
		return
	}
	w.chosen = nil
	if c := w.counted[of.Cgroup]; c != nil {
		c.told++
	}
	w.tell(kill)
}

// place finds the pod and whose limit it was. It is false of a kill that is none of
// this node's.
func (w *Watcher) place(k *Kill, s *summary) (of Pod, ours bool) {
	victim, seen := w.cfg.Cgroups.VisiblePath(s.cgroup)
	if !seen || !holds(w.cfg.Root, victim) {
		return of, false
	}
	above, seen := w.cfg.Cgroups.VisiblePath(s.limit)
	k.Cgroup, k.Limit = victim, OfOther
	if s.limit == "" || !seen || holds(above, w.cfg.Root) {
		k.Limit = OfNode
	}
	for _, p := range w.cfg.Pods() {
		if !holds(p.Cgroup, victim) {
			continue
		}
		of, k.Pod = p, p.UID
		if k.Limit != OfNode && p.UID != "" {
			k.Limit = OfPods
			if holds(p.Cgroup, above) {
				k.Limit = OfPod
			}
		}
		break
	}
	return of, true
}
