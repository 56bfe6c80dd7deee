package collect

import (
	"os"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/evictd/evictd/stats"
)

// Volume is the directory of a pod's volume below the kubelet's root directory. id
// is the pod's uid, or the config hash of a static pod; plugin is the kubelet's for
// the volume's kind, such as EmptyDir.
func Volume(root, id, plugin, volume string) PodPath {
	return PodPath{root, "pods/" + id + "/volumes/" + plugin + "/" + volume}
}

// The plugins of volumes on the node's filesystem, or in memory.
const (
	EmptyDir  = "kubernetes.io~empty-dir"
	ConfigMap = "kubernetes.io~configmap"
	GitRepo   = "kubernetes.io~git-repo"
)

// OwnDir is the directory of a pod below the kubelet's root directory.
func OwnDir(root, id string) PodPath { return PodPath{root, "pods/" + id} }

// EtcHosts is the file that the kubelet mounts over the /etc/hosts of a pod.
func EtcHosts(root, id string) PodPath { return PodPath{root, "pods/" + id + "/etc-hosts"} }

// LogDir is the directory of a pod's logs below the kubelet's, /var/log/pods.
func LogDir(root, namespace, name, id string) PodPath {
	return PodPath{root, namespace + "_" + name + "_" + id}
}

// PodFiles is where a pod writes. A zero path is not measured.
type PodFiles struct {
	// Root is a path on the node's filesystem, the kubelet's root directory.
	Root    string
	Volumes []PodPath // in the order of the manifest
	// Logs is the pod's log directory, with one below for each of Containers.
	Logs       PodPath
	EtcHosts   PodPath
	Own        PodPath  // the pod's own directory, which has the volumes in it
	Containers []string // in the order of PodConfig's
}

// ProcessLister appends the processes of a container of a pod, or with "" of the whole
// pod.
type ProcessLister func(container string, into []int) ([]int, error)

// RuntimeFigures is what the runtime reports of a pod's containers, in their order; a
// value that it does not report is unknown or zero.
type RuntimeFigures struct {
	Layers []stats.Volume // the writable ones
	Logs   []PodPath
}

// PodDisk is the disk usage of a pod at the last scan. Any goroutine may read it.
type PodDisk struct {
	files        PodFiles
	processes    atomic.Pointer[ProcessLister] // nil: layers and deleted open files are not scanned
	found        atomic.Pointer[podUsage]
	runtime      atomic.Pointer[RuntimeFigures]
	pathsChanged atomic.Bool // since the last scan

	// Owned by the scanner.
	volumes, logs, layers []tree
	own                   tree
	layerless             bool           // the writable layer of a running container is not found
	open                  []stats.Volume // deleted open files, by container
	unlinked              stats.Volume
	took                  time.Duration // the last scan
}

// podUsage is the result of one scan.
type podUsage struct {
	volumes, logs, layers, open []stats.Volume
	files, unlinked, own        stats.Volume
	partial                     bool
}

// NewPodDisk makes a pod that was not scanned.
func NewPodDisk(files PodFiles) *PodDisk {
	n := len(files.Containers)
	d := &PodDisk{files: files, own: tree{place: files.Own, own: true}, volumes: make([]tree, len(files.Volumes)), logs: make([]tree, n), layers: make([]tree, n), open: make([]stats.Volume, n)}
	for i, place := range files.Volumes {
		d.volumes[i].place = place
	}
	return d
}

// Matches says whether the pod has the same paths, so that its results are still valid.
func (d *PodDisk) Matches(files *PodFiles) bool {
	return d.files.Root == files.Root && d.files.Logs == files.Logs && d.files.EtcHosts == files.EtcHosts && d.files.Own == files.Own &&
		slices.Equal(d.files.Volumes, files.Volumes) && slices.Equal(d.files.Containers, files.Containers)
}

// SetProcesses sets the lister of the pod's processes.
func (d *PodDisk) SetProcesses(processes ProcessLister) { d.processes.Store(&processes) }

// SetRuntimeFigures sets the runtime's paths and figures. Its paths replace the
// kubelet's default paths; its figures replace older ones of the scanner.
func (d *PodDisk) SetRuntimeFigures(figures RuntimeFigures) {
	if before := d.runtime.Swap(&figures); before == nil || !slices.Equal(before.Logs, figures.Logs) {
		d.pathsChanged.Store(true)
	}
}

// read fills in the results; before the first scan everything is unknown.
func (d *PodDisk) read(s *stats.Pod) {
	found := d.found.Load()
	if found == nil {
		found = &podUsage{partial: true}
	}
	s.Volumes = append(s.Volumes, found.volumes...)
	for range len(d.files.Volumes) - len(found.volumes) {
		s.Volumes = append(s.Volumes, stats.Volume{})
	}
	s.Files, s.Unlinked, s.Own, s.Partial = found.files, found.unlinked, found.own, found.partial
	for i := range s.Containers {
		c, layer := &s.Containers[i], d.runtimeLayer(i)
		if i < len(found.logs) {
			c.Logs, c.LogsInodes, c.LogsElsewhere = found.logs[i].Used, found.logs[i].Inodes, found.logs[i].Elsewhere
			if at := found.layers[i]; !layer.Used.IsKnown() || at.Used.IsKnown() && at.Time.After(layer.Time) {
				layer = at
			}
			layer = layer.Plus(found.open[i])
		}
		c.Rootfs, c.RootfsInodes = layer.Used, layer.Inodes
	}
}

// runtimeLayer is the runtime's figure of a writable layer; unknown without one.
func (d *PodDisk) runtimeLayer(i int) stats.Volume {
	if figures := d.runtime.Load(); figures != nil && i < len(figures.Layers) {
		return figures.Layers[i]
	}
	return stats.Volume{}
}

// logDir is the log directory of a container.
func (d *PodDisk) logDir(i int) PodPath {
	if figures := d.runtime.Load(); figures != nil && i < len(figures.Logs) && figures.Logs[i] != (PodPath{}) {
		return figures.Logs[i]
	}
	if d.files.Logs == (PodPath{}) {
		return PodPath{}
	}
	return PodPath{d.files.Logs.Root, d.files.Logs.Below + "/" + d.files.Containers[i]}
}

// unscanned says whether the pod, or a path of it, was never scanned.
func (d *PodDisk) unscanned() bool { return d.found.Load() == nil || d.pathsChanged.Load() }

// scan measures the pod, and says whether it was completed. Meanwhile what has been counted is a lower bound.
func (d *PodDisk) scan(r *podScan) bool {
	d.pathsChanged.Store(false)
	found := &podUsage{
		volumes: make([]stats.Volume, len(d.volumes)), logs: make([]stats.Volume, len(d.logs)), layers: make([]stats.Volume, len(d.layers)),
		open: slices.Clone(d.open), unlinked: d.unlinked, partial: true,
	}
	if before := d.found.Load(); before != nil {
		copy(found.volumes, before.volumes)
		copy(found.logs, before.logs)
		copy(found.layers, before.layers)
		found.files, found.own = before.files, before.own
	}
	r.show = func() {
		now := *found
		now.volumes, now.logs, now.layers, now.own = atLeast(d.volumes, now.volumes), atLeast(d.logs, now.logs), atLeast(d.layers, now.layers), d.own.atLeast(now.own)
		d.found.Store(&now)
	}
	var projects []uint32
	for i := range d.volumes {
		if d.volumes[i].place == (PodPath{}) {
			continue
		}
		r.at(d.volumes[i].place)
		project, used := quotaOf(d.volumes[i].place, projects)
		if project != 0 {
			projects, found.volumes[i] = append(projects, project), used
			continue
		}
		found.volumes[i] = r.measure(&d.volumes[i])
		found.volumes[i].Elsewhere = d.volumes[i].elsewhere(d.files.Root)
	}
	if r.full {
		d.scanProcesses(r, len(projects) > 0)
	}
	for i := range d.logs {
		d.logs[i].moveTo(d.logDir(i))
		found.logs[i] = r.measure(&d.logs[i])
		found.logs[i].Elsewhere = d.logs[i].elsewhere(d.files.Root)
		// The runtime's figures may be older than the request of a full scan.
		if r.full || !d.runtimeLayer(i).Used.IsKnown() {
			found.layers[i] = r.measure(&d.layers[i])
		} else {
			found.layers[i] = d.layers[i].volume()
		}
	}
	found.own = r.measure(&d.own)
	found.own.Elsewhere = d.own.elsewhere(d.files.Root)
	found.open = slices.Clone(d.open)
	found.unlinked = d.unlinked
	if r.at(d.files.Logs); d.files.Logs != (PodPath{}) {
		found.files = direct(d.files.Logs)
	}
	r.at(d.files.EtcHosts)
	if size, is := d.files.EtcHosts.fileSize(); is {
		found.files = found.files.Plus(stats.Volume{Used: stats.Known(size), Inodes: stats.Known(1)})
	}
	found.files.Time = time.Now()
	found.partial = d.layerless || d.own.lastFull.IsZero() && slices.ContainsFunc(d.files.Volumes, func(v PodPath) bool { return v != PodPath{} })
	for t := range d.trees {
		found.partial = found.partial || t.failed
	}
	if r.cancelled() {
		return false
	}
	d.found.Store(found)
	return true
}

// atLeast is the usage of trees with what the measurements that are not complete yet have counted.
func atLeast(trees []tree, found []stats.Volume) (all []stats.Volume) {
	for i := range trees {
		all = append(all, trees[i].atLeast(found[i]))
	}
	return all
}

// scanProcesses finds the writable layer that is the root of each container's
// processes, and the deleted files that they have open. A project quota already counts
// the deleted files of its volume.
func (d *PodDisk) scanProcesses(r *podScan, quota bool) {
	ask := d.processes.Load()
	if ask == nil {
		return
	}
	processes := *ask
	pids, err := processes("", nil)
	if err != nil {
		return // it has ended
	}
	now := time.Now()
	r.at(PodPath{Root: "/proc"})
	files := newOpenFiles(r.overlays, d.files.Volumes)
	open := files.unlinked(pids)
	var st unix.Statx_t
	d.unlinked, d.layerless = stats.Volume{}, false
	if !quota && statAt(unix.AT_FDCWD, nameZ(d.files.Root), 0, &st) == 0 {
		d.unlinked = open[device(&st)]
		d.unlinked.Time = now
	}
	for i, name := range d.files.Containers {
		pids, err = processes(name, pids[:0])
		if err != nil || len(pids) == 0 {
			continue // its layer keeps the last figures
		}
		root := rootDevice(pids[0])
		place, is := r.overlays[root]
		if !is { // it runs in the root of the host, or on snapshots of a filesystem such as zfs
			d.layerless = d.layerless || root != 0 && root != rootDevice(os.Getpid()) && !d.runtimeLayer(i).Used.IsKnown()
			continue
		}
		d.layers[i].moveTo(place)
		d.open[i] = open[root]
		d.open[i].Time = now
	}
}
