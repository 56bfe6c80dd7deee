package collect

import (
	"cmp"
	"context"
	"log/slog"
	"os"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/evictd/evictd/internal/tick"
	"github.com/evictd/evictd/stats"
)

// ScanInterval is the interval of regular scans: the kubelet's volumeStatsAggPeriod.
const ScanInterval = time.Minute

const (
	// fullScanInterval is the longest interval between full scans.
	fullScanInterval = 10 * time.Minute
	// walkPause follows every walkPerStep entries of a regular scan, which so uses at
	// most a fifth of one processor.
	walkPause = 80 * time.Millisecond
	// maxRemembered bounds the remembered directories and files, some 200 bytes each.
	// Further trees are read in full every time.
	maxRemembered = 16_384
	// A disk may grow by unexplainedBytes and unexplainedInodes more than the trees on
	// it before a full scan is due.
	unexplainedBytes, unexplainedInodes = 64 << 20, 10_000
)

// DiskScanner measures the disk usage of all pods, so that decisions never wait for a
// disk. A regular scan is incremental where possible (see tree); a requested scan is
// full.
type DiskScanner struct {
	log       *slog.Logger
	pods      atomic.Pointer[[]*PodDisk]
	since     atomic.Pointer[time.Time]
	requests  chan struct{}
	unscanned chan struct{}
	done      chan struct{}

	patience time.Duration

	// Owned by Run.
	blocked   map[*PodDisk]*podScan // scans that the kernel has not returned from
	fullUsage map[uint64]diskUsage  // of the last whole round, by device
}

// diskUsage is the usage of a disk, and of the trees on it.
type diskUsage struct {
	bytes, inodes           int64
	treesBytes, treesInodes int64
	path                    string // on it
}

// NewDiskScanner makes a scanner without pods.
func NewDiskScanner(log *slog.Logger) *DiskScanner {
	s := &DiskScanner{
		log: log, requests: make(chan struct{}, 1), unscanned: make(chan struct{}, 1), done: make(chan struct{}, 1),
		patience: answerTimeout, blocked: map[*PodDisk]*podScan{},
	}
	s.pods.Store(new([]*PodDisk))
	s.since.Store(new(time.Time))
	return s
}

// SetPods replaces the pods. Pods that were never measured, or have new paths, are
// scanned next.
func (s *DiskScanner) SetPods(pods []*PodDisk) {
	s.pods.Store(&pods)
	notify(s.unscanned)
}

// Request asks for a full scan without pauses, and returns at once.
func (s *DiskScanner) Request() { notify(s.requests) }

// LastScan is when the last full scan of all pods began; zero before the first.
func (s *DiskScanner) LastScan() time.Time { return *s.since.Load() }

// Done receives when a scan has ended.
func (s *DiskScanner) Done() <-chan struct{} { return s.done }

// Run scans until ctx ends, and returns nil.
func (s *DiskScanner) Run(ctx context.Context) error {
	regular := time.NewTimer(tick.Until(ScanInterval))
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
			regular.Reset(tick.Until(ScanInterval))
			whole := time.Since(s.LastScan()) > fullScanInterval
			s.scan(ctx, whole, walkPause, everyPod)
			if !whole && s.unexplained() {
				s.scan(ctx, true, walkPause, everyPod)
			}
		}
	}
}

func everyPod(*PodDisk) bool { return true }

// diskScan is one scan of several pods.
type diskScan struct {
	scanner  *DiskScanner
	ctx      context.Context
	full     bool
	pause    time.Duration
	room     int
	entries  int // entries since the last pause
	overlays map[uint64]PodPath
}

// scan scans the chosen pods. A pod that cannot be scanned is unknown, and does not make the scan
// incomplete.
func (s *DiskScanner) scan(ctx context.Context, whole bool, pause time.Duration, chosen func(*PodDisk) bool) {
	begun := time.Now()
	r := &diskScan{scanner: s, ctx: ctx, full: whole, pause: pause, room: maxRemembered}
	if whole {
		r.overlays = s.overlays()
	}
	s.dropReturned()
	// Pods that take long are scanned last, so that no other pod waits for them.
	pods, complete := slices.SortedStableFunc(slices.Values(*s.pods.Load()), func(a, b *PodDisk) int { return cmp.Compare(a.took, b.took) }), true
	for _, pod := range s.answering(pods) {
		for t := range pod.trees {
			r.room -= t.remembered
		}
	}
	for _, pod := range pods {
		if !chosen(pod) {
			complete = false
			continue
		}
		if !s.scanPod(r, pod) {
			return
		}
	}
	if whole && complete {
		s.fullUsage = usageOf(s.answering(pods))
		s.since.Store(&begun)
	}
	notify(s.done)
}

// overlays finds the writable layers; none where mountinfo cannot be read.
func (s *DiskScanner) overlays() map[uint64]PodPath {
	mounts, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return nil
	}
	defer mounts.Close()
	layers, err := overlays(mounts)
	if err != nil {
		s.log.Warn("cannot read the mount table; writable layers have the figures of the runtime", "error", err)
	}
	delete(layers, rootDevice(os.Getpid())) // the root of a host that is itself a container
	return layers
}

func (r *diskScan) cancelled() bool { return r.ctx.Err() != nil }

// wait pauses between two steps, unless a scan was requested. It returns false when ctx
// has ended.
func (r *diskScan) wait() bool {
	if len(r.scanner.requests) > 0 {
		r.pause = 0
	}
	if r.pause == 0 {
		return !r.cancelled()
	}
	select {
	case <-r.ctx.Done():
		return false
	case <-time.After(r.pause):
		return true
	}
}

// measure measures one tree. A tree without a path, or that does not exist, is unknown.
func (r *podScan) measure(t *tree) stats.Volume {
	if t.place == (PodPath{}) {
		return stats.Volume{}
	}
	r.at(t.place)
	t.steps = &r.steps
	room := r.room
	entries, err := t.measure(time.Now(), r.full, &r.room, func() bool {
		r.show()
		return r.wait()
	})
	t.remembered += room - r.room
	if r.entries += entries % walkPerStep; r.entries >= walkPerStep {
		r.entries = 0
		r.wait()
	}
	if err != nil && !t.failed {
		r.scanner.log.Warn("cannot measure a directory of a pod", "path", t.place.String(), "error", err)
	}
	t.failed = err != nil
	return t.volume()
}

// volume is the usage of the tree at its last measurement; unknown before.
func (t *tree) volume() stats.Volume {
	if t.lastFull.IsZero() {
		return stats.Volume{}
	}
	return stats.Volume{Time: t.lastFull, Used: stats.Known(t.bytes), Inodes: stats.Known(t.inodes)}
}

// atLeast is what the present measurement has counted, where that is more than was found before.
func (t *tree) atLeast(found stats.Volume) stats.Volume {
	if t.counted.Used.Or(0) > found.Used.Or(0) || t.counted.Inodes.Or(0) > found.Inodes.Or(0) {
		return t.counted
	}
	return found
}

// trees are all trees of a pod.
func (d *PodDisk) trees(yield func(*tree) bool) {
	for _, trees := range [][]tree{d.volumes, d.logs, d.layers} {
		for i := range trees {
			if !yield(&trees[i]) {
				return
			}
		}
	}
	yield(&d.own)
}

// elsewhere says whether the tree is on another filesystem than a path. Subvolumes of btrfs are on one.
func (t *tree) elsewhere(than string) bool {
	if t.lastFull.IsZero() {
		return false
	}
	var st unix.Statx_t
	if statAt(unix.AT_FDCWD, nameZ(than), 0, &st) != 0 || device(&st) == t.device {
		return false
	}
	there, here := newFilesystem(than), newFilesystem(t.place.String())
	there.measure()
	here.measure()
	return there.lastDevice() != here.lastDevice()
}

// usageOf sums the trees by device, for the devices with an incrementally measured
// tree.
func usageOf(pods []*PodDisk) map[uint64]diskUsage {
	all := map[uint64]diskUsage{}
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

// unexplained says whether a disk has grown since the last full scan by more than
// incremental scans have found.
func (s *DiskScanner) unexplained() bool {
	for device, now := range usageOf(s.answering(*s.pods.Load())) {
		then, known := s.fullUsage[device]
		bytes := now.bytes - then.bytes - (now.treesBytes - then.treesBytes)
		inodes := now.inodes - then.inodes - (now.treesInodes - then.treesInodes)
		if known && (bytes > unexplainedBytes || inodes > unexplainedInodes) {
			return true
		}
	}
	return false
}
