// Package cri speaks to the container runtime over the Container Runtime
// Interface, v1: it says what the runtime has as that changes, and carries out
// orders. Every call has a deadline, a runtime that hangs or is away holds up
// nothing but this package, and nothing here decides anything.
package cri

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/evictd/evictd/cri/inventory"
	"github.com/evictd/evictd/internal/wire"
)

const (
	// pollPeriod is how often the runtime is listed where it tells of no changes,
	// and eventPeriod where it does.
	pollPeriod  = 5 * time.Second
	eventPeriod = 30 * time.Second
	// settle is how long further changes are waited for before they are listed.
	settle = 50 * time.Millisecond
	// A runtime that does not answer is asked again after firstRetry, and then each
	// time after twice as long, up to lastRetry.
	firstRetry = 100 * time.Millisecond
	lastRetry  = 5 * time.Second
	// maxOrders bounds the orders that wait to be begun.
	maxOrders = 256
)

// Dial connects to the runtime and says at what endpoint it is.
type Dial func(context.Context) (conn net.Conn, endpoint string, err error)

// Config of a Runtime.
type Config struct {
	Dial Dial
	// StatsInterval is how often writable layers and filesystems are asked for.
	StatsInterval time.Duration
}

// Runtime is the container runtime as a source of messages.
type Runtime struct {
	cfg   Config
	say   func(wire.Up)
	log   *slog.Logger
	calls *calls
	// changed wakes for a listing and look for a listing and a survey.
	changed, look chan struct{}
	orders        chan wire.Order
	underWay      atomic.Int64 // orders taken and not answered

	stands inventory.Runtime // of the goroutine of Run
	stock  stock             // likewise

	mu     sync.Mutex
	client *client // nil while the runtime does not answer
}

// New makes a Runtime that calls say with what there is to be said, from one
// goroutine or another, one at a time or not.
func New(cfg Config, say func(wire.Up), log *slog.Logger) *Runtime {
	return &Runtime{
		cfg: cfg, say: say, log: log, calls: newCalls(), stock: newStock(),
		changed: make(chan struct{}, 1), look: make(chan struct{}, 1), orders: make(chan wire.Order, maxOrders),
	}
}

// Refresh asks for figures that are younger than now.
func (r *Runtime) Refresh() { nudge(r.look) }

func nudge(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Run speaks to the runtime until ctx ends.
func (r *Runtime) Run(ctx context.Context) {
	var running sync.WaitGroup
	defer running.Wait()
	running.Go(func() { r.serveOrders(ctx) })
	for failures := 0; ; failures++ {
		listed, err := r.session(ctx)
		if ctx.Err() != nil {
			return
		}
		if listed {
			failures = 0
		}
		r.lost(err)
		select {
		case <-ctx.Done():
			return
		case <-time.After(min(firstRetry<<min(failures, 10), lastRetry)):
		}
	}
}

// session speaks over one connection, for as long as the runtime answers.
func (r *Runtime) session(ctx context.Context) (listed bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	c, err := newClient(r.cfg.Dial, r.calls)
	if err != nil {
		return false, err
	}
	defer c.close()
	if err := r.meet(ctx, c); err != nil {
		return false, err
	}
	defer r.use(nil)
	var told atomic.Bool // of changes
	var following sync.WaitGroup
	defer following.Wait()
	defer cancel()
	if broadcasts(r.stands.Name, r.stands.Version) && !r.calls.lacks(eventMethod) {
		told.Store(true)
		following.Go(func() {
			r.events(ctx, c)
			told.Store(false)
			nudge(r.changed)
		})
	}
	next := time.NewTimer(pollPeriod)
	defer next.Stop()
	survey := time.NewTicker(r.cfg.StatsInterval)
	defer survey.Stop()
	for surveying := true; ; {
		if err := r.list(ctx, c); err != nil {
			return listed, err
		}
		if !listed {
			listed = true
			r.say(wire.Up{Listed: true})
			r.use(c)
			r.connected()
		}
		if surveying {
			if err := r.survey(ctx, c); err != nil {
				return listed, err
			}
		}
		next.Reset(map[bool]time.Duration{true: eventPeriod, false: pollPeriod}[told.Load()])
		if surveying, err = r.wait(ctx, next.C, survey.C); err != nil {
			return listed, err
		}
	}
}

// wait returns when there is something to ask for, and whether that is a survey
// too.
func (r *Runtime) wait(ctx context.Context, poll, survey <-chan time.Time) (surveying bool, err error) {
	select {
	case <-ctx.Done():
		return false, ctx.Err()
	case <-poll:
	case <-survey:
		surveying = true
	case <-r.look:
		return true, nil
	case <-r.changed:
		select {
		case <-ctx.Done():
			return false, ctx.Err()
		case <-time.After(settle):
		}
		select { // the listing to come is young enough
		case <-r.changed:
		default:
		}
	}
	return surveying, nil
}

// meet asks the runtime who it is.
func (r *Runtime) meet(ctx context.Context, c *client) error {
	version, err := c.Version(ctx, &cri.VersionRequest{})
	if err != nil {
		return c.explain("ask the container runtime for its version", err)
	}
	if version.RuntimeName != r.stands.Name || version.RuntimeVersion != r.stands.Version {
		r.calls.forget()
	}
	r.stands.Name, r.stands.Version, r.stands.Endpoint = version.RuntimeName, version.RuntimeVersion, c.at()
	r.stock.sandboxImage = ""
	answer, err := c.Status(ctx, &cri.StatusRequest{Verbose: true})
	if unusable(err) {
		return c.explain("ask the container runtime for its status", err)
	}
	r.stock.sandboxImage = sandboxImage(answer.GetInfo()["config"])
	return nil
}

func (r *Runtime) use(c *client) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.client = c
}

func (r *Runtime) current() *client {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.client
}

func (r *Runtime) connected() {
	r.stands.Connected, r.stands.Since, r.stands.Error = true, time.Now(), ""
	r.log.Info("the container runtime answers", "name", r.stands.Name, "version", r.stands.Version, "endpoint", r.stands.Endpoint,
		"sandboxes", len(r.stock.sandboxes), "containers", len(r.stock.containers), "images", len(r.stock.images))
	r.tell()
}

// lost tells that the runtime does not answer.
func (r *Runtime) lost(err error) {
	if r.stands.Connected || r.stands.Error != err.Error() {
		r.log.Warn("the container runtime does not answer", "error", err)
	}
	if r.stands.Connected || r.stands.Since.IsZero() {
		r.stands.Connected, r.stands.Since = false, time.Now()
	}
	r.stands.Error = err.Error()
	r.tell()
}

// tell says how the runtime stands.
func (r *Runtime) tell() {
	r.calls.fill(&r.stands)
	stands := r.stands
	r.say(wire.Up{Runtime: &stands})
}

const eventMethod = "GetContainerEvents"

// events wakes the listing whenever the runtime tells of a change; when it ends
// telling, it is polled as others are.
func (r *Runtime) events(ctx context.Context, c *client) {
	stream, err := c.GetContainerEvents(ctx, &cri.GetEventsRequest{})
	for err == nil {
		if _, err = stream.Recv(); err == nil {
			nudge(r.changed)
		}
	}
	r.calls.note(eventMethod, 0, err)
	if ctx.Err() == nil {
		r.log.Info("the container runtime tells of no changes and is polled", "every", pollPeriod, "error", err)
	}
}

// broadcasts says whether every subscriber of container events gets all of them.
// Before containerd 2.0 and in CRI-O subscribers take them from each other, and
// the kubelet must have its own (containerd/containerd#7318).
func broadcasts(name, version string) bool {
	var major int
	_, err := fmt.Sscanf(version, "v%d.", &major)
	if err != nil {
		_, err = fmt.Sscanf(version, "%d.", &major)
	}
	return name == "containerd" && err == nil && major >= 2
}
