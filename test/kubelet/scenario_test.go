package kubelet_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evictd/evictd/eviction/config"
	"github.com/evictd/evictd/eviction/simulate"
)

const (
	// units are the parts in which capacities, thresholds and amounts are counted, so that
	// equal amounts are frequent.
	units = 64
	// mostPods are in a scenario: as many as sort.Sort leaves in their order where they are equal.
	mostPods = 12
)

// unit is a part of a signal's capacity; so large for containerfs that a threshold copied to it stays below its capacity (M.185).
var unit = map[string]int64{
	"memory.available": 64 << 20, "allocatableMemory.available": 48 << 20, "pid.available": 512,
	"nodefs.available": 1 << 28, "imagefs.available": 1 << 29, "containerfs.available": 3 << 27,
	"nodefs.inodesFree": 1000, "imagefs.inodesFree": 1024, "containerfs.inodesFree": 999,
}

// signals are in the order in which evictd acts on them.
var signals = []string{
	"memory.available", "allocatableMemory.available", "nodefs.available", "nodefs.inodesFree", "imagefs.available",
	"imagefs.inodesFree", "containerfs.available", "containerfs.inodesFree", "pid.available",
}

// maker draws a random scenario.
type maker struct {
	*rand.Rand
	file      *simulate.File
	names     []string       // of all pods so far
	pods      []v1.Pod       // the same
	available map[string]int // units of each signal
}

func (m *maker) chance(percent int) bool { return m.IntN(100) < percent }

func pick[T any](m *maker, options ...T) T { return options[m.IntN(len(options))] }

func quantity(n int64) *resource.Quantity { return resource.NewQuantity(n, resource.BinarySI) }

// randomScenario is a scenario that follows from the seed alone.
func randomScenario(seed uint64) *simulate.File {
	m := &maker{Rand: rand.New(rand.NewPCG(seed, 0)), file: &simulate.File{}, available: map[string]int{}}
	m.file.APIVersion, m.file.Kind = config.APIVersion, simulate.Kind
	m.file.Metadata.Name = fmt.Sprintf("seed-%d", seed)
	spec := &m.file.Spec
	spec.Node.Name = "node"
	spec.Node.Filesystems = pick(m, "shared", "imagefs", "split")
	spec.Node.Capacity = v1.ResourceList{v1.ResourceMemory: *quantity(units * unit["memory.available"]), "pid": *quantity(units * unit["pid.available"])}
	m.thresholds(&spec.Config)
	for range 1 + m.IntN(8) {
		spec.Pods = append(spec.Pods, m.pod())
	}
	at, interval := time.Duration(0), pick(m, 10, 10, 1+m.IntN(40))
	for range 5 + m.IntN(36) {
		spec.Steps = append(spec.Steps, m.step(at))
		at += time.Duration(pick(m, interval, interval, interval, 1+m.IntN(90))) * time.Second
	}
	return m.file
}

func (m *maker) thresholds(c *config.EvictdConfiguration) {
	maps := []*map[string]string{&c.EvictionHard, &c.EvictionSoft, &c.EvictionSoftGracePeriod, &c.EvictionMinimumReclaim}
	for _, m := range maps {
		*m = map[string]string{}
	}
	defaults := m.chance(10)
	for _, s := range signals {
		likely := 45
		if strings.HasPrefix(s, "containerfs") {
			likely = 5
		}
		hard := m.chance(likely)
		if hard {
			c.EvictionHard[s] = m.value(s, 1+m.IntN(16))
		}
		if m.chance(likely) {
			c.EvictionSoft[s] = m.value(s, 1+m.IntN(24))
			c.EvictionSoftGracePeriod[s] = pick(m, "5s", "10s", "20s", "35s", "1m")
			if (ofMemory(s) || !hard && !defaults) && m.chance(15) {
				c.EvictionSoftGracePeriod[s] = "0s"
			}
		}
		if m.chance(30) {
			c.EvictionMinimumReclaim[s] = pick(m, "0", m.value(s, m.IntN(8)+1), "150%")
		}
	}
	merge, isolation := true, m.chance(75)
	switch {
	case defaults && m.chance(50):
		c.EvictionHard = nil
	case defaults:
		c.MergeDefaultEvictionSettings = &merge
	}
	c.LocalStorageCapacityIsolation = &isolation
	c.EvictionMaxPodGracePeriod = pick[int32](m, 0, 1, 25, 600)
	c.EvictionPressureTransitionPeriod.Duration = pick(m, 0, time.Second, 20*time.Second, time.Minute, 5*time.Minute)
	if m.chance(25) {
		c.EnforceNodeAllocatable = []string{"none"}
	}
}

// value is an amount of a signal in one of the forms that a configuration may have.
func (m *maker) value(signal string, n int) string {
	amount := unit[signal] * int64(n)
	return pick(m,
		quantity(amount).String(), quantity(amount).String(),
		strconv.FormatInt(amount+pick[int64](m, -1, 0, 1), 10),
		resource.NewQuantity(amount, resource.DecimalSI).String(),
		pick(m, "5%", "10%", "12.5%", "15%", "25%", "33.3%"))
}

// podName is the namespace and name of the nth pod: names are in the order of appearance.
func podName(n int) string { return fmt.Sprintf("default/p%02d", n) }

func (m *maker) pod() v1.Pod {
	m.names = append(m.names, podName(len(m.names)))
	namespace, name, _ := strings.Cut(m.names[len(m.names)-1], "/")
	pod := v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace}}
	spec := &pod.Spec
	if m.chance(60) {
		priority := pick[int32](m, 0, 0, 10, 10, -5, 1000, 1_999_999_999, 2_000_000_000)
		spec.Priority = &priority
	}
	if m.chance(70) {
		grace := pick[int64](m, 0, 1, 7, 30, 100)
		spec.TerminationGracePeriodSeconds = &grace
	}
	if m.chance(12) {
		pod.Annotations = pick(m, map[string]string{v1.MirrorPodAnnotationKey: "x"}, map[string]string{"kubernetes.io/config.source": "api"},
			map[string]string{"kubernetes.io/config.source": "file"}, map[string]string{"kubernetes.io/config.source": ""})
	}
	pod.Status.Phase = pick(m, v1.PodRunning, v1.PodRunning, v1.PodRunning, v1.PodRunning, v1.PodRunning, v1.PodPending, v1.PodSucceeded, v1.PodFailed, "")
	if m.chance(20) {
		r := m.resources(v1.ResourceCPU, v1.ResourceMemory)
		spec.Resources = &r
	}
	if m.chance(10) {
		spec.Overhead = v1.ResourceList{v1.ResourceMemory: *quantity(1 << 26), v1.ResourceEphemeralStorage: *quantity(1 << 26)}
	}
	all := []v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory, v1.ResourceEphemeralStorage}
	if m.chance(25) {
		all = nil
	}
	for i := range m.IntN(5) - 2 {
		c := v1.Container{Name: fmt.Sprint("i", i), Resources: m.resources(all...)}
		if always := v1.ContainerRestartPolicyAlways; m.chance(50) {
			c.RestartPolicy = &always
		}
		spec.InitContainers = append(spec.InitContainers, c)
	}
	for i := range 1 + m.IntN(3) {
		spec.Containers = append(spec.Containers, v1.Container{Name: fmt.Sprint("c", i), Resources: m.resources(all...)})
	}
	if m.chance(5) {
		spec.EphemeralContainers = []v1.EphemeralContainer{{EphemeralContainerCommon: v1.EphemeralContainerCommon{Name: "e"}}}
	}
	for i := range m.IntN(4) {
		spec.Volumes = append(spec.Volumes, v1.Volume{Name: fmt.Sprint("v", i), VolumeSource: m.volume()})
	}
	m.pods = append(m.pods, pod)
	return pod
}

func (m *maker) volume() v1.VolumeSource {
	emptyDir := func(medium v1.StorageMedium) v1.VolumeSource {
		dir := &v1.EmptyDirVolumeSource{Medium: medium}
		if m.chance(40) {
			dir.SizeLimit = quantity(int64(m.IntN(8)) << 26)
		}
		return v1.VolumeSource{EmptyDir: dir}
	}
	return pick(m,
		emptyDir(v1.StorageMediumDefault), emptyDir(v1.StorageMediumDefault), emptyDir(v1.StorageMediumMemory), emptyDir(v1.StorageMediumHugePages),
		v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{}}, v1.VolumeSource{Secret: &v1.SecretVolumeSource{}},
		v1.VolumeSource{HostPath: &v1.HostPathVolumeSource{Path: "/x"}})
}

// resources draws requests and limits.
func (m *maker) resources(names ...v1.ResourceName) (r v1.ResourceRequirements) {
	set := func(list *v1.ResourceList, name v1.ResourceName, n int) {
		if *list == nil {
			*list = v1.ResourceList{}
		}
		if (*list)[name] = *quantity(int64(n) << 26); name == v1.ResourceCPU {
			(*list)[name] = *resource.NewMilliQuantity(int64(n)*100, resource.DecimalSI)
		}
	}
	for _, name := range names {
		request := m.IntN(8)
		if m.chance(45) {
			set(&r.Requests, name, request)
		}
		if m.chance(25) {
			set(&r.Limits, name, request+m.IntN(4))
		}
	}
	return r
}

func (m *maker) step(at time.Duration) simulate.FileStep {
	s := simulate.FileStep{At: metav1.Duration{Duration: at}, Signals: map[string]json.RawMessage{}, Usage: map[string]*simulate.FileUsage{}}
	if at > 0 && m.chance(5) {
		s.Remove = append(s.Remove, pick(m, m.names...))
	}
	if at > 0 && len(m.names) < mostPods && m.chance(20) {
		s.Add = append(s.Add, m.pod())
	}
	ages := map[string]*simulate.FileSignal{} // by filesystem, or else by signal; nil is not measured
	for _, signal := range signals {
		of := signal
		if fs, _, _ := strings.Cut(signal, "."); !ofMemory(signal) {
			of = fs
		}
		if _, drawn := ages[of]; !drawn {
			ages[of] = m.age()
		}
		if age := ages[of]; age != nil {
			s.Signals[signal] = m.signal(signal, *age)
		}
	}
	for i, name := range m.names {
		switch {
		case m.chance(2):
			s.Usage[name] = nil
		case at == 0 || m.chance(35):
			s.Usage[name] = m.usage(&m.pods[i])
		}
		if m.chance(4) {
			s.KillFails = append(s.KillFails, name)
		}
	}
	s.NodeReclaim = m.reclaim()
	return s
}

// age is how old a measurement is; nil where there is none.
func (m *maker) age() *simulate.FileSignal {
	if m.chance(4) {
		return nil
	}
	s := &simulate.FileSignal{Repeated: m.chance(6)}
	if m.chance(8) {
		s.Age.Duration = time.Duration(m.IntN(45)) * time.Second
	}
	return s
}

// signal is a walk with jumps.
func (m *maker) signal(name string, s simulate.FileSignal) json.RawMessage {
	n, known := m.available[name]
	switch {
	case !known || m.chance(12):
		n = m.IntN(units + 1)
	case m.chance(70):
		n = max(0, min(units, n+m.IntN(13)-6))
	}
	m.available[name] = n
	available := max(0, min(units*unit[name], int64(n)*unit[name]+pick[int64](m, 0, 0, 0, 1, -1)))
	s.Available, s.Capacity = quantity(available), quantity(units*unit[name])
	return encode(s)
}

// some is an amount of a few units, or at times unknown.
func (m *maker) some(unit int64) *resource.Quantity {
	if m.chance(8) {
		return nil
	}
	return quantity(int64(m.IntN(10)) * unit / pick[int64](m, 1, 1, 3))
}

func (m *maker) usage(pod *v1.Pod) *simulate.FileUsage {
	u := &simulate.FileUsage{PIDs: m.some(1), Containers: map[string]simulate.FileContainerUsage{}, Volumes: map[string]simulate.FileVolumeUsage{}}
	if u.PIDs != nil && u.PIDs.IsZero() {
		u.PIDs = quantity(1)
	}
	if m.chance(75) {
		u.Memory = m.some(1 << 27)
	}
	disk := pick(m, 0, 100, 100, 100) // some pods hold nothing
	for _, name := range containers(pod) {
		if m.chance(8) {
			continue
		}
		c := simulate.FileContainerUsage{Memory: m.some(1 << 26)}
		if m.chance(disk) {
			c.Rootfs, c.RootfsInodes, c.Logs, c.LogsInodes = m.some(1<<26), m.some(10), m.some(1<<25), m.some(1)
		}
		u.Containers[name] = c
	}
	for i := range pod.Spec.Volumes {
		if m.chance(min(80, disk)) {
			u.Volumes[pod.Spec.Volumes[i].Name] = simulate.FileVolumeUsage{Used: quantity(int64(m.IntN(9)) << 26), Inodes: m.some(10)}
		}
	}
	return u
}

// reclaim is what dead containers and unused images free on the disks that have them; nothing
// where their removal fails.
func (m *maker) reclaim() (r simulate.FileReclaim) {
	frees := func(filesystems ...string) map[string]resource.Quantity {
		freed := map[string]resource.Quantity{}
		for _, fs := range filesystems {
			for _, signal := range []string{fs + ".available", fs + ".inodesFree"} {
				freed[signal] = *quantity(int64(m.IntN(20)) * unit[signal])
			}
		}
		return freed
	}
	on := layouts[m.file.Spec.Node.Filesystems]
	if m.chance(60) {
		r.Containers = frees(on.containers...)
	}
	if m.chance(60) {
		r.Images = frees(on.images...)
	}
	return r
}

// containers are the names of a pod's containers in the order of the manifest, init containers
// before the others.
func containers(pod *v1.Pod) (names []string) {
	for i := range pod.Spec.InitContainers {
		names = append(names, pod.Spec.InitContainers[i].Name)
	}
	for i := range pod.Spec.Containers {
		names = append(names, pod.Spec.Containers[i].Name)
	}
	for i := range pod.Spec.EphemeralContainers {
		names = append(names, pod.Spec.EphemeralContainers[i].Name)
	}
	return names
}
