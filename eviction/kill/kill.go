package kill

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/evictd/evictd/stats"
)

// Overdue is how long a pod may outlive its grace period before its kill counts
// as failed.
const Overdue = 10 * time.Second

// Errors of Killer.Kill and of a Result.
var (
	ErrFull         = errors.New("too many pods are being killed")
	ErrStopped      = errors.New("killing has stopped")
	ErrNotSignalled = errors.New("no process could be signalled")
	ErrPopulated    = errors.New("processes outlived their grace period")
)

// Target is the processes of a pod. After the removal of the pod it has none; its
// methods may then return an fs.ErrNotExist. Implementations are pointers: equal
// targets are the same pod.
type Target interface {
	// AppendProcesses appends the ids of the processes in the pod.
	AppendProcesses(pids []int) ([]int, error)
	// Kill kills all of them at once, including those being forked. The error is
	// errors.ErrUnsupported without cgroup.kill.
	Kill() error
	// Populated says whether the pod has a process.
	Populated() (bool, error)
}

// thawer is a Target whose processes may be frozen. Under the cgroup v1 freezer a
// frozen process neither handles a signal nor dies of one.
type thawer interface {
	Thaw() error
}

// freezer is a thawer that can also freeze the processes.
type freezer interface {
	Freeze() error
}

// CPUBooster is a Target that can raise the CPU weight of its processes and lift their
// CPU quota. undo restores what was changed, also where err reports that a part failed.
type CPUBooster interface {
	BoostCPU() (undo func(), err error)
}

// startForbidder is a Target in which another program may start processes after its end.
type startForbidder interface {
	// ForbidStarts has the kernel refuse that, and says whether it did not before.
	ForbidStarts() bool
}

// memoryFreer is a Target that may hold memory when no process of it is left: page cache.
type memoryFreer interface {
	// FreeMemory has the kernel free it. It returns when that is done or, once ctx has ended, as soon as the kernel allows.
	FreeMemory(ctx context.Context) error
}

// Victim is a pod to kill.
type Victim struct {
	UID  types.UID
	Name string // namespace/name, for messages
	// Container is the name of the container to end; empty for the whole pod.
	Container string
	Grace     time.Duration // from SIGTERM to SIGKILL; zero or less: SIGKILL at once
	Soft      bool          // evicted for a soft threshold: the Eviction API may be asked first
	Target    Target
	// Elsewhere is not nil where the container runtime stops the containers. SIGTERM is
	// sent after it is closed; SIGKILL is sent at the end of the grace period in any
	// case.
	Elsewhere <-chan struct{}
	// Ended is called when no process is left, before page cache of the pod is freed, and must not block; nil is not
	// called.
	Ended func()
	// Tasks is the last measured number of tasks. Prepare keeps the open pidfds of a
	// pod whose number has not changed; unknown makes it list the processes.
	Tasks stats.Amount
	// Held is the usage before the kill, bytes; where it is unknown, Usage is called.
	Held stats.Amount
	// Usage reads the usage of the pod, bytes: before the first signal and after the
	// end. It is zero after the removal of the pod. Nil leaves Result.Freed unknown.
	Usage func() stats.Amount
}

// Result reports how a kill ended. A kill that failed is continued; if it succeeds
// later, a second result follows.
type Result struct {
	UID       types.UID
	Container string       // as of Victim
	Signalled time.Time    // of the first signal; zero if none was sent
	Killed    time.Time    // of the first SIGKILL; zero if none was needed
	Gone      time.Time    // when no process was left; zero if some are
	Freed     stats.Amount // bytes, once gone
	Err       error        // is ErrNotSignalled or ErrPopulated; nil once gone
}

// Config bounds a Killer.
type Config struct {
	Victims   int // killed at the same time, but for kills that have failed; zero or less: 32
	Releasers int // goroutines that call process_mrelease(2); zero or less: 2
}

// Killer kills pods in goroutines of its own.
type Killer struct {
	victims  chan *termination // never full: has room for limit
	results  chan Result
	releases chan release
	workers  int // releasers
	open     func(pid int) (process, error)
	alarm    func(at time.Time) (expired <-chan struct{}, stop func())
	log      *slog.Logger
	// cannotRelease is set after process_mrelease(2) failed with ENOSYS or EPERM.
	cannotRelease atomic.Bool

	mu       sync.Mutex
	inFlight map[types.UID]*termination
	ready    map[Target]*pidfdSet
	next     *termination // without a victim, so that Kill makes none; nil until the last one runs
	limit    int
	begun    int // terminations that have neither ended nor failed
	stopped  bool
}

// New makes a Killer. Nothing is killed before Run.
func New(cfg Config, log *slog.Logger) *Killer {
	if cfg.Victims <= 0 {
		cfg.Victims = 32
	}
	if cfg.Releasers <= 0 {
		cfg.Releasers = 2
	}
	k := &Killer{
		victims:  make(chan *termination, cfg.Victims),
		results:  make(chan Result, cfg.Victims),
		releases: make(chan release, 128),
		workers:  cfg.Releasers,
		open:     openPidfd,
		alarm:    alarm,
		log:      log,
		inFlight: map[types.UID]*termination{},
		ready:    map[Target]*pidfdSet{},
		limit:    cfg.Victims,
	}
	k.next = newTermination(k)
	return k
}

// Results delivers the result of each kill; Run closes it. Results that are not read
// block their goroutines, until Kill returns ErrFull.
func (k *Killer) Results() <-chan Result { return k.results }

// Kill starts the kill of a pod and returns at once. It signals the prepared processes
// on the caller's thread, and allocates nothing before: while Go's collector runs, a goroutine
// that allocates may be parked until the collector has done its part. The grace period
// counts from now. For a pod that is being killed it can only shorten the grace period; the
// other fields of v are ignored. Where only a container of the pod is being ended, that continues beside the kill of the
// pod. The error is ErrFull or ErrStopped.
func (k *Killer) Kill(v Victim) error {
	ends := time.Now().Add(v.Grace)
	k.mu.Lock()
	defer k.mu.Unlock()
	switch p := k.inFlight[v.UID]; {
	case k.stopped:
		return fmt.Errorf("kill pod %s: %w", v.Name, ErrStopped)
	case p != nil && (p.Container == "" || p.Container == v.Container):
		p.shorten(ends)
		return nil
	case k.begun == k.limit:
		return fmt.Errorf("kill pod %s: %w", v.Name, ErrFull)
	}
	p := k.next
	if k.next = nil; p == nil {
		p = newTermination(k)
	}
	p.Victim, p.ends, p.pidfdSet = v, ends, k.takeReadyLocked(v.Target)
	p.signalReady()
	k.inFlight[v.UID] = p
	k.begun++
	k.victims <- p
	return nil
}

// makeNext makes what the next Kill uses.
func (k *Killer) makeNext() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.next == nil {
		k.next = newTermination(k)
	}
}

// Hasten shortens the grace period of a pod that is being killed: it ends after grace
// from now. It never extends it.
func (k *Killer) Hasten(uid types.UID, grace time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if p := k.inFlight[uid]; p != nil {
		p.shorten(time.Now().Add(grace))
	}
}

// Killed says whether SIGKILL was sent to a pod that is being killed. On a busy machine it is sent
// later than the grace period ends.
func (k *Killer) Killed(uid types.UID) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	p := k.inFlight[uid]
	return p != nil && p.sigkilled.Load()
}

// Kills says whether a pod is being killed: its Target and Usage are in use.
func (k *Killer) Kills(uid types.UID) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.inFlight[uid] != nil
}

// Run kills until ctx ends and returns its error. Pods still in flight then get no
// result. It can be called once.
func (k *Killer) Run(ctx context.Context) error {
	var running sync.WaitGroup
	for range k.workers {
		running.Go(func() { k.releaseAll(ctx) })
	}
	for ctx.Err() == nil {
		select {
		case p := <-k.victims:
			k.makeNext()
			running.Go(func() {
				p.run(ctx)
				k.finish(p)
			})
		case <-ctx.Done():
		}
	}
	k.stop()
	running.Wait()
	close(k.results)
	return ctx.Err()
}

func (k *Killer) stop() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.stopped = true
	for target, g := range k.ready {
		g.closeAll()
		delete(k.ready, target)
	}
}

// removeInFlight runs before the last result of a pod is sent: a Kill after that result
// is a new one.
func (k *Killer) removeInFlight(p *termination) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.inFlight[p.UID] == p {
		delete(k.inFlight, p.UID)
	}
}

// finish has a kill not count toward the bound any more: it has ended, or it has failed and continues
// beside others.
func (k *Killer) finish(p *termination) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !p.finished {
		p.finished = true
		k.begun--
	}
}
