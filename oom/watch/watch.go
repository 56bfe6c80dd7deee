// Package watch follows the kernel's OOM kills. The kernel's log has the process, for
// the kills that it logs; the counters of the pods' cgroups have their number. It
// decides nothing and kills nothing.
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
	"github.com/evictd/evictd/internal/tick"
	"github.com/evictd/evictd/stats"
)

// Log is the path of the kernel's log. With kernel.dmesg_restrict=1 reading it needs
// CAP_SYSLOG.
const Log = "/dev/kmsg"

// Limit says which limit was reached.
type Limit string

// The limits: of the node, of a group of several pods, of a pod or its container, of
// another group. A kill found by the counters has an unknown limit.
const (
	OfNode    Limit = "node"
	OfPods    Limit = "pods"
	OfPod     Limit = "pod"
	OfOther   Limit = "other"
	OfUnknown Limit = "unknown"
)

// Kill is one or several OOM kills.
type Kill struct {
	At    time.Time
	Pod   types.UID // "" for none
	Limit Limit
	// Cgroup is "" where the log does not have it, and the pod's for a kill found by the
	// counters.
	Cgroup string
	// Processes is 1 for a kill of the log; only then PID, Process and Memory are set.
	Processes int64
	PID       int
	Process   string // its name; bytes that do not print are \xNN
	Memory    stats.Amount
}

// Pod is a pod and its group, or a container outside pods, without UID.
type Pod struct {
	UID    types.UID
	Cgroup string
}

// Config of a Watcher.
type Config struct {
	// Log is the path of the kernel's log. OpenLog is the open log where the service
	// manager has opened it; else nil.
	Log     string
	OpenLog *os.File
	// Cgroups are the host's; Root is the group of the node.
	Cgroups *cgroup.System
	Root    string
	// Pods returns the present pods; kills outside Root are not reported. It is called
	// from the goroutine of Run.
	Pods func() []Pod
	// Every is the interval of reading the counters; while the log is read, it is
	// logIntervalFactor times as long unless a kill is missing in the log. Zero means
	// 10 s.
	Every time.Duration
}

// Watcher follows the OOM kills.
type Watcher struct {
	cfg         Config
	report      func(Kill)
	log         *slog.Logger
	line        string               // of a record that is not complete
	lastSummary *summary             // of the next kill; nil without one
	unreported  bool                 // a recent kill has no summary
	counted     map[string]*podCount // by the group of the pod
	kills       stats.Amount         // of the machine, at the last reading
	same        bool                 // kills was the same at the reading before
}

// New makes a Watcher that calls report for each kill, on the goroutine of Run.
func New(cfg Config, tell func(Kill), log *slog.Logger) *Watcher {
	if cfg.Every == 0 {
		cfg.Every = 10 * time.Second
	}
	return &Watcher{cfg: cfg, report: tell, log: log, counted: map[string]*podCount{}}
}

// Run reports the kills from now on until ctx ends, and returns nil.
func (w *Watcher) Run(ctx context.Context) error {
	log, err := w.open()
	w.checkCounters(false)
	if err != nil {
		w.log.Warn("cannot read the kernel's log: OOM kills are found by the pods' counters alone, without the process and with a delay", "error", err)
	} else {
		err := w.follow(ctx, log)
		log.Close()
		if ctx.Err() != nil {
			return nil
		}
		w.log.Warn("reading the kernel's log failed: OOM kills are now found by the pods' counters alone", "error", err)
	}
	again := time.NewTimer(tick.Until(w.cfg.Every))
	defer again.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-again.C:
			again.Reset(tick.Until(w.cfg.Every))
			w.checkCounters(false)
		}
	}
}

// open opens the log at its end.
func (w *Watcher) open() (log *os.File, err error) {
	if w.cfg.OpenLog == nil {
		log, err = os.OpenFile(w.cfg.Log, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	} else {
		log, err = pollable(w.cfg.OpenLog)
	}
	if err != nil {
		return nil, err
	}
	if _, err := log.Seek(0, io.SeekEnd); err != nil && !errors.Is(err, syscall.ESPIPE) {
		return nil, errors.Join(err, log.Close())
	}
	return log, nil
}

// pollable replaces a blocking descriptor by a nonblocking one, so that a deadline ends
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

// logIntervalFactor is how much longer the interval of the counters is while the log is
// read.
const logIntervalFactor = 6

// maxRecord bounds a record of the log (PRINTK_MESSAGE_MAX is 2048 since Linux 6.4, and
// was 8192), and a message of several records.
const maxRecord = 16 << 10

// follow reads the log, and the counters at their interval, until ctx ends or reading
// fails.
func (w *Watcher) follow(ctx context.Context, log *os.File) error {
	stop := context.AfterFunc(ctx, func() { log.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	buf := make([]byte, maxRecord)
	for look := time.Now().Add(tick.Until(logIntervalFactor * w.cfg.Every)); ; {
		if err := log.SetReadDeadline(look); err != nil {
			return err
		}
		if ctx.Err() != nil { // ctx ended before the deadline was set
			return nil
		}
		n, err := log.Read(buf)
		switch {
		case err == nil:
			for line := range bytes.Lines(buf[:n]) {
				w.readLine(strings.TrimSuffix(string(line), "\n"))
			}
		case errors.Is(err, os.ErrDeadlineExceeded):
		case errors.Is(err, syscall.EPIPE): // overwritten before they were read
			w.log.Warn("messages of the kernel's log were lost; kills among them are found by the pods' counters")
			w.line, w.lastSummary, w.unreported = "", nil, true
		default:
			return fmt.Errorf("read %s: %w", log.Name(), err)
		}
		now := time.Now()
		if soon := now.Add(w.cfg.Every); w.unreported && soon.Before(look) {
			look = soon
		}
		w.unreported = false
		if now.After(look) {
			look = now.Add(tick.Until(logIntervalFactor * w.cfg.Every))
			if w.checkCounters(true) {
				look = now.Add(w.cfg.Every)
			}
		}
	}
}

// readLine parses one line of the log.
func (w *Watcher) readLine(line string) {
	message, more, kernel := text(line)
	if !kernel {
		return
	}
	if more && len(w.line)+len(message) < maxRecord {
		message = w.line + message
	}
	w.line = message
	if s, ok := parseSummary(message); ok {
		w.lastSummary = &s
		return
	}
	k, ok := parseKilled(message)
	if !ok {
		return
	}
	kill, of := Kill{At: time.Now(), Limit: OfNode, Processes: 1, PID: k.pid, Process: k.process, Memory: k.memory}, Pod{}
	if w.lastSummary != nil && w.lastSummary.pid == k.pid {
		var ours bool
		if of, ours = w.attribute(&kill, w.lastSummary); !ours {
			return
		}
	} else if !k.machine { // the kernel has rate-limited its summary: found by the counters
		w.unreported = true
		return
	}
	w.lastSummary = nil
	if c := w.counted[of.Cgroup]; c != nil {
		c.reported++
	}
	w.report(kill)
}

// attribute finds the pod and the limit of a kill. ours is false for a kill outside the
// node.
func (w *Watcher) attribute(k *Kill, s *summary) (of Pod, ours bool) {
	victim, seen := w.cfg.Cgroups.VisiblePath(s.cgroup)
	if !seen || !contains(w.cfg.Root, victim) {
		return of, false
	}
	above, seen := w.cfg.Cgroups.VisiblePath(s.limit)
	k.Cgroup, k.Limit = victim, OfOther
	if s.limit == "" || !seen || contains(above, w.cfg.Root) {
		k.Limit = OfNode
	}
	for _, p := range w.cfg.Pods() {
		if !contains(p.Cgroup, victim) {
			continue
		}
		of, k.Pod = p, p.UID
		if k.Limit != OfNode && p.UID != "" {
			k.Limit = OfPods
			if contains(p.Cgroup, above) {
				k.Limit = OfPod
			}
		}
		break
	}
	return of, true
}
