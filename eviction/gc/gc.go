// Package gc frees disks without ending pods: the container runtime removes dead
// containers, sandboxes and unused images, and gc removes their logs. It runs beside
// the loop, which bounds how long it waits. Package eviction/reclaim chooses what is
// removed; nothing that runs or is in use is removed.
package gc

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/evictd/evictd/cri/inventory"
	"github.com/evictd/evictd/eviction"
	"github.com/evictd/evictd/eviction/control"
	"github.com/evictd/evictd/eviction/journal"
	"github.com/evictd/evictd/eviction/reclaim"
	"github.com/evictd/evictd/internal/wire"
)

const (
	// containersEvery and imagesEvery are the kubelet's intervals.
	containersEvery = time.Minute
	imagesEvery     = 5 * time.Minute
	// firstDetection is how soon after the start images are detected, and how often
	// that is retried.
	firstDetection = 10 * time.Second
	// maxRequests bounds the queued reclaims; each disk has one at a time.
	maxRequests = 4
	// evictedWindow is how long after an eviction, every evictedInterval, the removal
	// of the pod's dead containers and sandboxes is tried. Later the periodic
	// collection of containers removes them.
	evictedWindow   = time.Minute
	evictedInterval = 250 * time.Millisecond
)

// Config of a Collector.
type Config struct {
	Policy reclaim.Policy
	// Periodic is what evictd, and not the kubelet, collects at fixed intervals.
	Periodic Periodic
	// DryRun chooses and reports, and removes nothing.
	DryRun bool
	// LogDir holds a directory for each pod's logs, and LinkDir links into it;
	// "" leaves either alone.
	LogDir, LinkDir string
	// OnReport receives every collection that removed something or failed. It must not
	// block.
	OnReport func(Report)
}

// Periodic says what is collected at fixed intervals, and not only under pressure.
type Periodic struct{ Containers, Images bool }

// Runtime is the container runtime as the agent reports it.
type Runtime interface {
	// Runtime is the last reported inventory; nil, or without an endpoint, where there is no runtime.
	Runtime() *inventory.Snapshot
	// Order sends an order to the runtime; unless it fails, done is called once.
	Order(o wire.Order, done func(error)) error
}

// Journal keeps entries across restarts.
type Journal interface {
	Entries(kind string) []journal.Entry
	Put(kind, id string, value any) error
}

// Ports of a Collector. Journal may be nil: then no image record survives a restart.
type Ports struct {
	Runtime Runtime
	Journal Journal
	// ReadDisks measures the disks.
	ReadDisks func(context.Context) (control.Snapshot, error)
	// Pods are those of the node; complete says that no source is missing.
	Pods func() (pods map[types.UID]reclaim.Pod, complete bool)
}

// Collector removes containers, sandboxes and images, on the goroutine of Run. Its
// other methods may be called from any goroutine.
type Collector struct {
	cfg        Config
	ports      Ports
	log        *slog.Logger
	requests   chan request
	reclaimed  chan eviction.Signal
	podEvicted chan struct{} // has a value after an eviction

	failedBefore bool                 // by the last periodic collection of images
	results      map[trigger][]string // of the last collections: ids, reasons of faults, the error

	mu      sync.Mutex
	policy  reclaim.Policy
	records records
	saved   time.Time            // the records
	removed map[string]time.Time // ids, and when
	evicted map[types.UID]time.Time
}

// request is a reclaim that the loop asks for.
type request struct {
	signal eviction.Signal
	steps  []eviction.ReclaimStep
	need   eviction.Need
}

// New makes a Collector with the image records of the journal.
func New(cfg Config, ports Ports, log *slog.Logger) *Collector {
	c := &Collector{
		cfg: cfg, ports: ports, log: log, policy: cfg.Policy,
		requests: make(chan request, maxRequests), reclaimed: make(chan eviction.Signal, maxRequests), podEvicted: make(chan struct{}, 1),
		removed: map[string]time.Time{}, evicted: map[types.UID]time.Time{}, results: map[trigger][]string{},
	}
	if ports.Journal != nil {
		for _, e := range ports.Journal.Entries(recordKind) {
			if err := json.Unmarshal(e.Data, &c.records); err != nil {
				log.Warn("the journal's image records cannot be read and are dropped", "error", err)
				c.records = records{}
			}
		}
	}
	return c
}

// Configure replaces the policy.
func (c *Collector) Configure(p reclaim.Policy) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.policy = p
}

// detected says whether images were detected, since the start or before it.
func (c *Collector) detected() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.records.Images != nil
}

func (c *Collector) currentPolicy() *reclaim.Policy {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.policy
	return &p
}

// Reclaim implements control.Reclaimer.
func (c *Collector) Reclaim(s eviction.Signal, steps []eviction.ReclaimStep, need eviction.Need) {
	select {
	case c.requests <- request{s, steps, need}:
	default: // more requests than disks: the layout has changed
		select {
		case c.reclaimed <- s:
		default:
		}
	}
}

// Reclaimed implements control.Reclaimer.
func (c *Collector) Reclaimed() <-chan eviction.Signal { return c.reclaimed }

// Evicted records that a pod was evicted for what it holds on a disk. Its dead
// containers still hold that: unless the kubelet collects them, they are removed at
// once.
func (c *Collector) Evicted(pod types.UID) {
	if !c.cfg.Periodic.Containers {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.evicted[pod] = time.Now()
	select {
	case c.podEvicted <- struct{}{}:
	default:
	}
}

// Run collects until ctx ends. It always returns nil.
func (c *Collector) Run(ctx context.Context) error {
	first, containers, images := time.NewTicker(firstDetection), time.NewTicker(containersEvery), time.NewTicker(imagesEvery)
	defer first.Stop()
	defer containers.Stop()
	defer images.Stop()
	var again <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return nil
		case a := <-c.requests:
			c.reclaim(ctx, a)
			select {
			case c.reclaimed <- a.signal:
			case <-ctx.Done():
			}
		case <-c.podEvicted:
			again = c.collectEvicted(ctx)
		case <-again:
			again = c.collectEvicted(ctx)
		case <-first.C:
			c.detectNow()
			if c.detected() {
				first.Stop()
			}
		case <-containers.C:
			c.detectNow()
			if c.cfg.Periodic.Containers {
				c.collectContainers(ctx)
			}
		case <-images.C:
			if p := c.currentPolicy(); c.cfg.Periodic.Images && (p.HighPercent < 100 || p.ImageMaxAge > 0) {
				c.collectImages(ctx)
			}
		}
	}
}

// reclaim removes step by step until the disk lacks nothing or nothing is left to
// remove.
func (c *Collector) reclaim(ctx context.Context, a request) {
	w := c.begin(ctx, Pressure, a.signal, a.need)
	lacks := func(s *control.Snapshot) eviction.Need { return s.Eviction.Need(&s.Observations, a.signal) }
	// A disk that fills up meanwhile is short again although the last removal sufficed.
	for more := true; more; {
		before := len(w.Removed)
		for _, step := range a.steps {
			w.step(reclaim.Goal{Containers: step == eviction.DeadContainers, Images: step == eviction.UnusedImages, Pressure: true, Need: a.need}, lacks)
		}
		w.end(lacks)
		more = w.Insufficient && w.Error == nil && len(w.Removed) > before
	}
	if w.Insufficient && slices.Contains(a.steps, eviction.UnusedImages) {
		w.fault(FreeDiskSpaceFailed, w.shortfall())
	}
	c.report(&w.Report)
}

// collectEvicted removes the dead containers and sandboxes of evicted pods. again fires
// when it must be repeated; a removal that failed is left to the periodic collection.
func (c *Collector) collectEvicted(ctx context.Context) (again <-chan time.Time) {
	w := c.begin(ctx, Evicted, eviction.ContainerFsAvailable, eviction.Need{Layers: true, Logs: true})
	w.step(reclaim.Goal{Containers: true, Need: w.Need}, nil)
	if len(w.Removed)+len(w.Failed) > 0 {
		w.end(nil)
		c.report(&w.Report)
	}
	if len(w.Failed) > 0 {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, at := range c.evicted {
		if time.Since(at) < evictedWindow {
			again = time.After(evictedInterval)
		}
	}
	return again
}

// collectContainers removes the dead containers that are beyond their limits.
func (c *Collector) collectContainers(ctx context.Context) {
	w := c.begin(ctx, Containers, eviction.NodeFsAvailable, eviction.Need{Layers: true, Logs: true})
	w.step(reclaim.Goal{Containers: true, Need: w.Need}, nil)
	w.end(nil)
	if err := w.failures(); err != nil {
		w.fault(ContainerGCFailed, err.Error())
	}
	c.report(&w.Report)
}

// collectImages removes images beyond their age, and further ones while the disk of
// images is used beyond its limit.
func (c *Collector) collectImages(ctx context.Context) {
	w := c.begin(ctx, Images, eviction.ImageFsAvailable, eviction.Need{})
	fs := w.first.Node.ImageFs
	w.Need, _ = w.policy.Need(fs)
	lacks := func(s *control.Snapshot) eviction.Need {
		return eviction.Need{
			Bytes:  w.Need.Bytes - gain(fs.Available, s.Node.ImageFs.Available),
			Inodes: w.Need.Inodes - gain(fs.InodesFree, s.Node.ImageFs.InodesFree),
		}
	}
	w.step(reclaim.Goal{Images: true, Need: w.Need}, lacks)
	w.end(lacks)
	if capacity, measured := fs.Capacity.Get(); measured && capacity == 0 {
		w.fault(InvalidDiskCapacity, "the capacity of the filesystem of images is 0 bytes")
	}
	failed := w.failures()
	if w.Insufficient {
		w.fault(FreeDiskSpaceFailed, w.shortfall())
		failed = errors.Join(failed, errors.New(w.shortfall()))
	}
	if failed != nil && c.failedBefore {
		w.fault(ImageGCFailed, failed.Error())
	}
	c.failedBefore = failed != nil
	c.report(&w.Report)
}

// trigger is what a collection was run for, and on which disk.
type trigger struct {
	Trigger
	eviction.Signal
}

// report passes on a collection that removed something or failed. Without a container
// runtime there is no report.
func (c *Collector) report(r *Report) {
	if errors.Is(r.Error, errNoRuntime) {
		return
	}
	changes := len(r.Removed) + len(r.Failed) + r.Logs
	r.Repeated = !c.changed(r) && (r.DryRun || changes == 0)
	if changes+len(r.Faults) == 0 && r.Error == nil || r.DryRun && r.Repeated {
		return
	}
	c.cfg.OnReport(*r)
}

// changed says whether a collection has another result than the last one of its trigger.
func (c *Collector) changed(r *Report) bool {
	result := []string{strconv.Itoa(r.Logs), fmt.Sprint(r.Error)}
	for _, removal := range r.Removed {
		result = append(result, removal.ID)
	}
	for _, f := range r.Faults {
		result = append(result, string(f.Reason))
	}
	of := trigger{r.Trigger, r.Signal}
	same := slices.Equal(result, c.results[of])
	c.results[of] = result
	return !same
}

// Preview is all that may be removed now, in order, and what is kept; empty without a
// runtime.
func (c *Collector) Preview() reclaim.Plan {
	inv, err := c.inventory()
	if err != nil {
		return reclaim.Plan{}
	}
	p := c.currentPolicy()
	p.Everything = true
	c.mu.Lock()
	reclaim.UpdateRecords(c.records.load(inv), inv, time.Now())
	c.mu.Unlock()
	return reclaim.Choose(inv, p, reclaim.Goal{Containers: true, Images: true, Pressure: true, Need: eviction.Need{Layers: true, Logs: true}}, time.Now())
}
