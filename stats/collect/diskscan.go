package collect

import (
	"context"
	"log/slog"
	"os"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/evictd/evictd/stats"
)

// ScanInterval is how often a Survey measures what nobody asked for: the
// kubelet's volumeStatsAggPeriod.
const ScanInterval = time.Minute

const (
	// fullScanInterval is how often everything is looked at though nobody asks and
	// no disk fills up more than its pods are seen to.
	fullScanInterval = 10 * time.Minute
	// walkPause follows every walkPerStep entries of a round that nobody waits
	// for, so that it takes a fifth of one processor at most.
	walkPause = 80 * time.Millisecond
	// maxRemembered is how many directories and files a survey remembers, some 200 bytes
	// each. Trees beyond are read whole every time.
	maxRemembered = 16_384
	// unexplainedBytes and unexplainedInodes by which a disk may fill up more than
	// the trees on it.
	unexplainedBytes, unexplainedInodes = 64 << 20, 10_000
)

// DiskScanner measures what all pods hold on disks, round by round, so that nobody who
// decides ever waits for a disk. A regular round is quick where it can be (see
// tree); one that is asked for looks at everything.
type DiskScanner struct {
	log       *slog.Logger
	pods      atomic.Pointer[[]*PodDisk]
	since     atomic.Pointer[time.Time]
	requests  chan struct{}
	unscanned chan struct{}
	done      chan struct{}

	// Owned by Run.
	failed    map[PodPath]bool // whose fault was told
	fullUsage map[uint64]usage // of the last whole round, by device
}

// usage is what a disk holds, and the trees on it.
type usage struct {
	bytes, inodes           int64
	treesBytes, treesInodes int64
	path                    string // on it
}

// NewDiskScanner makes a survey of nothing.
func NewDiskScanner(log *slog.Logger) *DiskScanner {
	s := &DiskScanner{
		log: log, requests: make(chan struct{}, 1), unscanned: make(chan struct{}, 1), done: make(chan struct{}, 1),
		failed: map[PodPath]bool{},
	}
	s.pods.Store(new([]*PodDisk))
	s.since.Store(new(time.Time))
	return s
}

// SetPods replaces the pods. Those that were never measured are measured next, and
// those that the runtime has told of since.
func (s *DiskScanner) SetPods(pods []*PodDisk) {
	s.pods.Store(&pods)
	poke(s.unscanned)
}

// Request asks for a whole round, at full speed, and returns at once.
func (s *DiskScanner) Request() { poke(s.requests) }

// LastScan is when the last whole round began; zero before the first.
func (s *DiskScanner) LastScan() time.Time { return *s.since.Load() }

// Done receives when a round is complete.
func (s *DiskScanner) Done() <-chan struct{} { return s.done }

// Run surveys until ctx ends, and returns nil.
func (s *DiskScanner) Run(ctx context.Context) error {
	regular := time.NewTicker(ScanInterval)
	defer regular.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-s.requests:
			s.scan(ctx, true, 0, everyPod)
		case <-s.unscanned:
			s.scan(ctx, true, 0, (*PodDisk).unscanned)
		case <-regular.C:
			whole := time.Since(s.LastScan()) > fullScanInterval
			s.scan(ctx, whole, walkPause, everyPod)
			if !whole && s.unexplained() {
				s.scan(ctx, true, walkPause, everyPod)
			}
		}
	}
}

func everyPod(*PodDisk) bool { return true }

// diskScan is one look at many pods.
type diskScan struct {
	scanner  *DiskScanner
	ctx      context.Context
	whole    bool
	pause    time.Duration
	room     int
	looked   int // entries since the last pause
	overlays map[uint64]PodPath
}

// scan looks at the pods that are chosen.
func (s *DiskScanner) scan(ctx context.Context, whole bool, pause time.Duration, chosen func(*PodDisk) bool) {
	begun := time.Now()
	r := &diskScan{scanner: s, ctx: ctx, whole: whole, pause: pause, room: maxRemembered}
	if whole {
		r.overlays = s.overlays()
	}
	pods, complete := *s.pods.Load(), true
	for _, pod := range pods {
		for t := range pod.trees {
			r.room -= t.remembers
		}
	}
	for _, pod := range pods {
		if !chosen(pod) {
			complete = false
			continue
		}
		if !pod.scan(r) {
			return
		}
	}
	if whole && complete {
		s.fullUsage = usageOf(pods)
		s.since.Store(&begun)
	}
	poke(s.done)
}

// overlays finds the writable layers; none where the mounts cannot be read.
func (s *DiskScanner) overlays() map[uint64]PodPath {
	mounts, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return nil
	}
	defer mounts.Close()
	layers, err := overlays(mounts)
	if err != nil {
		s.log.Warn("the mounts cannot be read; writable layers are as the runtime tells them", "error", err)
	}
	delete(layers, rootDevice(os.Getpid())) // a host that is itself a container
	return layers
}

func (r *diskScan) ended() bool { return r.ctx.Err() != nil }

// pace rests between two steps, unless somebody waits for a round.
func (r *diskScan) pace() bool {
	if len(r.scanner.requests) > 0 {
		r.pause = 0
	}
	if r.pause == 0 {
		return !r.ended()
	}
	select {
	case <-r.ctx.Done():
		return false
	case <-time.After(r.pause):
		return true
	}
}

// measure looks at one tree. One that is nowhere, or not there, holds nothing
// known.
func (r *diskScan) measure(t *tree) stats.Volume {
	if t.place == (PodPath{}) {
		return stats.Volume{}
	}
	room := r.room
	entries, err := t.look(time.Now(), r.whole, &r.room, r.pace)
	t.remembers += room - r.room
	if r.looked += entries % walkPerStep; r.looked >= walkPerStep {
		r.looked = 0
		r.pace()
	}
	failed := r.scanner.failed
	switch {
	case err != nil && !failed[t.place]:
		r.scanner.log.Warn("a pod's directory cannot be measured", "path", t.place.String(), "error", err)
		failed[t.place] = true
	case err == nil:
		delete(failed, t.place)
	}
	return t.volume()
}

// volume is what the tree held when it was last looked at; unknown before that.
func (t *tree) volume() stats.Volume {
	if t.whole.IsZero() {
		return stats.Volume{}
	}
	return stats.Volume{Time: t.whole, Used: stats.Known(t.bytes), Inodes: stats.Known(t.inodes)}
}

// trees are all of a pod.
func (d *PodDisk) trees(yield func(*tree) bool) {
	for _, trees := range [][]tree{d.volumes, d.logs, d.layers} {
		for i := range trees {
			if !yield(&trees[i]) {
				return
			}
		}
	}
}

// usageOf sums the trees by device, for those devices that hold one which is not
// looked at whole every time.
func usageOf(pods []*PodDisk) map[uint64]usage {
	all := map[uint64]usage{}
	for _, pod := range pods {
		for t := range pod.trees {
			u := all[t.device]
			u.treesBytes, u.treesInodes = u.treesBytes+t.bytes, u.treesInodes+t.inodes
			if t.root != nil {
				u.path = t.place.String()
			}
			all[t.device] = u
		}
	}
	for device, u := range all {
		var st unix.Statfs_t
		if u.path == "" || unix.Statfs(u.path, &st) != nil {
			delete(all, device)
			continue
		}
		u.bytes, u.inodes = int64(st.Blocks-st.Bfree)*st.Frsize, int64(st.Files-st.Ffree)
		all[device] = u
	}
	return all
}

// unexplained says whether a disk has filled up since the last whole round by more
// than quick looks have found.
func (s *DiskScanner) unexplained() bool {
	for device, now := range usageOf(*s.pods.Load()) {
		then, known := s.fullUsage[device]
		bytes := now.bytes - then.bytes - (now.treesBytes - then.treesBytes)
		inodes := now.inodes - then.inodes - (now.treesInodes - then.treesInodes)
		if known && (bytes > unexplainedBytes || inodes > unexplainedInodes) {
			return true
		}
	}
	return false
}
