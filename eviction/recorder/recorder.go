package recorder

import (
	"context"
	"encoding/json"
	"log/slog"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evictd/evictd/eviction"
	"github.com/evictd/evictd/eviction/config"
	"github.com/evictd/evictd/eviction/control"
	"github.com/evictd/evictd/eviction/journal"
	"github.com/evictd/evictd/eviction/simulate"
	"github.com/evictd/evictd/stats"
)

const (
	// The ring holds 16 MiB: some hours of a node of 110 busy pods, days of a
	// quiet one.
	segments     = 8
	segmentBytes = 2 << 20
	// roomForStep is what a pass may need: 500 pods, all measured again.
	roomForStep = 384 << 10
	// queue bounds what waits for the disk.
	queue = 256
	// retryAfter is how long a directory is let alone that cannot be used.
	retryAfter = time.Minute
	// recordEvery is how often it is recorded what pods use while no signal is low.
	recordEvery = time.Minute
	// patience bounds the wait for a snapshot.
	patience = time.Second
)

// Snapshots measures the node and all its pods: now, or as of the last passes.
type Snapshots interface {
	Snapshot(context.Context) (control.Snapshot, error)
	Recent(context.Context) (control.Snapshot, error)
}

// Config of a Recorder.
type Config struct {
	// Dir is where the ring is, and Evictions where the evictions are that are kept longer.
	Dir, Evictions string
	Version        string
	Node           simulate.FileNode
	// Eviction is the configuration, as given.
	Eviction config.EvictdConfiguration
	// Pods are the node's pods, from any goroutine.
	Pods func() []*v1.Pod
}

// Recorder records passes. Run owns the disk; Record, Configure and SetNode never
// block and may be called from any goroutine.
type Recorder struct {
	cfg  Config
	look Snapshots
	log  *slog.Logger
	in   chan func(context.Context)
	lost atomic.Uint64

	evictions evictions

	ring   ring // nil while the directory cannot be used
	tryAt  time.Time
	faulty bool

	next  Config           // announced
	under *eviction.Config // of the last report

	begins time.Time // of the segment
	again  bool      // a new segment must begin
	pods   map[string]*v1.Pod
	listed []*v1.Pod               // what pods was made of
	used   map[types.UID]stats.Pod // as last recorded
	// usageAt is when it was last recorded what pods use.
	usageAt time.Time
}

// ring is a journal.Ring.
type ring interface {
	Left() int64
	Begin(key []byte) error
	Append(record []byte, durable bool) error
}

// New makes a Recorder; nothing is touched before Run.
func New(cfg Config, look Snapshots, log *slog.Logger) *Recorder {
	return &Recorder{cfg: cfg, next: cfg, look: look, log: log, in: make(chan func(context.Context), queue)}
}

// Record queues a report, unless too many wait.
func (r *Recorder) Record(report control.Report) {
	pods := r.cfg.Pods() // as they are now: by then some are gone
	r.post(func(ctx context.Context) { r.take(ctx, &report, pods) })
}

// Configure announces a configuration: call it before Loop.Configure. It begins with
// the first report that is under another one than the report before.
func (r *Recorder) Configure(file config.EvictdConfiguration) {
	r.post(func(context.Context) { r.next.Eviction = file })
}

// SetNode announces another node, as Configure does.
func (r *Recorder) SetNode(node simulate.FileNode) {
	r.post(func(context.Context) { r.next.Node = node })
}

// Evicted announces an eviction of the kubelet; of one that is announced again, or is evictd's, nothing is kept.
func (r *Recorder) Evicted(e Eviction) { r.evictions.announce(e) }

func (r *Recorder) post(do func(context.Context)) {
	select {
	case r.in <- do:
	default:
		r.lost.Add(1)
	}
}

// Flush waits until what was queued before is written, or until ctx ends; the error is that of ctx.
func (r *Recorder) Flush(ctx context.Context) error {
	written := make(chan struct{})
	select {
	case r.in <- func(context.Context) { close(written) }:
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case <-written:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Lost counts the reports that were not recorded in time.
func (r *Recorder) Lost() uint64 { return r.lost.Load() }

// Run records until ctx ends, and then what still waits. It always returns nil:
// the node is protected without a recorder.
func (r *Recorder) Run(ctx context.Context) error {
	for {
		select {
		case do := <-r.in:
			do(ctx)
			continue
		default:
		}
		select {
		case do := <-r.in:
			do(ctx)
		case <-ctx.Done():
			return nil
		}
	}
}

func (r *Recorder) open() bool {
	if r.ring != nil {
		return true
	}
	if time.Now().Before(r.tryAt) {
		return false
	}
	ring, err := journal.OpenRing(r.cfg.Dir, segments, segmentBytes)
	if err != nil {
		r.logFault(err)
		r.tryAt = time.Now().Add(retryAfter)
		return false
	}
	r.ring = ring
	return true
}

// logFault logs a fault once, until writing works again.
func (r *Recorder) logFault(err error) {
	switch {
	case err != nil && !r.faulty:
		r.log.Warn("the flight recorder cannot write: what happens now is not kept", "dir", r.cfg.Dir, "error", err)
	case err == nil && r.faulty:
		r.log.Info("the flight recorder writes again")
	}
	r.faulty = err != nil
}

func (r *Recorder) take(ctx context.Context, report *control.Report, manifests []*v1.Pod) {
	if err := r.evictions.take(r.cfg.Evictions, report); err != nil {
		r.log.Warn("evictions are not kept for a report", "dir", r.cfg.Evictions, "error", err)
	}
	if !r.open() {
		return
	}
	for _, uid := range report.Withdrawn {
		r.append(&record{At: report.At, Ended: &ended{UID: uid, Error: "the request for its eviction was withdrawn: what it was chosen for is over"}})
	}
	if report.Ended != nil {
		if report.Ended.Container == "" { // else the next pass has it
			r.append(&record{At: report.At, Ended: end(report.Ended)})
		}
		return
	}
	pods := r.pods
	if !slices.Equal(manifests, r.listed) {
		pods, r.listed = byName(manifests), manifests
	}
	if r.under != report.Eviction {
		r.cfg.Eviction, r.cfg.Node = r.next.Eviction, r.next.Node
		r.under, r.again = report.Eviction, true
	}
	pods, absent := r.asOf(report, pods)
	if r.again || r.ring.Left() < roomForStep {
		if !r.begin(report, pods) {
			return
		}
	}
	var candidates []eviction.Candidate
	exact := report.Sampled && decides(report)
	if report.Pass == eviction.Watch {
		exact = true
		candidates = slices.DeleteFunc(slices.Clone(report.Candidates), func(c eviction.Candidate) bool { return c.Usage == nil })
	} else if report.Sampled {
		candidates = report.Candidates
	} else if report.Source == control.Housekeeping {
		switch {
		case low(report):
			candidates = r.ask(ctx, r.look.Snapshot)
		case report.At.Sub(r.usageAt) >= recordEvery:
			candidates, r.usageAt = r.ask(ctx, r.look.Recent), report.At
		}
	}
	s := step(report, r.begins)
	if !maps.Equal(r.pods, pods) {
		s.Add, s.Remove = changes(r.pods, pods)
	}
	s.Usage, s.Absent = r.usages(candidates, pods, exact), absent
	unknown := func(name string) bool { return pods[name] == nil }
	s.Exited, s.KillFails = slices.DeleteFunc(s.Exited, unknown), slices.DeleteFunc(s.KillFails, unknown)
	maps.DeleteFunc(s.Kills, func(name string, _ simulate.FileKill) bool { return unknown(name) })
	r.pods = pods
	r.append(&record{
		At: report.At, Step: s, Source: report.Source, DryRun: report.DryRun, Evictions: decisions(report), Steps: taken(report), Lost: r.lost.Load(),
	})
}

func (r *Recorder) append(rec *record) {
	data, err := json.Marshal(rec)
	if err == nil {
		err = r.ring.Append(data, len(rec.Evictions) > 0 || rec.Ended != nil)
	}
	r.logFault(err)
	r.again = r.again || err != nil // what follows needs no record that is missing
}

// decides says whether a threshold acts in the pass, or a pod is evicted: what each
// pod uses matters then.
func decides(report *control.Report) bool {
	return slices.ContainsFunc(report.Decisions, func(d eviction.Decision) bool {
		return len(d.Met)+len(d.Ranking)+len(d.Evictions)+len(d.Hastened) > 0
	})
}

// low says whether any signal that has a threshold is short of what it can be, so
// that what pods use may soon matter.
func low(report *control.Report) bool {
	for i := range report.Eviction.Thresholds {
		o := report.Observations[report.Eviction.Thresholds[i].Signal]
		available, measured := o.Available.Get()
		capacity, known := o.Capacity.Get()
		if measured && (!known || available < capacity/4) {
			return true
		}
	}
	return false
}

// ask asks for all pods; without an answer none is recorded.
func (r *Recorder) ask(ctx context.Context, look func(context.Context) (control.Snapshot, error)) []eviction.Candidate {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	s, err := look(ctx)
	if err != nil {
		return nil
	}
	return s.Candidates
}

// usages are what the candidates use where it is exact or has moved since it was
// last recorded. Those that are no pods of the scenario are left out.
func (r *Recorder) usages(candidates []eviction.Candidate, pods map[string]*v1.Pod, exact bool) map[string]*simulate.FileUsage {
	used := map[string]*simulate.FileUsage{}
	for i := range candidates {
		c := &candidates[i]
		if pod, present := pods[c.Pod.String()]; !present || pod.UID != c.Pod.UID {
			continue
		}
		before, recorded := r.used[c.Pod.UID]
		if c.Usage == nil {
			if recorded {
				used[c.Pod.String()] = nil
				delete(r.used, c.Pod.UID)
			}
			continue
		}
		if recorded && !exact && !moved(&before, c.Usage) {
			continue
		}
		used[c.Pod.String()], r.used[c.Pod.UID] = usage(c), *c.Usage
	}
	return used
}

// slack is how far a figure may move, bytes or a hundredth of it, before it is
// recorded again.
const slack = 1 << 20

// moved says whether the usage of a pod differs by more than slack.
func moved(before, after *stats.Pod) bool {
	far := func(a, b stats.Amount, slack int64) bool {
		x, known := a.Get()
		y, measured := b.Get()
		return known != measured || max(x-y, y-x) > max(slack, x/100)
	}
	if far(before.Memory, after.Memory, slack) || far(before.Swap, after.Swap, slack) || far(before.Processes, after.Processes, 0) ||
		len(before.Containers) != len(after.Containers) || len(before.Volumes) != len(after.Volumes) {
		return true
	}
	for i := range after.Containers {
		b, a := &before.Containers[i], &after.Containers[i]
		if far(b.Memory, a.Memory, slack) || far(b.Rootfs, a.Rootfs, slack) || far(b.RootfsInodes, a.RootfsInodes, 0) ||
			far(b.Logs, a.Logs, slack) || far(b.LogsInodes, a.LogsInodes, 0) {
			return true
		}
	}
	for i := range after.Volumes {
		if far(before.Volumes[i].Used, after.Volumes[i].Used, slack) || far(before.Volumes[i].Inodes, after.Volumes[i].Inodes, 0) {
			return true
		}
	}
	return false
}
