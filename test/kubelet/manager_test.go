package kubelet_test

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/evictd/evictd/eviction/config"
	"github.com/evictd/evictd/eviction/simulate"
	"github.com/evictd/evictd/test/controlplane/apiserver"
)

// The lines that test/controlplane/parts/cmd/kubelet-eviction reads and writes: a question each,
// an answer each.
type (
	question struct {
		Inputs *inputs // nil: that of the question before
		view
	}
	// view is what the kubelet has of the inputs, up to the last pass that is asked for.
	view struct {
		Passes            int
		Runs              int         // 0: one, and the answers are of all passes; else the different ones of the last pass
		Signals           []string    // that have thresholds; nil for all
		Hidden            []types.UID // pods that are not active in the last pass
		NoStorageRequests bool        // of pods, in the last pass
	}
	inputs struct {
		Config                         config.EvictdConfiguration // its fields are of KubeletConfiguration
		DedicatedImageFs, SplitImageFs bool
		Pods                           []v1.Pod
		Passes                         []pass
	}
	pass struct {
		At        time.Time
		Signals   map[string]signal
		Freed     map[string]map[string]int64 // by "containers" and "images"; what is absent fails
		Active    []types.UID
		Stats     []statsapi.PodStats
		KillFails []types.UID
	}
	signal struct {
		Available, Capacity int64
		Time                metav1.Time
	}
	answer struct {
		Met        []simulate.Threshold // without kinds
		Conditions []string
		Reclaimed  []string
		Ranking    []string
		Evictions  []simulate.Eviction
	}
)

// manager is a running kubelet-eviction.
type manager struct{ *apiserver.Peer }

func start(t *testing.T) *manager { return &manager{apiserver.StartPeer(t, "kubelet-eviction")} }

// ask returns all answers.
func (m *manager) ask(q question) (answers []answer) {
	m.Ask(q, &answers)
	return answers
}

// epoch is the instant of 0s.
var epoch = time.Unix(1_000_000, 0).UTC()

// translate makes the inputs of a scenario. A pod that evictd evicts in a step is not active after it.
// The error is of what rows exclude, and of signals of one filesystem that were measured at different
// times.
func translate(f *simulate.File, steps []simulate.Step) (*inputs, error) {
	c := &f.Spec.Config
	fs := f.Spec.Node.Filesystems
	w := &inputs{Config: *c, DedicatedImageFs: fs == "imagefs" || fs == "split", SplitImageFs: fs == "split"}
	for signal, grace := range c.EvictionSoftGracePeriod {
		if hard := c.EvictionHard[signal]; grace == "0s" && !ofMemory(signal) && (hard != "" || c.EvictionHard == nil || c.MergeDefaultEvictionSettings != nil) {
			return nil, fmt.Errorf("%s has two hard thresholds", signal)
		}
	}
	var active []*v1.Pod
	sourceless := false
	add := func(pods []v1.Pod) {
		for i := range pods {
			pod := pods[i].DeepCopy()
			sourceless = sourceless || slices.ContainsFunc(pod.Spec.Volumes, func(v v1.Volume) bool { return v.VolumeSource == v1.VolumeSource{} })
			pod.Namespace = cmp.Or(pod.Namespace, v1.NamespaceDefault)
			pod.UID = uid(pod.Namespace + "/" + pod.Name)
			w.Pods = append(w.Pods, *pod)
			active = append(active, pod)
		}
	}
	add(f.Spec.Pods)
	usage, last := map[string]*simulate.FileUsage{}, map[string]metav1.Time{}
	for i := range f.Spec.Steps {
		s := &f.Spec.Steps[i]
		gone := slices.Clone(s.Remove)
		if i > 0 {
			for _, e := range steps[i-1].Evictions {
				gone = append(gone, e.Pod)
			}
		}
		active = slices.DeleteFunc(active, func(pod *v1.Pod) bool { return slices.Contains(gone, string(pod.UID)) })
		add(s.Add)
		maps.Copy(usage, s.Usage)
		p := pass{At: epoch.Add(s.At.Duration), Signals: map[string]signal{}, Freed: map[string]map[string]int64{}}
		for name, text := range s.Signals {
			p.Signals[name] = observe(text, p.At, last[name])
		}
		clear(last)
		for name := range p.Signals {
			last[name] = p.Signals[name].Time
			fs, _, _ := strings.Cut(name, ".")
			if both, is := p.Signals[fs+".inodesFree"]; is && !both.Time.Equal(&metav1.Time{Time: last[name].Time}) {
				return nil, fmt.Errorf("step %d: %s and its inodes are not of the same time", i, name)
			}
		}
		for name, freed := range map[string]map[string]resource.Quantity{"containers": s.NodeReclaim.Containers, "images": s.NodeReclaim.Images} {
			for signal, q := range freed {
				if p.Freed[name] == nil {
					p.Freed[name] = map[string]int64{}
				}
				p.Freed[name][signal] = q.Value()
			}
		}
		for _, name := range s.KillFails {
			p.KillFails = append(p.KillFails, uid(name))
		}
		for _, pod := range active {
			if pod.Status.Phase == v1.PodSucceeded || pod.Status.Phase == v1.PodFailed {
				continue
			}
			p.Active = append(p.Active, pod.UID)
			if u := usage[string(pod.UID)]; u != nil {
				p.Stats = append(p.Stats, podStats(pod, u))
			}
		}
		w.Passes = append(w.Passes, p)
	}
	if sourceless {
		return nil, errors.New("a volume has no source")
	}
	return w, nil
}

// uid is the UID that simulate gives to a pod without one.
func uid(name string) types.UID { return types.UID(name) }

// observe reads a signal of a step. Last is the time of its measurement in the step before.
func observe(text []byte, now time.Time, last metav1.Time) signal {
	var long simulate.FileSignal
	if err := json.Unmarshal(text, &long); err != nil {
		panic(err)
	}
	s := signal{Available: long.Available.Value(), Time: metav1.NewTime(now.Add(-long.Age.Duration))}
	if long.Capacity != nil {
		s.Capacity = long.Capacity.Value()
	}
	if long.Repeated && !last.IsZero() {
		s.Time = last
	}
	s.Capacity = max(s.Capacity, s.Available)
	return s
}

// podStats are the statistics as the kubelet's provider gives them.
func podStats(pod *v1.Pod, u *simulate.FileUsage) statsapi.PodStats {
	p := statsapi.PodStats{PodRef: statsapi.PodReference{Name: pod.Name, Namespace: pod.Namespace, UID: string(pod.UID)}}
	var held uint64
	fs := func(used, inodes *resource.Quantity) *statsapi.FsStats {
		f := &statsapi.FsStats{UsedBytes: value(used), InodesUsed: value(inodes)}
		if f.UsedBytes != nil {
			held += *f.UsedBytes
		}
		return f
	}
	memory := value(u.Memory)
	for _, c := range u.Containers {
		if u.Memory == nil && c.Memory != nil {
			sum := uint64(c.Memory.Value())
			if memory != nil {
				sum += *memory
			}
			memory = &sum
		}
	}
	if memory != nil {
		p.Memory = &statsapi.MemoryStats{WorkingSetBytes: memory}
	}
	p.ProcessStats = &statsapi.ProcessStats{ProcessCount: value(u.PIDs)}
	for _, name := range containers(pod) {
		if c, measured := u.Containers[name]; measured {
			p.Containers = append(p.Containers, statsapi.ContainerStats{
				Name: name, Memory: &statsapi.MemoryStats{WorkingSetBytes: value(c.Memory)},
				Rootfs: fs(c.Rootfs, c.RootfsInodes), Logs: fs(c.Logs, c.LogsInodes),
			})
		}
	}
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		used, measured := u.Volumes[v.Name]
		if !measured {
			continue
		}
		before := held
		stats := statsapi.VolumeStats{Name: v.Name, FsStats: *fs(used.Used, used.Inodes)}
		if ephemeral := v.ConfigMap != nil || v.EmptyDir != nil && v.EmptyDir.Medium == v1.StorageMediumDefault; !ephemeral {
			held = before
		}
		if stats.UsedBytes == nil { // the kubelet's provider always has it
			stats.UsedBytes = new(uint64)
		}
		p.VolumeStats = append(p.VolumeStats, stats)
	}
	p.EphemeralStorage = &statsapi.FsStats{UsedBytes: &held}
	return p
}

func value(q *resource.Quantity) *uint64 {
	if q == nil {
		return nil
	}
	n := uint64(q.Value())
	return &n
}
