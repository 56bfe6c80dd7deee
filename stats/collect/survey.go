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

// SurveyInterval is how often a Survey measures what nobody asked for: the
// kubelet's volumeStatsAggPeriod.
const SurveyInterval = time.Minute

const (
	// wholeInterval is how often everything is looked at though nobody asks and
	// no disk fills up more than its pods are seen to.
	wholeInterval = 10 * time.Minute
	// walkPause follows every walkPerStep entries of a round that nobody waits
	// for, so that it takes a fifth of one processor at most.
	walkPause = 80 * time.Millisecond
	// memory is how many directories and files a survey remembers, some 200 bytes
	// each. Trees beyond are read whole every time.
	memory = 16_384
	// unexplainedBytes and unexplainedInodes by which a disk may fill up more than
	// the trees on it.
	unexplainedBytes, unexplainedInodes = 64 << 20, 10_000
)

// Survey measures what all pods hold on disks, round by round, so that nobody who
// decides ever waits for a disk. A regular round is quick where it can be (see
// tree); one that is asked for looks at everything.
type Survey struct {
	log       *slog.Logger
	pods      atomic.Pointer[[]*PodDisk]
	since     atomic.Pointer[time.Time]
	requests  chan struct{}
	newcomers chan struct{}
	done      chan struct{}

	// Owned by Run.
	failed map[Place]bool   // whose fault was told
	whole  map[uint64]usage // of the last whole round, by device
}

// usage is what a disk holds, and the trees on it.
type usage struct {
	bytes, inodes           int64
	treesBytes, treesInodes int64
	path                    string // on it
}

// NewSurvey makes a survey of nothing.
func NewSurvey(log *slog.Logger) *Survey {
	s := &Survey{
		log: log, requests: make(chan struct{}, 1), newcomers: make(chan struct{}, 1), done: make(chan struct{}, 1),
		failed: map[Place]bool{},
	}
	s.pods.Store(new([]*PodDisk))
	s.since.Store(new(time.Time))
	return s
}

// Watch replaces the pods. Those that were never measured are measured next, and
// those that the runtime has told of since.
func (s *Survey) Watch(pods []*PodDisk) {
	s.pods.Store(&pods)
	poke(s.newcomers)
}

// Request asks for a whole round, at full speed, and returns at once.
func (s *Survey) Request() { poke(s.requests) }

// Since is when the last whole round began; zero before the first.
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
			s.round(ctx, true, 0, everyPod)
		case <-s.newcomers:
			s.round(ctx, true, 0, (*PodDisk).unseen)
		case <-regular.C:
			whole := time.Since(s.Since()) > wholeInterval
			s.round(ctx, whole, walkPause, everyPod)
			if !whole && s.unexplained() {
				s.round(ctx, true, walkPause, everyPod)
			}
		}
	}
}

func everyPod(*PodDisk) bool { return true }

// round is one look at many pods.
type round struct {
	survey   *Survey
	ctx      context.Context
	whole    bool
	pause    time.Duration
	room     int
	looked   int // entries since the last pause
	overlays map[uint64]Place
}

// round looks at the pods that are chosen.
func (s *Survey) round(ctx context.Context, whole bool, pause time.Duration, chosen func(*PodDisk) bool) {
	begun := time.Now()
	r := &round{survey: s, ctx: ctx, whole: whole, pause: pause, room: memory}
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
		if !pod.look(r) {
			return
		}
	}
	if whole && complete {
		s.whole = usageOf(pods)
		s.since.Store(&begun)
	}
	poke(s.done)
}

// overlays finds the writable layers; none where the mounts cannot be read.
func (s *Survey) overlays() map[uint64]Place {
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

func (r *round) ended() bool { return r.ctx.Err() != nil }

// pace rests between two steps, unless somebody waits for a round.
func (r *round) pace() bool {
	if len(r.survey.requests) > 0 {
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
func (r *round) measure(t *tree) stats.Volume {
	if t.place == (Place{}) {
		return stats.Volume{}
	}
	room := r.room
	entries, err := t.look(time.Now(), r.whole, &r.room, r.pace)
	t.remembers += room - r.room
	if r.looked += entries % walkPerStep; r.looked >= walkPerStep {
		r.looked = 0
		r.pace()
	}
	failed := r.survey.failed
	switch {
	case err != nil && !failed[t.place]:
		r.survey.log.Warn("a pod's directory cannot be measured", "path", t.place.String(), "error", err)
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
func (s *Survey) unexplained() bool {
	for device, now := range usageOf(*s.pods.Load()) {
		then, known := s.whole[device]
		bytes := now.bytes - then.bytes - (now.treesBytes - then.treesBytes)
		inodes := now.inodes - then.inodes - (now.treesInodes - then.treesInodes)
		if known && (bytes > unexplainedBytes || inodes > unexplainedInodes) {
			return true
		}
	}
	return false
}
