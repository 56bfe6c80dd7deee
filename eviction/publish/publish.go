// Package publish reports the results of the loop: log, metrics, status document and
// node manifest. It reads the loop's queues on a goroutine of its own: however slow it
// is, it does not block the loop. It decides nothing.
package publish

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evictd/evictd/eviction"
	"github.com/evictd/evictd/eviction/control"
	"github.com/evictd/evictd/eviction/reclaim"
	"github.com/evictd/evictd/internal/metric"
	"github.com/evictd/evictd/internal/osprocess"
	"github.com/evictd/evictd/internal/wire"
	"github.com/evictd/evictd/nodestatus"
)

// keptEvictions bounds the evictions in the status document.
const keptEvictions = 100

// fromJournal is the source of an eviction that a previous process decided.
const fromJournal = "journal"

// Config of a Publisher.
type Config struct {
	Node string
	Mode nodestatus.Mode
	// Version, PID and DryRun are those of this process.
	Version string
	PID     int
	DryRun  bool
	// StateDir is the directory of what survives a restart.
	StateDir string
	// Capacity and Allocatable of the node, for its manifest.
	Capacity, Allocatable v1.ResourceList
	// NodeFile is replaced whenever the node's manifest changes; "" writes none.
	NodeFile string
	// Cluster receives what is written to the API server. It does not block.
	Cluster Cluster
	API     func() nodestatus.API
	// Runtime is the state of the connection to the container runtime; nil without one.
	Runtime func() nodestatus.Runtime
	// Recorders receive every report, in their order, before anything of it is published.
	Recorders []Recorder
	// Preview is what would be removed from a disk under pressure; nil where nothing
	// is collected.
	Preview func() reclaim.Plan
	// Evicted is called when a pod evicted for its disk usage has ended. It must not
	// block; nil where nothing is collected.
	Evicted func(types.UID)
	// Unprotected says why no pod can be evicted; "" if one can. May be nil.
	Unprotected func() string
	// ConfigurationRefused has the faults of the configuration file if an earlier one is in use; "" if not. May be nil.
	ConfigurationRefused func() string
	// OutsideUsers are the users of a condition's resource that are no pods; nil where
	// nothing is known of them.
	OutsideUsers func(eviction.Condition) []nodestatus.User
	// Notice delivers a step before evictions to a container, or its end, and reports that by
	// StepTaken. It does not block; nil in a dry run.
	Notice func(*eviction.StepAction)
	// Fault is why a signal could not be measured; nil if nothing is known of that.
	Fault func(eviction.Signal) error
	// Counters are counted outside the loop.
	Counters Counters
}

// Recorder keeps reports. It does not block.
type Recorder interface {
	Record(control.Report)
}

// Cluster receives what is written to the API server. It does not block.
type Cluster interface {
	SetConditions(wire.NodeConditions)
	Event(wire.Event)
	Resize(wire.Resize)
}

// Snapshots measures the node for the status document.
type Snapshots interface {
	Snapshot(context.Context) (control.Snapshot, error)
	// Recent is a Snapshot as of the last passes.
	Recent(context.Context) (control.Snapshot, error)
}

// Publisher keeps the last report. Run handles reports; the other methods may be called
// from any goroutine.
type Publisher struct {
	cfg       Config
	snapshots Snapshots
	log       *slog.Logger
	metrics   *metrics
	// collections is nil where nothing is collected.
	collections *collections
	passed      chan struct{}

	mu         sync.Mutex
	last       control.Report
	ready      bool
	heldBack   bool
	conditions []v1.NodeCondition
	outside    [eviction.NumConditions]outside
	gaps       [eviction.NumSignals]measureGap
	evictions  []*record
	candidates candidates // of a dry run
	restarting map[types.UID]restarting
	// kernelKills are the last, oldest first.
	kernelKills   []nodestatus.KernelKill
	written       []v1.NodeCondition // those in the last node manifest; nil where it was not written
	manifests     chan nodestatus.Node
	thresholdsMet map[eviction.Signal]bool
}

// New makes a Publisher that adds its metrics to the set.
func New(cfg Config, look Snapshots, set *metric.Set, log *slog.Logger) *Publisher {
	addInfo(set, &cfg)
	if cfg.API != nil {
		addAPI(set, cfg.API)
	}
	if cfg.Runtime != nil {
		addRuntime(set, cfg.Runtime)
	}
	p := &Publisher{
		cfg: cfg, snapshots: look, log: log, metrics: newMetrics(set), passed: make(chan struct{}, 1), thresholdsMet: map[eviction.Signal]bool{}, restarting: map[types.UID]restarting{},
	}
	p.addVictims(set)
	if cfg.Preview != nil {
		p.collections = newCollections(set)
	}
	return p
}

// nodeFilePatience is how long the end of Run waits for the last node manifest.
const nodeFilePatience = time.Second

// Run handles reports until the channel is closed. The node manifest is written beside them: its
// disk may hang.
func (p *Publisher) Run(reports <-chan control.Report) {
	written := make(chan struct{})
	p.manifests = make(chan nodestatus.Node, 1)
	go func() {
		defer close(written)
		p.writeNodes(p.manifests)
	}()
	defer func() {
		close(p.manifests)
		select {
		case <-written:
		case <-time.After(nodeFilePatience):
		}
	}()
	for r := range reports {
		for _, to := range p.cfg.Recorders {
			to.Record(r)
		}
		p.handle(r)
	}
}

func (p *Publisher) handle(r control.Report) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.metrics.setLost(r.Lost)
	if r.Ended != nil && r.Ended.Container != "" {
		p.restartEnded(r.Ended)
		return
	}
	if r.Ended != nil {
		p.killEnded(r.Ended)
		return
	}
	p.last, p.ready = r, true
	p.metrics.observe(&r)
	p.steps(&r)
	if r.Pass == eviction.Watch {
		return
	}
	p.candidates.settle(&r)
	for i := range r.Decisions {
		for j := range r.Decisions[i].Evictions {
			p.decided(&r, &r.Decisions[i].Evictions[j])
		}
		for _, pod := range r.Decisions[i].Hastened {
			p.log.Warn("a hard threshold is crossed: the grace period of a soft victim ends now", "pod", pod.String(), "source", r.Source)
		}
		for _, pod := range r.Decisions[i].EndAgain {
			p.log.Warn("an evicted pod has processes again before the API server knows of its eviction; they are killed", "pod", pod.String())
		}
	}
	p.restarts(&r)
	for _, uid := range r.Withdrawn {
		p.withdrawn(uid)
	}
	for i := range r.Resumed {
		p.resumed(&r.Resumed[i])
	}
	for i := range r.Failed {
		e := &r.Failed[i]
		p.metrics.evictions.WithLabelValues(e.Signal.String(), kind(e.Hard), "failed").Inc()
	}
	p.logHeldBack(&r)
	p.followUnmeasured(&r)
	p.updateConditions(&r)
	p.updateNode()
	p.thresholdEvents(&r)
	select {
	case p.passed <- struct{}{}:
	default:
	}
}

// logHeldBack logs when a victim begins to be held back.
func (p *Publisher) logHeldBack(r *control.Report) {
	if r.HeldBack != nil && !p.heldBack {
		p.log.Warn("a pod within its request is the next victim and is held back: there are processes of an unknown pod", "pod", r.HeldBack.String())
	}
	p.heldBack = r.HeldBack != nil
}

// Passed receives when a pass was reported since the last receive.
func (p *Publisher) Passed() <-chan struct{} { return p.passed }

// updateConditions updates the node's conditions and logs those that changed.
func (p *Publisher) updateConditions(r *control.Report) {
	raised := raisedIn(&r.State)
	before := p.conditions
	p.conditions = p.cfg.Mode.Conditions(raised, messages(r.Eviction, &r.Observations), before, r.At)
	p.updateOutside(r)
	p.sayOutside(p.conditions)
	for i, c := range p.conditions {
		if was := i < len(before) && before[i].Status == v1.ConditionTrue; was != raised[i] {
			change := map[bool]string{false: "node condition changed", true: "node condition would change"}[p.cfg.DryRun]
			p.log.Info(change, "condition", c.Type, "status", c.Status, "reason", c.Reason)
			p.conditionEvent(i, raised[i], r.At)
		}
		p.metrics.condition.WithLabelValues(string(c.Type)).Set(gaugeValue(raised[i] && !p.cfg.DryRun))
	}
	if p.cfg.Cluster != nil {
		p.cfg.Cluster.SetConditions(wire.NodeConditions{At: wire.Instant{Time: r.At}, Conditions: p.conditions, Raised: raised})
	}
}

func raisedIn(state *eviction.State) nodestatus.Raised {
	var raised nodestatus.Raised
	for c := range raised {
		raised[c] = state.Pressure[c].Reported
	}
	return raised
}

// messages describes, for each condition, the nearest threshold of its signals: the
// required and the observed amount.
func messages(cfg *eviction.Config, o *eviction.Observations) [eviction.NumConditions]string {
	var text [eviction.NumConditions]string
	for c := range text {
		condition := eviction.Condition(c)
		if condition == eviction.MemoryContention && !slices.ContainsFunc(cfg.Thresholds, func(t eviction.Threshold) bool { return t.Signal.Condition() == condition }) {
			continue
		}
		near := nearest(cfg, o, func(t *eviction.Threshold) bool { return int(t.Signal.Condition()) == c })
		if near == nil {
			text[c] = "no threshold of its signals was measured"
			continue
		}
		text[c] = describe(near, o)
	}
	return text
}

// updateNode has the node manifest replaced if anything but a heartbeat changed.
func (p *Publisher) updateNode() {
	if p.cfg.NodeFile == "" {
		return
	}
	node := nodestatus.Node{
		Name: p.cfg.Node, Taints: p.taints(), Capacity: p.cfg.Capacity, Allocatable: p.cfg.Allocatable, Conditions: p.conditions,
	}
	if p.cfg.DryRun || !p.cfg.Mode.Acts() {
		node.Conditions, node.Taints = nil, nil
	}
	same := func(a, b v1.NodeCondition) bool {
		return a.Type == b.Type && a.Status == b.Status && a.Reason == b.Reason && nodestatus.SaysOutside(a.Message) == nodestatus.SaysOutside(b.Message)
	}
	if p.written != nil && slices.EqualFunc(p.written, node.Conditions, same) {
		return
	}
	p.written = append([]v1.NodeCondition{}, node.Conditions...)
	select {
	case <-p.manifests: // one that was not written yet
	default:
	}
	p.manifests <- node
}

// writeNodes writes manifests until the channel is closed. One that cannot be written is sent
// again with the next pass.
func (p *Publisher) writeNodes(nodes <-chan nodestatus.Node) {
	for node := range nodes {
		manifest, err := node.Manifest()
		if err == nil {
			err = osprocess.ReplaceFile(p.cfg.NodeFile, manifest, 0o644)
		}
		if err == nil {
			continue
		}
		p.log.Error("could not write the node status file", "file", p.cfg.NodeFile, "error", err)
		p.mu.Lock()
		p.written = nil
		p.mu.Unlock()
	}
}

func (p *Publisher) taints() []v1.Taint { return p.cfg.Mode.Taints(raisedIn(&p.last.State)) }

// Ready says whether a complete observation was reported.
func (p *Publisher) Ready() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.ready
}

// LastPass is the time of the last reported pass.
func (p *Publisher) LastPass() time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.last.At
}
