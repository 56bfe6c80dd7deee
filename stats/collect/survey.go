package collect

import (
	"context"
	"log/slog"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/evictd/evictd/stats"
)

// SurveyInterval is how often a Survey measures what nobody asked for: the
// kubelet's volumeStatsAggPeriod.
const SurveyInterval = time.Minute

// walkPause follows every walkPerStep entries of a round that nobody waits for,
// so that it takes a fifth of one processor at most.
const walkPause = 80 * time.Millisecond

// EmptyDir is the directory of an emptyDir volume below the kubelet's root
// directory. id is the pod's uid, or the config hash of a static pod.
func EmptyDir(root, id, volume string) string {
	return filepath.Join(root, "pods", id, "volumes", "kubernetes.io~empty-dir", volume)
}

// LogDir is the directory of a pod's logs below the kubelet's, /var/log/pods.
func LogDir(root, namespace, name, id string) string {
	return filepath.Join(root, namespace+"_"+name+"_"+id)
}

// PodDisk is what a pod holds in directories of the host, as the last survey
// found it. Any goroutine may read it.
type PodDisk struct {
	volumes int
	paths   []string // of the volumes, then of the containers' logs; "" is not measured
	found   atomic.Pointer[[]stats.Volume]
}

// NewPodDisk names the directories of a pod: one for each volume, in the order
// of the manifest, "" for one that is not measured; and below logs, unless that
// is "", one for each container.
func NewPodDisk(volumes []string, logs string, containers []string) *PodDisk {
	d := &PodDisk{volumes: len(volumes), paths: append([]string{}, volumes...)}
	for _, name := range containers {
		path := ""
		if logs != "" {
			path = filepath.Join(logs, name)
		}
		d.paths = append(d.paths, path)
	}
	return d
}

// read fills volumes and logs; before the first survey they are unknown.
func (d *PodDisk) read(s *stats.Pod) {
	found := d.found.Load()
	if found == nil {
		s.Volumes = append(s.Volumes, make([]stats.Volume, d.volumes)...)
		return
	}
	s.Volumes = append(s.Volumes, (*found)[:d.volumes]...)
	for i, logs := range (*found)[d.volumes:] {
		s.Containers[i].Logs, s.Containers[i].LogsInodes = logs.Used, logs.Inodes
	}
}

// Survey measures the directories of all pods, round by round, so that nobody
// who decides ever waits for a disk.
type Survey struct {
	log      *slog.Logger
	pods     atomic.Pointer[[]*PodDisk]
	since    atomic.Pointer[time.Time]
	requests chan struct{}
	done     chan struct{}
	failed   map[string]bool // paths whose fault was told; owned by Run
}

// NewSurvey makes a survey of nothing.
func NewSurvey(log *slog.Logger) *Survey {
	s := &Survey{log: log, requests: make(chan struct{}, 1), done: make(chan struct{}, 1), failed: map[string]bool{}}
	s.pods.Store(new([]*PodDisk))
	s.since.Store(new(time.Time))
	return s
}

// Watch replaces the pods and asks for a round.
func (s *Survey) Watch(pods []*PodDisk) {
	s.pods.Store(&pods)
	s.Request()
}

// Request asks for a new round, at full speed, and returns at once.
func (s *Survey) Request() {
	select {
	case s.requests <- struct{}{}:
	default:
	}
}

// Since is when the last complete round began; zero before the first.
func (s *Survey) Since() time.Time { return *s.since.Load() }

// Done receives when a round is complete.
func (s *Survey) Done() <-chan struct{} { return s.done }

// Run surveys until ctx ends, and returns nil.
func (s *Survey) Run(ctx context.Context) error {
	regular := time.NewTicker(SurveyInterval)
	defer regular.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-s.requests:
			s.round(ctx, 0)
		case <-regular.C:
			s.round(ctx, walkPause)
		}
	}
}

// round walks every directory once.
func (s *Survey) round(ctx context.Context, pause time.Duration) {
	begun := time.Now()
	for _, pod := range *s.pods.Load() {
		found := make([]stats.Volume, len(pod.paths))
		for i, path := range pod.paths {
			if path != "" {
				found[i] = s.measure(ctx, path, pause)
			}
		}
		if ctx.Err() != nil {
			return
		}
		pod.found.Store(&found)
	}
	s.since.Store(&begun)
	select {
	case s.done <- struct{}{}:
	default:
	}
}

// measure walks one directory. One that is not there holds nothing known.
func (s *Survey) measure(ctx context.Context, path string, pause time.Duration) stats.Volume {
	w, err := newWalk(path)
	switch {
	case err != nil && !s.failed[path]:
		s.log.Warn("a pod's directory cannot be measured", "path", path, "error", err)
		s.failed[path] = true
	case err == nil:
		delete(s.failed, path)
	}
	if w == nil {
		return stats.Volume{}
	}
	defer w.close()
	for budget := walkPerStep; !w.step(&budget); budget = walkPerStep {
		select {
		case <-ctx.Done():
			return stats.Volume{}
		case <-time.After(pause):
		}
	}
	return stats.Volume{Used: stats.Known(w.bytes), Inodes: stats.Known(w.inodes)}
}
