// Package kill ends pods: SIGTERM, grace, SIGKILL, the memory taken back, the end
// confirmed. It decides nothing, asks no runtime, starts no program and never
// makes its caller wait. It needs pidfds: Linux 5.3.
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

// What callers of Kill and readers of results branch on.
var (
	ErrFull         = errors.New("too many pods are being killed")
	ErrStopped      = errors.New("killing has stopped")
	ErrNotSignalled = errors.New("no process could be signalled")
	ErrPopulated    = errors.New("processes outlived their grace period")
)

// Target is the processes of a pod. A target that was removed has none, which it
// may also tell by an error that is fs.ErrNotExist. Two that are equal are one:
// targets are pointers.
type Target interface {
	// AppendProcesses appends the ids of the processes that are in the pod now.
	AppendProcesses(pids []int) ([]int, error)
	// Kill kills all of them at once, those being forked included. It is
	// errors.ErrUnsupported where the kernel cannot.
	Kill() error
	// Populated says whether any process lives in the pod.
	Populated() (bool, error)
}

// thawer is a Target whose processes may be frozen. Under the v1 freezer they
// neither handle a signal nor die of one before they are thawed.
type thawer interface {
	Thaw() error
}

// freezer is a thawer that can freeze them, too.
type freezer interface {
	Freeze() error
}

// CPUBooster is a Target whose processes can be given the processor first. What
// could not be done is an error, what was done is undone by undo.
type CPUBooster interface {
	BoostCPU() (undo func(), err error)
}

// Victim is a pod to kill.
type Victim struct {
	UID    types.UID
	Name   string        // namespace/name, for messages
	Grace  time.Duration // from SIGTERM to SIGKILL; zero or less: SIGKILL at once
	Soft   bool          // a soft threshold's: others may be asked first whether it may go
	Target Target
	// Elsewhere is not nil where somebody else tells the processes to end. SIGTERM
	// is sent once it is closed; the end of the grace period waits for nobody.
	Elsewhere <-chan struct{}
	// Ended is called when no process is left, and must not wait. Nil: nobody cares.
	Ended func()
	// Tasks are as last measured: for Prepare, which leaves alone what it has made ready
	// while they are as many as then. Unknown, it looks.
	Tasks stats.Amount
	// Held is what the pod holds now, bytes; where it is unknown, Usage is asked.
	Held stats.Amount
	// Usage reads what the pod holds, bytes: before the first signal and after
	// the end. A pod that is gone holds zero. Nil: what it freed stays unknown.
	Usage func() stats.Amount
}

// Result tells how a kill went. A kill that failed is tried further, and when it
// succeeds after all there is a second result.
type Result struct {
	UID       types.UID
	Signalled time.Time    // of the first signal; zero if none was sent
	Killed    time.Time    // of the first SIGKILL; zero if none was needed
	Gone      time.Time    // when no process was left; zero if some are
	Freed     stats.Amount // bytes, once gone
	Err       error        // is ErrNotSignalled or ErrPopulated; nil once gone
}

// Config bounds a Killer.
type Config struct {
	Victims   int // pods being killed at a time; zero or less: 32
	Releasers int // goroutines that take memory back from dying processes; zero or less: 2
}

// Killer kills pods in goroutines of its own.
type Killer struct {
	victims  chan *termination // never full: has room for limit
	results  chan Result
	releases chan release
	workers  int // releasers
	open     func(pid int) (process, error)
	alarm    func(at time.Time) (rings <-chan struct{}, stop func())
	log      *slog.Logger
	// cannotRelease is set once the kernel has no process_mrelease for us.
	cannotRelease atomic.Bool

	mu       sync.Mutex
	inFlight map[types.UID]*termination
	ready    map[types.UID]*pidfdSet
	limit    int
	begun    int // pursuits that have not delivered their last result
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
	return &Killer{
		victims:  make(chan *termination, cfg.Victims),
		results:  make(chan Result, cfg.Victims),
		releases: make(chan release, 128),
		workers:  cfg.Releasers,
		open:     openPidfd,
		alarm:    alarm,
		log:      log,
		inFlight: map[types.UID]*termination{},
		ready:    map[types.UID]*pidfdSet{},
		limit:    cfg.Victims,
	}
}

// Results delivers what became of each kill; Run closes it. A reader that stalls
// fills it, and then results wait outside until Kill returns ErrFull.
func (k *Killer) Results() <-chan Result { return k.results }

// Kill begins to kill a pod and returns at once. The processes that were prepared
// have been signalled then, by the caller's thread: it may go before others. The grace period counts from
// now. For a pod that is being killed already it can only bring SIGKILL forward;
// the rest of the victim is that of the first call. The error is ErrFull or
// ErrStopped.
func (k *Killer) Kill(v Victim) error {
	ends := time.Now().Add(v.Grace)
	k.mu.Lock()
	defer k.mu.Unlock()
	switch p := k.inFlight[v.UID]; {
	case k.stopped:
		return fmt.Errorf("kill pod %s: %w", v.Name, ErrStopped)
	case p != nil:
		p.shorten(ends)
		return nil
	case k.begun == k.limit:
		return fmt.Errorf("kill pod %s: %w", v.Name, ErrFull)
	}
	p := newTermination(k, v, ends)
	k.inFlight[v.UID] = p
	k.begun++
	p.signalReady()
	k.victims <- p
	return nil
}

// Hasten brings SIGKILL forward to the end of a grace period that counts from
// now, for a pod that is being killed. It never puts SIGKILL off.
func (k *Killer) Hasten(uid types.UID, grace time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if p := k.inFlight[uid]; p != nil {
		p.shorten(time.Now().Add(grace))
	}
}

// Kills says whether a pod is being killed: its Target and Usage are in use.
func (k *Killer) Kills(uid types.UID) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.inFlight[uid] != nil
}

// Run kills until ctx ends and returns its error. Pods that are still in flight
// then get no result. It can be called once.
func (k *Killer) Run(ctx context.Context) error {
	var running sync.WaitGroup
	for range k.workers {
		running.Go(func() { k.releaseAll(ctx) })
	}
	for ctx.Err() == nil {
		select {
		case p := <-k.victims:
			running.Go(func() {
				p.run(ctx)
				k.finish()
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
	for uid, g := range k.ready {
		g.closeAll()
		delete(k.ready, uid)
	}
}

// removeInFlight takes a pod out of flight, before its last result: a Kill after that
// result is a new one.
func (k *Killer) removeInFlight(p *termination) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.inFlight, p.UID)
}

func (k *Killer) finish() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.begun--
}
