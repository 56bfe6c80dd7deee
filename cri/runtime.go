// Package cri is the client of the container runtime over the Container Runtime
// Interface, v1: it reports what the runtime has as that changes, and executes orders.
// Every call has a deadline. A runtime that hangs or is down blocks nothing outside
// this package. The package decides nothing.
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
	// pollPeriod is how often the runtime is listed without container events, and
	// eventPeriod with them.
	pollPeriod  = 5 * time.Second
	eventPeriod = 30 * time.Second
	// settle is how long further changes are awaited before a listing.
	settle = 50 * time.Millisecond
	// A connection that failed is retried after firstRetry, then after twice as long
	// each time, up to lastRetry.
	firstRetry = 100 * time.Millisecond
	lastRetry  = 5 * time.Second
	// maxOrders bounds the queued orders.
	maxOrders = 256
)

// Dial connects to the runtime and returns its endpoint.
type Dial func(context.Context) (conn net.Conn, endpoint string, err error)

// Config of a Runtime.
type Config struct {
	Dial Dial
	// StatsInterval is how often writable layers and filesystems are measured.
	StatsInterval time.Duration
}

// Runtime is the client of the container runtime; it reports by messages.
type Runtime struct {
	cfg   Config
	send  func(wire.FromAgent)
	log   *slog.Logger
	calls *calls
	// changed asks for a listing, refresh for a listing and a measurement.
	changed, refresh chan struct{}
	orders           chan wire.Order
	inFlight         atomic.Int64 // orders without an answer

	status  inventory.Runtime // owned by the goroutine of Run
	content content           // likewise

	mu     sync.Mutex
	client *client // nil while the runtime does not answer
}

// New makes a Runtime that calls send with its messages, possibly from several
// goroutines at once.
func New(cfg Config, say func(wire.FromAgent), log *slog.Logger) *Runtime {
	return &Runtime{
		cfg: cfg, send: say, log: log, calls: newCalls(), content: newContent(),
		changed: make(chan struct{}, 1), refresh: make(chan struct{}, 1), orders: make(chan wire.Order, maxOrders),
	}
}

// Refresh asks for a listing and a measurement that begin after the call.
func (r *Runtime) Refresh() { nudge(r.refresh) }

func nudge(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Run connects to the runtime, again after each failure, until ctx ends.
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
		r.disconnected(err)
		select {
		case <-ctx.Done():
			return
		case <-time.After(min(firstRetry<<min(failures, 10), lastRetry)):
		}
	}
}

// session uses one connection until the runtime does not answer.
func (r *Runtime) session(ctx context.Context) (listed bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	c, err := newClient(r.cfg.Dial, r.calls)
	if err != nil {
		return false, err
	}
	defer c.close()
	if err := r.identify(ctx, c); err != nil {
		return false, err
	}
	defer r.setClient(nil)
	var events atomic.Bool // the runtime sends container events
	var following sync.WaitGroup
	defer following.Wait()
	defer cancel()
	if broadcasts(r.status.Name, r.status.Version) && !r.calls.isMissing(eventMethod) {
		events.Store(true)
		following.Go(func() {
			r.events(ctx, c)
			events.Store(false)
			nudge(r.changed)
		})
	}
	next := time.NewTimer(pollPeriod)
	defer next.Stop()
	measure := time.NewTicker(r.cfg.StatsInterval)
	defer measure.Stop()
	for measuring := true; ; {
		if err := r.list(ctx, c); err != nil {
			return listed, err
		}
		if !listed {
			listed = true
			r.send(wire.FromAgent{Listed: true})
			r.setClient(c)
			r.connected()
		}
		if measuring {
			if err := r.measure(ctx, c); err != nil {
				return listed, err
			}
		}
		next.Reset(map[bool]time.Duration{true: eventPeriod, false: pollPeriod}[events.Load()])
		if measuring, err = r.wait(ctx, next.C, measure.C); err != nil {
			return listed, err
		}
	}
}

// wait returns when a listing is due, and whether a measurement is due too.
func (r *Runtime) wait(ctx context.Context, poll, measure <-chan time.Time) (measuring bool, err error) {
	select {
	case <-ctx.Done():
		return false, ctx.Err()
	case <-poll:
	case <-measure:
		measuring = true
	case <-r.refresh:
		return true, nil
	case <-r.changed:
		select {
		case <-ctx.Done():
			return false, ctx.Err()
		case <-time.After(settle):
		}
		select { // the listing begins after these changes
		case <-r.changed:
		default:
		}
	}
	return measuring, nil
}

// identify asks for the runtime's name and version.
func (r *Runtime) identify(ctx context.Context, c *client) error {
	version, err := c.Version(ctx, &cri.VersionRequest{})
	if err != nil {
		return c.wrap("ask the container runtime for its version", err)
	}
	if version.RuntimeName != r.status.Name || version.RuntimeVersion != r.status.Version {
		r.calls.clearMissing()
	}
	r.status.Name, r.status.Version, r.status.Endpoint = version.RuntimeName, version.RuntimeVersion, c.at()
	r.content.sandboxImage = ""
	answer, err := c.Status(ctx, &cri.StatusRequest{Verbose: true})
	if unusable(err) {
		return c.wrap("ask the container runtime for its status", err)
	}
	r.content.sandboxImage = sandboxImage(answer.GetInfo()["config"])
	return nil
}

func (r *Runtime) setClient(c *client) {
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
	r.status.Connected, r.status.Since, r.status.Error = true, time.Now(), ""
	r.log.Info("the container runtime answers", "name", r.status.Name, "version", r.status.Version, "endpoint", r.status.Endpoint,
		"sandboxes", len(r.content.sandboxes), "containers", len(r.content.containers), "images", len(r.content.images))
	r.sendStatus()
}

// disconnected reports that the runtime does not answer.
func (r *Runtime) disconnected(err error) {
	if r.status.Connected || r.status.Error != err.Error() {
		r.log.Warn("the container runtime does not answer", "error", err)
	}
	if r.status.Connected || r.status.Since.IsZero() {
		r.status.Connected, r.status.Since = false, time.Now()
	}
	r.status.Error = err.Error()
	r.sendStatus()
}

// sendStatus reports the status of the connection.
func (r *Runtime) sendStatus() {
	r.calls.copyTo(&r.status)
	status := r.status
	r.send(wire.FromAgent{Runtime: &status})
}

const eventMethod = "GetContainerEvents"

// events triggers a listing for each container event; when the stream ends, the runtime
// is polled.
func (r *Runtime) events(ctx context.Context, c *client) {
	stream, err := c.GetContainerEvents(ctx, &cri.GetEventsRequest{})
	for err == nil {
		if _, err = stream.Recv(); err == nil {
			nudge(r.changed)
		}
	}
	r.calls.record(eventMethod, 0, err)
	if ctx.Err() == nil {
		r.log.Info("the container runtime sends no container events and is polled", "every", pollPeriod, "error", err)
	}
}

// broadcasts says whether every subscriber of container events gets all of them. Before
// containerd 2.0, and in CRI-O, each event reaches one subscriber, and the kubelet must
// have its own (containerd/containerd#7318).
func broadcasts(name, version string) bool {
	var major int
	_, err := fmt.Sscanf(version, "v%d.", &major)
	if err != nil {
		_, err = fmt.Sscanf(version, "%d.", &major)
	}
	return name == "containerd" && err == nil && major >= 2
}
