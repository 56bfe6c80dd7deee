// Package agent keeps the process that speaks to the API server and the container
// runtime for evictd: it starts it, tells it what the cluster should know and the
// runtime should do, and hears of it which pods and containers there are. Nothing
// here ever waits for the agent or what is behind it, and it decides nothing.
package agent

import (
	"cmp"
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evictd/evictd/cri/inventory"
	"github.com/evictd/evictd/eviction/journal"
	"github.com/evictd/evictd/internal/wire"
	"github.com/evictd/evictd/nodestatus"
)

const (
	// intentKind is the journal's kind of evictions that were not told yet.
	intentKind = "intent"
	// maxIntents bounds the evictions that wait to be told.
	maxIntents = 512
	// maxEvents bounds the events that wait for the agent.
	maxEvents = 256
	// An agent that ended is started again after firstRestart, and then each
	// time after twice as long, up to lastRestart, unless it has told of all pods:
	// without an agent new pods are not known, and known ones go in their place.
	firstRestart = 100 * time.Millisecond
	lastRestart  = 30 * time.Second
)

// Config of an Agent.
type Config struct {
	// Address is the unix socket where the service manager starts an agent for each
	// line; the next four are then unused. Empty: evictd starts the agent itself.
	Address string
	// Program is the agent's file as rt.OpenProgram opens it: neither a path that the
	// agent's user cannot reach nor an upgrade changes what a restart executes. The
	// caller closes it after Run. Arguments are its command line.
	Program   *os.File
	Arguments []string
	// User the agent runs as; nil for evictd's own.
	User *User
	// Socket of an embedded API, whose group the agent joins; empty for any other
	// server.
	Socket string
	// Runtime connects to the container runtime, which the agent itself may not,
	// and names its endpoint; it must not wait for long. Nil: none is used.
	Runtime func() (conn *os.File, endpoint string, err error)
	Node    wire.Node
}

// Agent is the agent's process as evictd sees it. All but Run may be called from
// any goroutine; nothing waits.
type Agent struct {
	cfg     Config
	journal *journal.Journal
	log     *slog.Logger
	changed chan struct{}
	wake    chan struct{}
	answers chan wire.Answer

	mu       sync.Mutex
	out      outbox
	pods     map[types.UID]*v1.Pod
	incoming map[types.UID]*v1.Pod // of an agent that has not sent all of them
	listed   []*v1.Pod             // pods, sorted; nil when they have changed
	api      wire.API
	restarts uint64

	running   bool               // there is an agent to be told
	runtime   *inventory.Runtime // nil before any was heard of
	cache     *inventoryCache
	arriving  *inventoryCache     // of an agent that has not sent all of it
	snapshot  *inventory.Snapshot // of runtime and cache; nil when they have changed
	runc      []inventory.RuncContainer
	orders    map[uint64]func(error)
	lastOrder uint64
}

// New takes up what the journal has of evictions that were not told. Without an
// API server, to which Node.Publish is false, the journal may be nil.
func New(cfg Config, journal *journal.Journal, log *slog.Logger) *Agent {
	a := &Agent{
		cfg: cfg, journal: journal, log: log,
		changed: make(chan struct{}, 1), wake: make(chan struct{}, 1), answers: make(chan wire.Answer, 64),
		api:   wire.API{Error: "the agent has not started yet"},
		cache: newInventoryCache(), arriving: newInventoryCache(), orders: map[uint64]func(error){},
	}
	a.out.asks, a.incoming = map[types.UID]*asking{}, map[types.UID]*v1.Pod{}
	if journal == nil {
		return a
	}
	for _, e := range journal.Entries(intentKind) {
		var intent wire.Intent
		if err := json.Unmarshal(e.Data, &intent); err != nil || intent.ID == "" {
			log.Warn("an entry of the journal makes no sense and is dropped", "id", e.ID, "error", err)
			journal.Drop(intentKind, e.ID)
			continue
		}
		if intent.Asked && intent.Override == "" && intent.Over.IsZero() {
			journal.Drop(intentKind, e.ID) // it had no leave yet, and will be chosen anew
			continue
		}
		a.out.intents = append(a.out.intents, &told{Intent: intent})
	}
	if n := len(a.out.intents); n > 0 {
		log.Info("evictions from before the start are still to be told", "evictions", n)
	}
	return a
}

// Stand tells how the node stands.
func (a *Agent) Stand(s wire.Standing) {
	a.tell(func(o *outbox) { o.standing, o.standingTold = &s, false })
}

// Press tells the headroom.
func (a *Agent) Press(h wire.Headroom) {
	a.tell(func(o *outbox) {
		h.Urgent = h.Urgent || o.headroom != nil && !o.headroomTold && o.headroom.Urgent
		o.headroom, o.headroomTold = &h, false
	})
}

// Event tells an event of the node; of too many the oldest are lost.
func (a *Agent) Event(e wire.Event) {
	a.tell(func(o *outbox) {
		o.events = append(o.events, e)
		o.events = o.events[max(0, len(o.events)-maxEvents):]
	})
}

// Evict tells of an eviction as far as it has come, until the API server knows.
func (a *Agent) Evict(i wire.Intent) {
	if !a.cfg.Node.Publish {
		return
	}
	a.tell(func(o *outbox) {
		for _, id := range o.evict(i) {
			a.journal.Drop(intentKind, id)
		}
		a.remember(o.intent(i.ID))
	})
}

// remember is called with the lock held.
func (a *Agent) remember(i *told) {
	if err := a.journal.Put(intentKind, i.ID, i.Intent); err != nil {
		a.log.Error("an eviction would not survive a crash", "error", err)
	}
}

// Untold are the evictions that the API server does not know all of, oldest
// first.
func (a *Agent) Untold() []wire.Intent {
	a.mu.Lock()
	defer a.mu.Unlock()
	var intents []wire.Intent
	for _, i := range a.out.intents {
		intents = append(intents, i.Intent)
	}
	return intents
}

func (a *Agent) tell(change func(*outbox)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	change(&a.out)
	a.nudge()
}

func (a *Agent) nudge() {
	select {
	case a.wake <- struct{}{}:
	default:
	}
}

// Pods are the node's pods as last heard of, in the order of namespace and name.
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

// Synced says whether all pods have been heard of at least once.
func (a *Agent) Synced() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.pods != nil
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

// API is how the agent stands to the API server.
func (a *Agent) API() nodestatus.API {
	a.mu.Lock()
	defer a.mu.Unlock()
	return nodestatus.API{
		Connected: a.api.Connected, Since: nodestatus.Time{Time: a.api.Since}, Error: a.api.Error, Refused: a.api.Refused,
		Conflict: a.api.Conflict, Requests: a.api.Requests, Restarts: a.restarts, Untold: len(a.out.intents),
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
		a.log.Warn("the agent has ended and is started again; meanwhile it speaks for nobody", "error", err, "after", wait)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait):
		}
	}
}

// lost remembers why there is no agent, and says whether that had told of all
// pods. The pods stay as they were, and so does what the runtime has.
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
