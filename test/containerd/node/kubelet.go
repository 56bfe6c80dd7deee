package node

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"maps"
	"path/filepath"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/kubelet/pkg/types"

	"github.com/evictd/evictd/cgroup"
	"github.com/evictd/evictd/oom"
	"github.com/evictd/evictd/stats"
)

// Spec is what a pod of one container asks for; zero values ask for nothing.
type Spec struct {
	Image     string
	Requests  map[v1.ResourceName]string
	Limits    map[v1.ResourceName]string
	Priority  int32
	Grace     int64             // seconds
	EmptyDirs map[string]string // size limits, by the volume's name; mounted at /name
	Orders    []string          // carried out before any that Do gives
	Metadata  metav1.ObjectMeta
}

func (s Spec) manifest(name string) *v1.Pod {
	container := v1.Container{Name: "c", Image: s.Image, Args: s.Orders, Resources: v1.ResourceRequirements{Requests: list(s.Requests), Limits: list(s.Limits)}}
	m := &v1.Pod{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: s.Metadata,
		Spec:       v1.PodSpec{Priority: &s.Priority},
	}
	m.Name = name
	if s.Grace > 0 {
		m.Spec.TerminationGracePeriodSeconds = &s.Grace
	}
	for volume, size := range s.EmptyDirs {
		source := &v1.EmptyDirVolumeSource{}
		if size != "" {
			source.SizeLimit = new(resource.MustParse(size))
		}
		m.Spec.Volumes = append(m.Spec.Volumes, v1.Volume{Name: volume, VolumeSource: v1.VolumeSource{EmptyDir: source}})
		container.VolumeMounts = append(container.VolumeMounts, v1.VolumeMount{Name: volume, MountPath: "/" + volume})
	}
	m.Spec.Containers = []v1.Container{container}
	return m
}

func list(amounts map[v1.ResourceName]string) v1.ResourceList {
	if len(amounts) == 0 {
		return nil
	}
	l := v1.ResourceList{}
	for name, amount := range amounts {
		l[name] = resource.MustParse(amount)
	}
	return l
}

// podLimits bounds the memory of a pod's group where every container is bounded
// (kubelet, ResourceConfigForPod).
func podLimits(m *v1.Pod) cgroup.Limits {
	var sum int64
	for _, c := range m.Spec.Containers {
		limit := c.Resources.Limits.Memory().Value()
		if limit == 0 {
			return cgroup.Limits{}
		}
		sum += limit
	}
	return cgroup.Limits{Memory: stats.Known(sum)}
}

// directory is what the kubelet keeps of the pod.
func (p *Pod) directory() string { return filepath.Join(p.n.Kubelet, "pods", string(p.UID)) }

// Volume is the directory of one of the pod's emptyDirs.
func (p *Pod) Volume(name string) string {
	return filepath.Join(p.directory(), "volumes", "kubernetes.io~empty-dir", name)
}

// logDirectory is named by the kubelet's BuildPodLogsDirectory.
func (p *Pod) logDirectory() string {
	return filepath.Join(p.n.Logs, strings.Join([]string{p.Namespace, p.Name, string(p.UID)}, "_"))
}

// sandboxConfig is the kubelet's generatePodSandboxConfig, in the network of the
// host.
func (p *Pod) sandboxConfig() *runtime.PodSandboxConfig {
	return &runtime.PodSandboxConfig{
		Metadata:     &runtime.PodSandboxMetadata{Name: p.Name, Namespace: p.Namespace, Uid: string(p.UID)},
		Labels:       p.labels(),
		Annotations:  p.Annotations,
		LogDirectory: p.logDirectory(),
		Linux: &runtime.LinuxPodSandboxConfig{
			CgroupParent:    p.Group,
			SecurityContext: &runtime.LinuxSandboxSecurityContext{NamespaceOptions: namespaces()},
		},
	}
}

func namespaces() *runtime.NamespaceOption {
	return &runtime.NamespaceOption{Network: runtime.NamespaceMode_NODE, Pid: runtime.NamespaceMode_CONTAINER, Ipc: runtime.NamespaceMode_POD}
}

func (p *Pod) labels() map[string]string {
	labels := map[string]string{}
	maps.Copy(labels, p.Labels)
	labels[types.KubernetesPodNameLabel] = p.Name
	labels[types.KubernetesPodNamespaceLabel] = p.Namespace
	labels[types.KubernetesPodUIDLabel] = string(p.UID)
	return labels
}

// containerConfig is the kubelet's generateContainerConfig.
func (p *Pod) containerConfig(c *v1.Container, attempt int) *runtime.ContainerConfig {
	labels := p.labels()
	for name := range p.Labels { // of the sandbox only
		delete(labels, name)
	}
	labels[types.KubernetesContainerNameLabel] = c.Name
	image := c.Image
	if image == "" {
		image = Workload
	}
	config := &runtime.ContainerConfig{
		Metadata:    &runtime.ContainerMetadata{Name: c.Name, Attempt: uint32(attempt)},
		Image:       &runtime.ImageSpec{Image: image, UserSpecifiedImage: image},
		Command:     c.Command,
		Args:        c.Args,
		Envs:        []*runtime.KeyValue{{Key: "ORDERS", Value: []byte(p.orders(c.Name))}},
		Labels:      labels,
		Annotations: p.annotations(c, attempt),
		LogPath:     filepath.Join(c.Name, strconv.Itoa(attempt)+".log"),
		Linux: &runtime.LinuxContainerConfig{
			Resources:       p.resources(c),
			SecurityContext: &runtime.LinuxContainerSecurityContext{NamespaceOptions: namespaces()},
		},
	}
	for _, mount := range c.VolumeMounts {
		config.Mounts = append(config.Mounts, &runtime.Mount{ContainerPath: mount.MountPath, HostPath: p.Volume(mount.Name)})
	}
	return config
}

// annotations are those of the kubelet's newContainerAnnotations.
func (p *Pod) annotations(c *v1.Container, attempt int) map[string]string {
	definition := fnv.New32a()
	must(json.NewEncoder(definition).Encode(c))
	annotations := map[string]string{
		"io.kubernetes.container.hash":                     fmt.Sprintf("%x", definition.Sum32()),
		"io.kubernetes.container.restartCount":             strconv.Itoa(attempt),
		"io.kubernetes.container.terminationMessagePath":   c.TerminationMessagePath,
		"io.kubernetes.container.terminationMessagePolicy": string(c.TerminationMessagePolicy),
	}
	seconds := func(name string, value *int64) {
		if value != nil {
			annotations[name] = strconv.FormatInt(*value, 10)
		}
	}
	seconds("io.kubernetes.pod.deletionGracePeriod", p.DeletionGracePeriodSeconds)
	seconds("io.kubernetes.pod.terminationGracePeriod", p.Spec.TerminationGracePeriodSeconds)
	if c.Lifecycle != nil && c.Lifecycle.PreStop != nil {
		annotations["io.kubernetes.container.preStopHandler"] = string(text(c.Lifecycle.PreStop))
	}
	if len(c.Ports) > 0 {
		annotations["io.kubernetes.container.ports"] = string(text(c.Ports))
	}
	return annotations
}

// Units of CPU (kubelet, pkg/kubelet/cm/helpers_linux.go).
const (
	cpuPeriod = 100_000 // microseconds
	minShares = 2
)

// resources is the kubelet's generateLinuxContainerResources.
func (p *Pod) resources(c *v1.Container) *runtime.LinuxContainerResources {
	request, limit := c.Resources.Requests.Cpu().MilliValue(), c.Resources.Limits.Cpu().MilliValue()
	if request == 0 {
		request = limit
	}
	r := &runtime.LinuxContainerResources{
		CpuShares:          max(request*1024/1000, minShares),
		MemoryLimitInBytes: c.Resources.Limits.Memory().Value(),
	}
	if limit > 0 {
		r.CpuPeriod, r.CpuQuota = cpuPeriod, limit*cpuPeriod/1000
	}
	for _, score := range oom.Scores(p.Pod, p.n.Memory) {
		if score.Name == c.Name {
			r.OomScoreAdj = int64(score.ScoreAdj)
		}
	}
	return r
}
