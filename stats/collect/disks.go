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

// Paths are on the three filesystems. An empty ImageFs is that of NodeFs, an
// empty ContainerFs that of ImageFs.
type Paths struct{ NodeFs, ImageFs, ContainerFs string }

// over are the paths of p, and where p has none those of q.
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

// Layout says which of the three filesystems are one.
type Layout int

// The layouts the kubelet knows, and the one it does not.
const (
	SharedFs   Layout = iota // one filesystem for everything
	ImageFs                  // images and writable layers on a filesystem of their own
	SplitFs                  // images on one of their own, writable layers on nodefs
	SeparateFs               // three filesystems
)

func (l Layout) String() string {
	return [...]string{SharedFs: "shared", ImageFs: "imagefs", SplitFs: "split", SeparateFs: "separate"}[l]
}

// layoutOf goes by the devices of nodefs, imagefs and containerfs. One that was
// never found, 0, is taken for the one before it.
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

// Disks measures the node's filesystems, each on a goroutine of its own. The
// statfs of a network filesystem waits without end for a server that is away, and
// on any filesystem the path may have to be read from the disk. Who reads is given
// the last figures with their time, and may ask for the next ones.
type Disks struct {
	log        *slog.Logger
	configured Paths
	moved      chan struct{}
	changed    chan struct{}

	mu          sync.Mutex
	filesystems [3]*filesystem
	layout      Layout
	awaits      time.Time // until then the runtime may still say where its filesystems are
}

// NewDisks takes the operator's paths, which go before those of the runtime.
func NewDisks(given Paths, log *slog.Logger) *Disks {
	d := &Disks{log: log, configured: given, moved: make(chan struct{}, 1), changed: make(chan struct{}, 1)}
	d.place(given.over(Paths{}))
	return d
}

// AwaitRuntime leaves imagefs and containerfs unknown, where the operator names neither,
// until the runtime has said where they are, but no longer than until an instant:
// the figures of nodefs could end pods for a disk that lacks nothing.
func (d *Disks) AwaitRuntime(until time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.awaits = until
}

// SetRuntimePaths takes up where the runtime keeps images and writable layers.
func (d *Disks) SetRuntimePaths(runtime Paths) {
	d.AwaitRuntime(time.Time{})
	if d.place(d.configured.over(runtime)) {
		poke(d.moved)
	}
}

// place says whether any path is another than before.
func (d *Disks) place(paths [3]string) bool {
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

// distinct lists the filesystems by their paths, each once.
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

// Changed receives when there may be another layout.
func (d *Disks) Changed() <-chan struct{} { return d.changed }

// judge finds the layout anew, once every filesystem has answered.
func (d *Disks) judge() {
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
		d.log.Warn("writable layers are on a filesystem of their own, apart from nodefs and from the images; the kubelet knows no such layout: the thresholds of imagefs hold for containerfs", "containerfs", paths[2])
	}
	poke(d.changed)
}

// poke leaves word for who is busy.
func poke(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Measure measures every filesystem once. The error joins the paths that cannot
// be measured. One that does not answer in time is told in the log and left to
// Run.
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
	d.judge()
	return err
}

// Run measures what is asked for, until ctx ends. A goroutine that the kernel
// does not let go is left behind, to end when it does.
func (d *Disks) Run(ctx context.Context) error {
	running := map[*filesystem]func(){}
	for ctx.Err() == nil {
		current := d.distinct()
		for _, f := range current {
			if running[f] == nil {
				running[f] = d.follow(ctx, f)
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
		case <-d.moved:
			d.judge()
		}
	}
	for _, stop := range running {
		stop()
	}
	return nil
}

// partingPatience is how long a filesystem that is not asked any more may take
// for its last answer.
const partingPatience = time.Second

// follow answers for one filesystem until it is stopped.
func (d *Disks) follow(ctx context.Context, f *filesystem) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			if f.measure() {
				d.judge()
			}
			select {
			case <-ctx.Done():
				return
			case <-f.asked:
			}
		}
	}()
	return func() {
		cancel()
		select {
		case <-ended:
		case <-time.After(partingPatience):
			d.log.Warn("a filesystem that does not answer is left alone", "path", f.path)
		}
	}
}

// ask has every filesystem measured anew.
func (d *Disks) ask(now time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, f := range d.filesystems {
		f.ask(now)
	}
}

// read makes a source of one of the filesystems.
func (d *Disks) read(i int, now time.Time, s *stats.Filesystem) error {
	d.mu.Lock()
	f := d.filesystems[i]
	awaits := i > 0 && d.configured.ImageFs == "" && d.configured.ContainerFs == "" && now.Before(d.awaits)
	d.mu.Unlock()
	if awaits {
		return nil
	}
	return f.read(now, s)
}

// sources are the three filesystems. One disk has one figure, however many of them it
// is: figures of two instants would let the instant choose the signal.
func (d *Disks) sources() []source {
	var sources []source
	for i, name := range [3]string{"nodefs", "imagefs", "containerfs"} {
		sources = append(sources, source{name: name, read: func(s *stats.Node) error {
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

// oneDisk says whether two of the filesystems were last found on one device. A
// directory with a project quota is a part of it and has another capacity.
func (d *Disks) oneDisk(i, j int) bool {
	d.mu.Lock()
	a, b := d.filesystems[i], d.filesystems[j]
	d.mu.Unlock()
	device := a.on()
	return device != 0 && device == b.on()
}
