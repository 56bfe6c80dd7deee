// Package pods says which pods there are on the node and where their processes
// live. Manifests reads the pods from a directory; Layout finds their cgroups.
// It never looks at a cgroup or a process itself.
package pods

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/fsnotify/fsnotify"
	v1 "k8s.io/api/core/v1"

	"github.com/evictd/evictd/internal/tick"
)

// settleTime passes between a change in the directory and the scan for it, so
// that a file being written is read once, whole. It also bounds the scans to
// one in this time.
const settleTime = 100 * time.Millisecond

// Config says where the manifests are.
type Config struct {
	// Dir holds v1.Pod manifests in files named *.yaml, *.yml or *.json.
	// Names that start with a dot, and subdirectories, are left out.
	Dir string
	// RescanEvery bounds how long a change goes unnoticed that inotify does
	// not report: where it is not available, behind symbolic links, and after
	// the directory was replaced. Zero means 20 s (kubelet, fileCheckFrequency).
	RescanEvery time.Duration
}

// DirError says that the directory of manifests cannot be used.
type DirError struct {
	Dir string
	Err error
}

func (e *DirError) Error() string { return fmt.Sprintf("read pod manifests in %s: %v", e.Dir, e.Err) }

func (e *DirError) Unwrap() error { return e.Err }

// Manifests is the set of pods that a directory of manifests describes, kept
// up to date by Run. What cannot be read or decoded is logged once for each
// content of the file, and left out.
type Manifests struct {
	cfg     Config
	log     *slog.Logger
	dir     directory // owned by New, then by Run
	lost    bool      // the directory could not be read at the last scan; owned likewise
	pods    atomic.Pointer[[]*v1.Pod]
	changed chan struct{}
}

// New reads the directory for the first time. A directory that cannot be read has no pods, and is looked for by Run. The
// error is a *DirError: the path is no directory.
func New(cfg Config, log *slog.Logger) (*Manifests, error) {
	if cfg.RescanEvery == 0 {
		cfg.RescanEvery = 20 * time.Second
	}
	m := &Manifests{
		cfg:     cfg,
		log:     log,
		dir:     directory{path: cfg.Dir},
		changed: make(chan struct{}, 1),
	}
	if _, err := m.dir.scan(); errors.Is(err, syscall.ENOTDIR) {
		return nil, err
	} else if err != nil {
		m.lost = true
		m.log.Warn("pod manifests cannot be read yet: they are looked for every second", "error", err)
	}
	m.publish()
	return m, nil
}

// Pods is the present set in the order of namespace and name. Neither the slice
// nor the pods change later, and the caller must not change them.
func (m *Manifests) Pods() []*v1.Pod { return *m.pods.Load() }

// Changed receives when the set may have changed since the last receive.
func (m *Manifests) Changed() <-chan struct{} { return m.changed }

// Run follows the directory until ctx ends, and then returns nil. It is called
// once.
func (m *Manifests) Run(ctx context.Context) error {
	var events <-chan fsnotify.Event
	var faults <-chan error
	watcher, err := fsnotify.NewWatcher()
	if err == nil {
		defer watcher.Close()
		events, faults = watcher.Events, watcher.Errors
		err = watcher.Add(m.cfg.Dir)
	}
	if err != nil {
		m.log.Warn("pod manifests are polled, inotify is not available",
			"dir", m.cfg.Dir, "every", m.cfg.RescanEvery, "error", err)
	}
	rescan := time.NewTimer(tick.Until(m.cfg.RescanEvery))
	defer rescan.Stop()
	settled := time.NewTimer(settleTime) // for what changed between New and now
	defer settled.Stop()
	settling := true
	for {
		var appears <-chan time.Time
		if m.lost {
			appears = time.After(time.Second)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-settled.C:
			settling = false
			m.rescan()
			continue
		case <-events:
		case <-faults: // the queue overflowed: something changed
		case <-appears:
			if watcher != nil {
				_ = watcher.Add(m.cfg.Dir)
			}
		case <-rescan.C:
			rescan.Reset(tick.Until(m.cfg.RescanEvery))
			if watcher != nil {
				// The directory may have been replaced; the watch goes
				// with the old one. Adding it again changes nothing else.
				_ = watcher.Add(m.cfg.Dir)
			}
			if !settling {
				m.rescan()
			}
			continue
		}
		if !settling {
			settling = true
			settled.Reset(settleTime)
		}
	}
}

// rescan keeps the last set while the directory cannot be read.
func (m *Manifests) rescan() {
	changed, err := m.dir.scan()
	switch {
	case err != nil && !m.lost:
		m.log.Warn("pod manifests are out of reach, keeping the last known pods", "pods", len(m.Pods()), "error", err)
	case err == nil && m.lost:
		m.log.Info("pod manifests are back", "dir", m.cfg.Dir)
	}
	m.lost = err != nil
	if changed {
		m.publish()
		select {
		case m.changed <- struct{}{}:
		default:
		}
	}
}

// publish makes the scanned set the present one and logs the faults that the
// scan before did not have.
func (m *Manifests) publish() {
	set, faults := m.dir.merge()
	for _, f := range faults {
		m.log.Warn("pod manifest skipped", "file", f.file, "document", f.document, "error", f.err)
	}
	m.pods.Store(&set)
}
