package gc_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/evictd/evictd/cri/inventory"
	"github.com/evictd/evictd/eviction"
	"github.com/evictd/evictd/eviction/control"
	"github.com/evictd/evictd/eviction/gc"
	"github.com/evictd/evictd/eviction/journal"
	"github.com/evictd/evictd/eviction/reclaim"
	"github.com/evictd/evictd/internal/wire"
	"github.com/evictd/evictd/stats"
)

const gibi = int64(1) << 30

// fixture is a collector on a node of one disk of 100 GiB with a runtime, in simulated time. It
// keeps what was done as lines, each with its time.
type fixture struct {
	*gc.Collector
	*testing.T
	cfg        eviction.Config
	begun      time.Time
	pods       map[types.UID]reclaim.Pod
	incomplete bool
	capacity   int64
	signal     eviction.Signal // nodefs.available, or nodefs.inodesFree: then inodes stand for bytes

	mu        sync.Mutex
	inventory *inventory.Snapshot
	frees     map[string]int64 // what removing it really frees, bytes
	late      time.Duration    // what was removed shows so much later
	fails     map[string]error // orders; hang for none that is answered
	available int64
	moved     *eviction.Config // in snapshots in place of cfg; nil for cfg
	unseen    time.Duration    // for so long the last snapshot is older than the test and has no figures of the disk
	refill    int64            // bytes that a pod writes once, when the disk was seen to lack nothing
	entries   map[string]json.RawMessage
	lines     []string
	orders    time.Duration // so many microseconds
}

var errHang = errors.New("hang")

// setting is a fixture before its collector runs.
type setting struct {
	cfg     gc.Config
	minimum int64 // of the signal, GiB
	signal  eviction.Signal
	prepare func(*fixture)
}

// withCollector runs a test with a collector, which must end with all its goroutines.
func withCollector(t *testing.T, s setting, test func(*fixture)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &fixture{
			T: t, begun: time.Now(), signal: cmp.Or(s.signal, eviction.NodeFsAvailable), capacity: 100 * gibi, pods: map[types.UID]reclaim.Pod{}, frees: map[string]int64{}, fails: map[string]error{}, entries: map[string]json.RawMessage{},
			inventory: &inventory.Snapshot{Runtime: inventory.Runtime{Endpoint: "unix:/run/x.sock", Connected: true}},
		}
		w.cfg = eviction.New(eviction.Config{Thresholds: []eviction.Threshold{{Signal: w.signal, Value: eviction.Value{Amount: s.minimum * gibi}}}}, eviction.SharedFs)
		if s.prepare != nil {
			s.prepare(w)
		}
		s.cfg.OnReport = w.report
		if s.cfg.Policy.HighPercent == 0 {
			s.cfg.Policy.HighPercent, s.cfg.Policy.LowPercent, s.cfg.Policy.MaxPerPodContainer, s.cfg.Policy.MaxContainers = 85, 80, 1, -1
		}
		ports := gc.Ports{Runtime: w, ReadDisks: w.Glance, Journal: w, Pods: func() (map[types.UID]reclaim.Pod, bool) { return w.pods, !w.incomplete }}
		w.Collector = gc.New(s.cfg, ports, slog.New(slog.DiscardHandler))
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			if err := w.Collector.Run(ctx); err != nil {
				t.Errorf("Run: %v", err)
			}
		}()
		test(w)
		cancel()
		<-ended
	})
}

// at waits for an instant of the test, and then until every goroutine is blocked.
func (w *fixture) at(d time.Duration) {
	time.Sleep(d - time.Since(w.begun))
	synctest.Wait()
}

// starve lets the loop ask, and waits for the end.
func (w *fixture) starve(steps ...eviction.ReclaimStep) {
	if steps == nil {
		steps = []eviction.ReclaimStep{eviction.DeadContainers, eviction.UnusedImages}
	}
	w.mu.Lock()
	s := w.look()
	w.mu.Unlock()
	w.Reclaim(w.signal, steps, w.cfg.Need(&s.Observations, w.signal))
	if got := <-w.Reclaimed(); got != w.signal {
		w.Errorf("%v was reclaimed", got)
	}
}

// container makes one that died so long before the beginning, alone in its
// sandbox; what it frees is what it says.
func (w *fixture) container(id string, pod types.UID, died time.Duration, layer int64) *inventory.Container {
	w.inventory.Sandboxes = append(w.inventory.Sandboxes, inventory.Sandbox{ID: "of-" + id, UID: pod, Ready: true})
	c := inventory.Container{
		ID: id, Sandbox: "of-" + id, Name: "c", State: inventory.ContainerExited, Created: w.begun.Add(-died), Finished: w.begun.Add(-died),
		Layer: inventory.Layer{Container: id, Bytes: &layer},
	}
	w.inventory.Containers = append(w.inventory.Containers, c)
	w.frees[id] = layer
	return &w.inventory.Containers[len(w.inventory.Containers)-1]
}

// image makes one that says that it has so many GiB and frees other many.
func (w *fixture) image(id string, says, frees int64) {
	w.inventory.Images = append(w.inventory.Images, inventory.Image{ID: id, Tags: []string{"example.org/" + id + ":1"}, Bytes: says * gibi})
	w.frees[id] = frees * gibi
}

func (w *fixture) write(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lines = append(w.lines, time.Since(w.begun).Round(time.Millisecond).String()+" "+fmt.Sprintf(format, args...))
}

// wants holds what was done since the last time against the lines wanted.
func (w *fixture) expect(lines ...string) {
	w.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	if !slices.Equal(w.lines, lines) {
		w.Errorf("was done:\n  %s\nwanted:\n  %s", strings.Join(w.lines, "\n  "), strings.Join(lines, "\n  "))
	}
	w.lines = nil
}

// Runtime and Order make the fixture a gc.Runtime. A removal takes 100 ms.
func (w *fixture) Runtime() *inventory.Snapshot {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.inventory
}

func (w *fixture) Order(o wire.Order, done func(error)) error {
	w.mu.Lock()
	err := w.fails[o.Target]
	w.mu.Unlock()
	if errors.Is(err, errHang) {
		time.AfterFunc(time.Until(o.Deadline.Time), func() { done(context.DeadlineExceeded) })
		return nil
	}
	w.mu.Lock()
	w.orders += time.Microsecond // none ends with another
	w.mu.Unlock()
	time.AfterFunc(100*time.Millisecond+w.orders, func() {
		if err != nil {
			done(err)
			return
		}
		w.write("%s %s", o.Kind, o.Target)
		w.mu.Lock()
		now := *w.inventory
		now.Containers = slices.DeleteFunc(slices.Clone(now.Containers), func(c inventory.Container) bool { return c.ID == o.Target })
		now.Sandboxes = slices.DeleteFunc(slices.Clone(now.Sandboxes), func(s inventory.Sandbox) bool { return s.ID == o.Target })
		now.Images = slices.DeleteFunc(slices.Clone(now.Images), func(i inventory.Image) bool { return i.ID == o.Target })
		w.inventory = &now
		if w.late == 0 {
			w.available += w.frees[o.Target]
		}
		w.mu.Unlock()
		time.AfterFunc(w.late, func() {
			w.mu.Lock()
			defer w.mu.Unlock()
			if w.late > 0 {
				w.available += w.frees[o.Target]
			}
		})
		done(nil)
	})
	return nil
}

// look measures the one disk.
func (w *fixture) look() control.Snapshot {
	fs := stats.Filesystem{Capacity: stats.Known(w.capacity), Available: stats.Known(w.available)}
	if w.signal == eviction.NodeFsInodesFree {
		fs = stats.Filesystem{Inodes: fs.Capacity, InodesFree: fs.Available}
	}
	node := stats.Node{Time: time.Now(), NodeFs: fs, ImageFs: fs, ContainerFs: fs}
	return control.Snapshot{At: time.Now(), Node: node, Observations: (&eviction.Observer{}).Observe(&node), Eviction: &w.cfg}
}

// Glance looks at the one disk.
func (w *fixture) Glance(ctx context.Context) (control.Snapshot, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if time.Since(w.begun) < w.unseen {
		return control.Snapshot{At: w.begun.Add(-time.Millisecond), Eviction: &w.cfg}, ctx.Err()
	}
	s := w.look()
	if w.moved != nil {
		s.Eviction = w.moved
	}
	if need := w.cfg.Need(&s.Observations, w.signal); need.Bytes+need.Inodes <= 0 {
		w.available, w.refill = w.available-w.refill, 0
	}
	return s, ctx.Err()
}

// Entries and Put implement gc.Memory.
func (w *fixture) Entries(kind string) []journal.Entry {
	if data := w.entries[kind]; data != nil {
		return []journal.Entry{{Kind: kind, Data: data}}
	}
	return nil
}

func (w *fixture) Put(kind, _ string, value any) error {
	data, err := json.Marshal(value)
	w.entries[kind] = data
	return err
}

// report writes the report of a collection as a line.
func (w *fixture) report(r gc.Report) {
	var words []string
	if r.DryRun {
		words = append(words, "would remove")
		for _, removal := range r.Removed {
			words = append(words, removal.ID)
		}
	}
	for _, f := range r.Failed {
		words = append(words, "failed "+f.ID)
	}
	if r.Logs > 0 {
		words = append(words, fmt.Sprintf("logs %d", r.Logs))
	}
	if r.Insufficient {
		words = append(words, "short")
	}
	if r.Error != nil {
		words = append(words, r.Error.Error())
	}
	for _, f := range r.Faults {
		words = append(words, string(f.Reason))
	}
	if r.Repeated {
		words = append(words, "as before")
	}
	w.write("%s: expected %d, freed %d GiB %s", r.Trigger, r.Expected/gibi, r.Freed/gibi, strings.Join(words, ", "))
}
