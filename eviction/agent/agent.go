package agent

import (
	"cmp"
	"context"
	"log/slog"
	"os"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evictd/evictd/cri/inventory"
	"github.com/evictd/evictd/eviction/checkpoint"
	"github.com/evictd/evictd/internal/wire"
	"github.com/evictd/evictd/nodestatus"
)

const (
	// maxEvents bounds the events that are not sent.
	maxEvents = 256
	// An agent that ended is started again after firstRestart, and then each time after
	// twice as long, up to lastRestart, unless it has sent all pods: without an agent new
	// pods are not known, and known pods are evicted in their place.
	firstRestart = 100 * time.Millisecond
	lastRestart  = 30 * time.Second
)

// Config of an Agent.
type Config struct {
	// Address is the unix socket where the service manager starts an agent for each
	// line; the next four are then unused. Empty: evictd starts the agent itself.
	Address string
	// Program is the agent's file as osprocess.OpenProgram opens it: neither a path that the
	// agent's user cannot reach nor an upgrade changes what a restart executes. The
	// caller closes it after Run. Arguments are its command line.
	Program   *os.File
	Arguments []string
	// User the agent runs as; nil for evictd's own.
	User *User
	// Socket of an embedded API, whose group the agent joins; empty for any other
	// server.
	Socket string
	// Runtime connects to the container runtime, whose socket the agent's user cannot
	// open. Nil: no runtime is used.
	Runtime wire.OpenRuntime
	Node    wire.Node
	// Gone is called for an eviction whose pod the API server does not have any more, before
	// the pod has ended. It must not block.
	Gone func(wire.Intent)
	// Evicted is called for each pod that the API server shows as evicted, again by each agent;
	// may be nil. It must not block.
	Evicted func(wire.Evicted)
}

// Agent is evictd's side of the agent. All methods but Run may be called from any goroutine,
// and return at once.
type Agent struct {
	cfg       Config
	evictions *checkpoint.Keeper
	log       *slog.Logger
	changed   chan struct{}
	wake      chan struct{}
	answers   chan wire.EvictionResponse

	mu       sync.Mutex
	out      outbox
	pods     map[types.UID]*v1.Pod
	incoming map[types.UID]*v1.Pod // of an agent that has not sent all of them
	first    map[types.UID]bool    // the pods that were reported first
	listed   []*v1.Pod             // pods, sorted; nil when they have changed
	api      wire.API
	restarts uint64

	running   bool               // an agent runs
	runtime   *inventory.Runtime // nil before the first report
	cache     *inventoryCache
	arriving  *inventoryCache     // of an agent that has not sent all of it
	snapshot  *inventory.Snapshot // of runtime and cache; nil when they have changed
	runc      []inventory.RuncContainer
	orders    map[uint64]func(error)
	lastOrder uint64
}

// New makes an Agent that reports the evictions of a Keeper, which may be nil without an API
// server (Node.Publish is false).
func New(cfg Config, evictions *checkpoint.Keeper, log *slog.Logger) *Agent {
	a := &Agent{
		cfg: cfg, evictions: evictions, log: log,
		changed: make(chan struct{}, 1), wake: make(chan struct{}, 1), answers: make(chan wire.EvictionResponse, 64),
		api:   wire.API{Error: "the agent has not started yet"},
		cache: newInventoryCache(), arriving: newInventoryCache(), orders: map[uint64]func(error){},
	}
	a.out.requests, a.incoming = map[types.UID]*request{}, map[types.UID]*v1.Pod{}
	return a
}

// SetConditions sends the conditions of the node.
func (a *Agent) SetConditions(s wire.NodeConditions) {
	a.update(func(o *outbox) { o.conditions, o.conditionsSent = &s, false })
}

// SetHeadroom sends the headroom annotation.
func (a *Agent) SetHeadroom(h wire.Headroom) {
	a.update(func(o *outbox) {
		h.Urgent = h.Urgent || o.headroom != nil && !o.headroomSent && o.headroom.Urgent
		o.headroom, o.headroomSent = &h, false
	})
}

// RemoveLeftover has the agent remove what an earlier evictd has written to the Node.
func (a *Agent) RemoveLeftover() { a.update(func(o *outbox) { o.leftover = true }) }

// Event sends an event of the node; of more than maxEvents the oldest are dropped.
func (a *Agent) Event(e wire.Event) {
	a.update(func(o *outbox) {
		o.events = append(o.events, e)
		o.events = o.events[max(0, len(o.events)-maxEvents):]
	})
}

// Resize requests the resize of a container; it is bounded as events are.
func (a *Agent) Resize(r wire.Resize) {
	a.update(func(o *outbox) {
		o.resizes = append(o.resizes, r)
		o.resizes = o.resizes[max(0, len(o.resizes)-maxEvents):]
	})
}

// update changes the outbox and wakes the sender.
func (a *Agent) update(change func(*outbox)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	change(&a.out)
	a.notify()
}

func (a *Agent) notify() {
	select {
	case a.wake <- struct{}{}:
	default:
	}
}

// Pods are the node's pods as last reported, in the order of namespace and name.
// Neither the slice nor the pods change later.
func (a *Agent) Pods() []*v1.Pod {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.listed == nil {
		a.listed = make([]*v1.Pod, 0, len(a.pods))
		for _, p := range a.pods {
			a.listed = append(a.listed, p)
		}
		slices.SortFunc(a.listed, func(x, y *v1.Pod) int {
			return cmp.Or(cmp.Compare(x.Namespace, y.Namespace), cmp.Compare(x.Name, y.Name), cmp.Compare(x.UID, y.UID))
		})
	}
	return a.listed
}

// Synced says whether all pods have been reported at least once.
func (a *Agent) Synced() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.pods != nil
}

// WasFirst says whether a pod is of those that were bound to the node when they were reported
// first, and true of every pod before that.
func (a *Agent) WasFirst(uid types.UID) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.first == nil || a.first[uid]
}

// Changed receives when the pods, or what the runtime has, may have changed since
// the last receive.
func (a *Agent) Changed() <-chan struct{} { return a.changed }

func (a *Agent) signal() {
	select {
	case a.changed <- struct{}{}:
	default:
	}
}

// API is the state of the agent's connection to the API server.
func (a *Agent) API() nodestatus.API {
	untold := len(a.evictions.Unreported())
	a.mu.Lock()
	defer a.mu.Unlock()
	return nodestatus.API{
		Connected: a.api.Connected, Since: nodestatus.Time{Time: a.api.Since}, Error: a.api.Error, Refused: a.api.Refused,
		Conflict: a.api.Conflict, Requests: a.api.Requests, Restarts: a.restarts, Untold: untold,
	}
}

// Run keeps an agent running until ctx ends. It always returns nil: evictd
// protects the node without one.
func (a *Agent) Run(ctx context.Context) error {
	failures := 0
	for {
		err := a.serve(ctx)
		a.abandon(err)
		if ctx.Err() != nil {
			return nil
		}
		if a.lost(err) {
			failures = 0
		}
		wait := min(firstRestart<<min(failures, 10), lastRestart)
		failures++
		a.log.Warn("the agent has ended and is started again; until then nothing is reported", "error", err, "after", wait)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait):
		}
	}
}

// lost records why the agent has ended, and says whether it had sent all pods. Pods and
// inventory stay as they were.
func (a *Agent) lost(err error) (useful bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.restarts++
	useful, a.incoming = a.incoming == nil, map[types.UID]*v1.Pod{}
	ended, now := "the agent has ended: "+err.Error(), time.Now()
	a.api = wire.API{Error: ended, Since: now}
	a.arriving = newInventoryCache()
	if a.runtime != nil {
		runtime := *a.runtime
		runtime.Connected, runtime.Error, runtime.Since = false, ended, now
		a.runtime, a.snapshot = &runtime, nil
	}
	return useful
}
