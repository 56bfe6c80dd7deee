// Package cri is the client of the container runtime over the Container Runtime
// Interface, v1: it reports what the runtime has as that changes, and executes orders.
// Every call has a deadline, and each method and each object fails by itself. A runtime that
// hangs or is down blocks nothing outside this package. The package decides nothing.
package cri

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"slices"
	"strings"
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
	// samePatience is how long the endpoint that has answered is tried alone before others are
	// tried, too.
	samePatience = 10 * time.Second
	// maxOrders bounds the queued orders.
	maxOrders = 256
)

// Dial connects to the runtime and returns its endpoint: to the last one that was used, or if
// next is set to another one, if there is any.
type Dial func(ctx context.Context, last string, next bool) (conn net.Conn, endpoint string, err error)

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

	// Owned by the goroutine of Run.
	status        inventory.Runtime
	content       content
	faults        map[string]*fault // by CRI method
	away          fault             // of the connection
	refusals      map[string]string // errors by the endpoint, since one answered
	saidConnected bool              // the last log line about the connection says that the runtime answers

	mu     sync.Mutex
	client *client // nil while the runtime does not answer
}

// New makes a Runtime that calls send with its messages, possibly from several
// goroutines at once.
func New(cfg Config, say func(wire.FromAgent), log *slog.Logger) *Runtime {
	return &Runtime{
		cfg: cfg, send: say, log: log, calls: newCalls(), content: newContent(),
		faults: map[string]*fault{}, refusals: map[string]string{},
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
	var last string      // the endpoint of the last session
	var worked time.Time // when a session ended that had worked
	for failures := 0; ; failures++ {
		c, err := newClient(ctx, r.cfg.Dial, r.calls, last, time.Since(worked) > samePatience)
		at := ""
		if err == nil {
			if at = c.endpoint; at != last && last != "" {
				r.content.forget()
			}
			last, r.status.Endpoint = at, at
			s := r.newSession(c)
			err = s.run(ctx)
			if s.listed {
				failures, worked = 0, time.Now()
			}
			c.close()
		}
		if ctx.Err() != nil {
			return
		}
		r.disconnected(at, err)
		select {
		case <-ctx.Done():
			return
		case <-time.After(min(firstRetry<<min(failures, 10), lastRetry)):
		}
	}
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

// connected reports that the runtime answers, which is logged once after each line that says
// that it does not.
func (r *Runtime) connected() {
	r.status.Connected, r.status.Since, r.status.Error = true, time.Now(), ""
	clear(r.refusals)
	if r.saidConnected {
		return
	}
	r.saidConnected = true
	r.calls.copyTo(&r.status)
	r.log.Info("the container runtime answers", "name", r.status.Name, "version", r.status.Version, "endpoint", r.status.Endpoint,
		"sandboxes", len(r.content.sandboxes), "containers", len(r.content.containers), "images", len(r.content.images),
		"missing", r.status.Missing)
}

// disconnected reports that the runtime does not answer: by each endpoint that was tried since one answered.
func (r *Runtime) disconnected(endpoint string, err error) {
	if r.status.Connected && time.Since(r.status.Since) > settledAfter {
		r.away = fault{}
	}
	if r.away.begins(fmt.Errorf("%s%w", endpoint, err), time.Now()) {
		r.log.Warn("the container runtime does not answer", "endpoint", endpoint, "error", err)
		r.saidConnected = false
	}
	if r.status.Connected || r.status.Since.IsZero() {
		r.status.Connected, r.status.Since = false, time.Now()
	}
	r.refusals[endpoint] = err.Error()
	if endpoint != "" {
		delete(r.refusals, "")
	}
	r.status.Error = err.Error()
	if len(r.refusals) > 1 {
		var all []string
		for _, at := range slices.Sorted(maps.Keys(r.refusals)) {
			all = append(all, strings.TrimPrefix(at+": "+r.refusals[at], ": "))
		}
		r.status.Error = strings.Join(all, "; ")
	}
	r.sendStatus()
}

// sendStatus reports the status of the connection.
func (r *Runtime) sendStatus() {
	r.calls.copyTo(&r.status)
	status := r.status
	status.Failing = failing(r.faults)
	r.send(wire.FromAgent{Runtime: &status})
}

const eventMethod = "GetContainerEvents"

// receiveEvents triggers a listing for each container event, until the stream ends.
func (r *Runtime) receiveEvents(ctx context.Context, c *client) error {
	stream, err := c.GetContainerEvents(ctx, &cri.GetEventsRequest{})
	for err == nil {
		if _, err = stream.Recv(); err == nil {
			nudge(r.changed)
		}
	}
	r.calls.record(eventMethod, 0, err)
	return err
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
