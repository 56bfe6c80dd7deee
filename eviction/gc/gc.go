// Package gc frees disks without ending pods: it has the container runtime
// remove dead containers, sandboxes and unused images, and removes what logs of
// theirs are left. It stands beside the loop, which waits for it no longer than
// it wants to. What goes is chosen in eviction/reclaim; nothing that runs or is
// used is ever touched.
package gc

import (
	"context"
	"encoding/json"
	"errors"
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
	// containersEvery and imagesEvery are the kubelet's.
	containersEvery = time.Minute
	imagesEvery     = 5 * time.Minute
	// firstLook is how soon after the start images are looked at, and how often
	// that is tried.
	firstLook = 10 * time.Second
	// maxAsked bounds the reclaims that wait: one a disk goes on at a time.
	maxAsked = 4
	// burial is how long after an eviction it is looked, every buryEvery, whether
	// what is left of the pod has come to rest. Later it goes with the containers
	// that are collected at set times.
	burial    = time.Minute
	buryEvery = 250 * time.Millisecond
)

// Config of a Collector.
type Config struct {
	Policy reclaim.Policy
	// Periodic is what nobody else collects at set times.
	Periodic Periodic
	// DryRun chooses and tells, and removes nothing.
	DryRun bool
	// LogDir holds a directory for each pod's logs, and LinkDir links into it;
	// "" leaves either alone.
	LogDir, LinkDir string
	// OnReport is told of every collection that came to something. It must not wait.
	OnReport func(Report)
}

// Periodic says what is collected at set times, and not under pressure alone.
type Periodic struct{ Containers, Images bool }

// Runtime is the container runtime as the agent knows it.
type Runtime interface {
	// Runtime is what there is; nil where there is no runtime to hear of.
	Runtime() *inventory.Snapshot
	// Order lets the runtime do something; without an error done is called once.
	Order(o wire.Order, done func(error)) error
}

// Journal is what survives a restart.
type Journal interface {
	Entries(kind string) []journal.Entry
	Put(kind, id string, value any) error
}

// Ports of a Collector. Memory may be nil: then every start is the first.
type Ports struct {
	Runtime Runtime
	Journal Journal
	// ReadDisks looks at the disks.
	ReadDisks func(context.Context) (control.Snapshot, error)
	// Pods are those of the node; complete says that no source is missing.
	Pods func() (pods map[types.UID]reclaim.Pod, complete bool)
}

// Collector collects. One goroutine, that of Run, does so; the rest may be called
// from any.
type Collector struct {
	cfg       Config
	ports     Ports
	log       *slog.Logger
	asks      chan ask
	reclaimed chan eviction.Signal
	bodies    chan struct{} // holds one after an eviction

	failedBefore bool                 // the last regular collection of images
	wouldGo      map[Trigger][]string // of the last dry run

	mu      sync.Mutex
	policy  reclaim.Policy
	records records
	saved   time.Time            // the records
	removed map[string]time.Time // ids, and when
	evicted map[types.UID]time.Time
}

// ask is a reclaim that the loop wants.
type ask struct {
	signal eviction.Signal
	steps  []eviction.ReclaimStep
	need   eviction.Need
}

// New makes a Collector that remembers the images of before the start.
func New(cfg Config, ports Ports, log *slog.Logger) *Collector {
	c := &Collector{
		cfg: cfg, ports: ports, log: log, policy: cfg.Policy,
		asks: make(chan ask, maxAsked), reclaimed: make(chan eviction.Signal, maxAsked), bodies: make(chan struct{}, 1),
		removed: map[string]time.Time{}, evicted: map[types.UID]time.Time{}, wouldGo: map[Trigger][]string{},
	}
	if ports.Journal != nil {
		for _, e := range ports.Journal.Entries(recordKind) {
			if err := json.Unmarshal(e.Data, &c.records); err != nil {
				log.Warn("what was remembered of images makes no sense and is dropped", "error", err)
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

// looked says whether images were detected since the start or before it.
func (c *Collector) looked() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.records.Images != nil
}

func (c *Collector) rules() *reclaim.Policy {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.policy
	return &p
}

// Reclaim implements control.Reclaimer.
func (c *Collector) Reclaim(s eviction.Signal, steps []eviction.ReclaimStep, need eviction.Need) {
	select {
	case c.asks <- ask{s, steps, need}:
	default: // more than there are disks, which were laid out anew meanwhile
		select {
		case c.reclaimed <- s:
		default:
		}
	}
}

// Reclaimed implements control.Reclaimer.
func (c *Collector) Reclaimed() <-chan eviction.Signal { return c.reclaimed }

// Evicted takes up that a pod was ended for what it holds on a disk. Its containers
// would go on holding that: where nobody else collects them they go at once.
func (c *Collector) Evicted(pod types.UID) {
	if !c.cfg.Periodic.Containers {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.evicted[pod] = time.Now()
	select {
	case c.bodies <- struct{}{}:
	default:
	}
}

// Run collects until ctx ends. It always returns nil.
func (c *Collector) Run(ctx context.Context) error {
	first, containers, images := time.NewTicker(firstLook), time.NewTicker(containersEvery), time.NewTicker(imagesEvery)
	defer first.Stop()
	defer containers.Stop()
	defer images.Stop()
	var again <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return nil
		case a := <-c.asks:
			c.relieve(ctx, a)
			select {
			case c.reclaimed <- a.signal:
			case <-ctx.Done():
			}
		case <-c.bodies:
			again = c.bury(ctx)
		case <-again:
			again = c.bury(ctx)
		case <-first.C:
			c.look()
			if c.looked() {
				first.Stop()
			}
		case <-containers.C:
			c.look()
			if c.cfg.Periodic.Containers {
				c.tidyContainers(ctx)
			}
		case <-images.C:
			if p := c.rules(); c.cfg.Periodic.Images && (p.HighPercent < 100 || p.ImageMaxAge > 0) {
				c.tidyImages(ctx)
			}
		}
	}
}

// relieve frees what a disk lacks, a step after the other, until it lacks nothing
// or nothing is left.
func (c *Collector) relieve(ctx context.Context, a ask) {
	w := c.begin(ctx, Pressure, a.signal, a.need)
	lacks := func(s *control.Snapshot) eviction.Need { return s.Eviction.Need(&s.Observations, a.signal) }
	for _, step := range a.steps {
		w.step(reclaim.Goal{Containers: step == eviction.DeadContainers, Images: step == eviction.UnusedImages, Pressure: true, Need: a.need}, lacks)
	}
	w.end(lacks)
	if w.Insufficient && slices.Contains(a.steps, eviction.UnusedImages) {
		w.fault(FreeDiskSpaceFailed, w.shortfall())
	}
	c.tell(&w.Report)
}

// bury removes what is left of evicted pods. Where some of it has not come to rest
// it says when to look again; what was refused is left to the set times.
func (c *Collector) bury(ctx context.Context) (again <-chan time.Time) {
	w := c.begin(ctx, Evicted, eviction.ContainerFsAvailable, eviction.Need{Layers: true, Logs: true})
	w.step(reclaim.Goal{Containers: true, Need: w.Need}, nil)
	if len(w.Removed)+len(w.Failed) > 0 {
		w.end(nil)
		c.tell(&w.Report)
	}
	if len(w.Failed) > 0 {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, at := range c.evicted {
		if time.Since(at) < burial {
			again = time.After(buryEvery)
		}
	}
	return again
}

// tidyContainers removes the dead containers that are beyond their limits.
func (c *Collector) tidyContainers(ctx context.Context) {
	w := c.begin(ctx, Containers, eviction.NodeFsAvailable, eviction.Need{Layers: true, Logs: true})
	w.step(reclaim.Goal{Containers: true, Need: w.Need}, nil)
	w.end(nil)
	if err := w.failures(); err != nil {
		w.fault(ContainerGCFailed, err.Error())
	}
	c.tell(&w.Report)
}

// tidyImages removes images that are beyond their age, and others while the disk
// they are on is used too much.
func (c *Collector) tidyImages(ctx context.Context) {
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
	c.tell(&w.Report)
}

// tell tells of a collection that came to something. Without a runtime there is
// nothing to tell of.
func (c *Collector) tell(r *Report) {
	if errors.Is(r.Error, errNoRuntime) || r.DryRun && !c.news(r) {
		return
	}
	if len(r.Removed)+len(r.Failed)+r.Logs+len(r.Faults) > 0 || r.Error != nil {
		c.cfg.OnReport(*r)
	}
}

// news says whether a dry run came to other than the last one for its occasion.
func (c *Collector) news(r *Report) bool {
	ids := []string{strconv.Itoa(r.Logs)}
	for _, removal := range r.Removed {
		ids = append(ids, removal.ID)
	}
	same := slices.Equal(ids, c.wouldGo[r.Trigger])
	c.wouldGo[r.Trigger] = ids
	return !same
}

// Preview is all that could go now, in order, and what stays; nothing where
// there is no runtime.
func (c *Collector) Preview() reclaim.Plan {
	inv, err := c.inventory()
	if err != nil {
		return reclaim.Plan{}
	}
	p := c.rules()
	p.Everything = true
	c.mu.Lock()
	reclaim.UpdateRecords(c.records.load(inv), inv, time.Now())
	c.mu.Unlock()
	return reclaim.Choose(inv, p, reclaim.Goal{Containers: true, Images: true, Pressure: true, Need: eviction.Need{Layers: true, Logs: true}}, time.Now())
}
