package collect

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/evictd/evictd/stats"
)

// Paths are on the three filesystems. An empty ImageFs is the one of NodeFs, an empty
// ContainerFs the one of ImageFs.
type Paths struct{ NodeFs, ImageFs, ContainerFs string }

// over returns the paths of p, or of q where p has none.
func (p Paths) over(q Paths) [3]string {
	all := [3]string{p.NodeFs, p.ImageFs, p.ContainerFs}
	for i, otherwise := range [3]string{q.NodeFs, q.ImageFs, q.ContainerFs} {
		if all[i] == "" {
			all[i] = otherwise
		}
		if all[i] == "" && i > 0 {
			all[i] = all[i-1]
		}
	}
	return all
}

// Layout is the layout at the last measurement.
type Layout int

// The three layouts of the kubelet, and one that it does not support.
const (
	SharedFs   Layout = iota // one filesystem for everything
	ImageFs                  // images and writable layers on a filesystem of their own
	SplitFs                  // images on one of their own, writable layers on nodefs
	SeparateFs               // three filesystems
)

func (l Layout) String() string {
	return [...]string{SharedFs: "shared", ImageFs: "imagefs", SplitFs: "split", SeparateFs: "separate"}[l]
}

// layoutOf compares the devices of nodefs, imagefs and containerfs. An unknown device,
// 0, is taken as the one before it.
func layoutOf(devices [3]uint64) Layout {
	for i := range devices[1:] {
		if devices[i+1] == 0 {
			devices[i+1] = devices[i]
		}
	}
	node, image, container := devices[0], devices[1], devices[2]
	switch {
	case node == image && image == container:
		return SharedFs
	case image == container:
		return ImageFs
	case node == container:
		return SplitFs
	}
	return SeparateFs
}

// Disks measures the node's filesystems, each on a goroutine of its own: statfs(2) of a
// network filesystem blocks while its server is down, and any path lookup may read the
// disk. Readers get the last figures with their time, and may request new ones.
type Disks struct {
	log          *slog.Logger
	configured   Paths
	pathsChanged chan struct{}
	changed      chan struct{}

	mu                sync.Mutex
	filesystems       [3]*filesystem
	layout            Layout
	awaitRuntimeUntil time.Time // until then the paths of the runtime are awaited
}

// NewDisks takes the configured paths, which override those of the runtime.
func NewDisks(given Paths, log *slog.Logger) *Disks {
	d := &Disks{log: log, configured: given, pathsChanged: make(chan struct{}, 1), changed: make(chan struct{}, 1)}
	d.setPaths(given.over(Paths{}))
	return d
}

// AwaitRuntime leaves imagefs and containerfs unknown until SetRuntimePaths, at most
// until an instant, unless their paths are configured: with the figures of nodefs
// instead, pods could be evicted for the wrong disk.
func (d *Disks) AwaitRuntime(until time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.awaitRuntimeUntil = until
}

// SetRuntimePaths sets where the runtime keeps images and writable layers.
func (d *Disks) SetRuntimePaths(runtime Paths) {
	d.AwaitRuntime(time.Time{})
	if d.setPaths(d.configured.over(runtime)) {
		notify(d.pathsChanged)
	}
}

// setPaths says whether a path has changed.
func (d *Disks) setPaths(paths [3]string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	before, moved := d.filesystems, false
	for i, path := range paths {
		if before[i] != nil && before[i].path == path {
			continue
		}
		moved = true
		at := func(f *filesystem) bool { return f != nil && f.path == path }
		if j := slices.IndexFunc(d.filesystems[:i], at); j >= 0 {
			d.filesystems[i] = d.filesystems[j]
		} else if j := slices.IndexFunc(before[:], at); j >= 0 {
			d.filesystems[i] = before[j]
		} else {
			d.filesystems[i] = newFilesystem(path)
		}
	}
	return moved
}

// distinct lists the filesystems, each once.
func (d *Disks) distinct() []*filesystem {
	d.mu.Lock()
	defer d.mu.Unlock()
	var distinct []*filesystem
	for _, f := range d.filesystems {
		if !slices.Contains(distinct, f) {
			distinct = append(distinct, f)
		}
	}
	return distinct
}

// Layout is as the devices were when last measured.
func (d *Disks) Layout() Layout {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.layout
}

// Changed receives when the layout may have changed.
func (d *Disks) Changed() <-chan struct{} { return d.changed }

// updateLayout computes the layout, once every filesystem has answered.
func (d *Disks) updateLayout() {
	d.mu.Lock()
	defer d.mu.Unlock()
	var devices [3]uint64
	var paths [3]string
	for i, f := range d.filesystems {
		f.mu.Lock()
		silent := f.device == 0 && f.errno == 0
		devices[i], paths[i] = f.device, f.path
		f.mu.Unlock()
		if silent {
			return
		}
	}
	layout := layoutOf(devices)
	if layout == d.layout {
		return
	}
	d.layout = layout
	d.log.Info("the layout of the disks", "layout", layout.String(), "nodefs", paths[0], "imagefs", paths[1], "containerfs", paths[2])
	if layout == SeparateFs {
		d.log.Warn("writable layers are on a third filesystem; the kubelet does not support this layout: the thresholds of imagefs apply to containerfs", "containerfs", paths[2])
	}
	notify(d.changed)
}

// notify sends without blocking; the channel has room for one value.
func notify(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Measure measures every filesystem once. The error joins the paths that cannot be
// measured. A filesystem that does not answer in time is logged and left to Run.
func (d *Disks) Measure(patience time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	all := d.distinct()
	answered := make([]chan struct{}, len(all))
	for i, f := range all {
		answered[i] = make(chan struct{})
		go func() { // it ends when the kernel answers
			defer close(answered[i])
			f.measure()
		}()
	}
	var err error
	for i, f := range all {
		select {
		case <-answered[i]:
			err = errors.Join(err, f.fault())
		case <-ctx.Done():
			d.log.Warn("a filesystem does not answer; it is unknown until it does", "path", f.path)
		}
	}
	d.updateLayout()
	return err
}

// Run measures on request until ctx ends. A goroutine blocked in the kernel is not
// awaited.
func (d *Disks) Run(ctx context.Context) error {
	running := map[*filesystem]func(){}
	for ctx.Err() == nil {
		current := d.distinct()
		for _, f := range current {
			if running[f] == nil {
				running[f] = d.measureOnDemand(ctx, f)
			}
		}
		for f, stop := range running {
			if !slices.Contains(current, f) {
				stop()
				delete(running, f)
			}
		}
		select {
		case <-ctx.Done():
		case <-d.pathsChanged:
			d.updateLayout()
		}
	}
	for _, stop := range running {
		stop()
	}
	return nil
}

// stopTimeout bounds the wait for the last answer of a filesystem that is no longer
// used.
const stopTimeout = time.Second

// measureOnDemand measures one filesystem on request until it is stopped.
func (d *Disks) measureOnDemand(ctx context.Context, f *filesystem) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			if f.measure() {
				d.updateLayout()
			}
			select {
			case <-ctx.Done():
				return
			case <-f.requested:
			}
		}
	}()
	return func() {
		cancel()
		select {
		case <-ended:
		case <-time.After(stopTimeout):
			d.log.Warn("a filesystem does not answer; its measurement is abandoned", "path", f.path)
		}
	}
}

// request asks for a measurement of every filesystem.
func (d *Disks) request(now time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, f := range d.filesystems {
		f.request(now)
	}
}

// read returns the last figures of one of the filesystems.
func (d *Disks) read(i int, now time.Time, s *stats.Filesystem) error {
	d.mu.Lock()
	f := d.filesystems[i]
	awaits := i > 0 && d.configured.ImageFs == "" && d.configured.ContainerFs == "" && now.Before(d.awaitRuntimeUntil)
	d.mu.Unlock()
	if awaits {
		return nil
	}
	return f.read(now, s)
}

// sources are the three filesystems. If several of them are one disk, they get the same
// figures: two readings of one disk could otherwise meet the threshold of another
// signal.
func (d *Disks) sources() (sources []*source) {
	for i, name := range [3]string{"nodefs", "imagefs", "containerfs"} {
		sources = append(sources, &source{name: name, read: func(s *stats.Node) error {
			figures := [3]*stats.Filesystem{&s.NodeFs, &s.ImageFs, &s.ContainerFs}
			if err := d.read(i, s.Time, figures[i]); err != nil {
				return err
			}
			for j, first := range figures[:i] {
				if d.oneDisk(j, i) && first.Capacity == figures[i].Capacity {
					*figures[i] = *first
					break
				}
			}
			return nil
		}})
	}
	return sources
}

// oneDisk says whether two of the filesystems were last on one device. A directory with
// a project quota is on that device and has another capacity.
func (d *Disks) oneDisk(i, j int) bool {
	d.mu.Lock()
	a, b := d.filesystems[i], d.filesystems[j]
	d.mu.Unlock()
	device := a.lastDevice()
	return device != 0 && device == b.lastDevice()
}
