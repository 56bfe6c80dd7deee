package nodetable

import (
	"slices"
	"sync"
	"weak"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// PodTemplate is the part of a digest that pods of a workload have in common. It is
// immutable.
type PodTemplate struct {
	Namespace   Symbol
	Priority    int32
	Requests    Requests
	Tolerations Tolerations
	// Nodes is nodeSelector and required node affinity; nil: any node.
	Nodes *NodeSelector
	// PreferredNodes are the preferred node affinity terms.
	PreferredNodes []WeightedNodes
	Spread         []SpreadConstraint
	// Affinity and the others are the inter-pod terms.
	Affinity, AntiAffinity                   []*Term
	PreferredAffinity, PreferredAntiAffinity []*Term
	// Companions matches the pods that all terms of Affinity match; nil: there are no
	// terms.
	Companions *Matcher
	Ports      []Port
	Claims     []Claim
	Disks      []Disk
	// Images are those of containers, init containers and image volumes with their
	// tags, one for each.
	Images []Symbol
	// Refused is why no node may be selected for the pod, which exceeds a bound or has a
	// value that is not known; empty: neither. On a node, what is beyond the bound does not
	// count.
	Refused string

	// shared is the object of the first pod without what differs between the pods; nil: the
	// template belongs to one pod.
	shared *v1.Pod
}

// podLabels are the labels of the pods of a label set.
type podLabels struct {
	Labels   Labels
	labelSet Symbol // see labelSetKey
	texts    map[string]string
}

func newPodLabels(pod *v1.Pod) *podLabels {
	labels := NewLabels(pod.Labels)
	return &podLabels{labels, Intern(string(appendLabelSetKey(nil, pod.Namespace, pod.Labels))), pod.Labels}
}

// Templates digests pods, such that those of a workload share one PodTemplate, and nodes.
// It keeps no template that no pod or node has. Any goroutine may call it.
type Templates struct {
	mu    sync.Mutex
	byKey map[string]weak.Pointer[PodTemplate]
	nodes map[string]weak.Pointer[nodeTemplate]
	sweep int // number of templates and label sets at which those without pods and nodes are removed
	sets  map[string]weak.Pointer[podLabels]
	// buffers
	key    []byte
	common v1.Pod
}

// NewTemplates makes an empty Templates.
func NewTemplates() *Templates {
	return &Templates{byKey: map[string]weak.Pointer[PodTemplate]{}, nodes: map[string]weak.Pointer[nodeTemplate]{}, sets: map[string]weak.Pointer[podLabels]{}}
}

// NewPod is the digest without the object for a pod that is on a node, unless something
// of the object is read for such a pod: Plain. Other pods are digested by NewPod.
func (t *Templates) NewPod(pod *v1.Pod) *Pod {
	if !Plain(pod) {
		return NewPod(pod)
	}
	p := t.share(pod)
	p.Object = p.shared
	return p
}

// NewPodWithObject is the digest with the object, for pods that are not Plain too. With devices, a
// PodGroup or a resize that is not possible a pod has a template of its own.
func (t *Templates) NewPodWithObject(pod *v1.Pod) *Pod {
	if !isCommon(pod) {
		return NewPod(pod)
	}
	return t.share(pod)
}

func (t *Templates) share(pod *v1.Pod) *Pod {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.inCommon(pod)
	return newPod(pod, t.template(), t.labels(pod))
}

// ShareObject has the object of a digest of Templates share its labels and its spec with the
// pods of the workload: mounts, the volumes on which no digest depends, and owners but the
// controller are dropped. The caller owns the object.
func (p *Pod) ShareObject() {
	if p.shared == nil || p.Object == p.shared {
		return
	}
	o, spec := p.Object, p.shared.Spec
	spec.NodeName, spec.Hostname = o.Spec.NodeName, o.Spec.Hostname
	o.Spec, o.Namespace, o.Labels, o.OwnerReferences = spec, p.shared.Namespace, p.texts, p.shared.OwnerReferences
}

// Plain reports whether a pod is on a node and nothing but its digest is read there: it
// is not being deleted, and has no devices, PodGroup or resize that is not possible.
func Plain(pod *v1.Pod) bool {
	return pod.Spec.NodeName != "" && pod.DeletionTimestamp == nil && isCommon(pod)
}

// isCommon reports whether the digest of a pod depends on nothing but inCommon and on what is
// in each pod's own part.
func isCommon(pod *v1.Pod) bool {
	return pod.Spec.SchedulingGroup == nil &&
		len(pod.Spec.ResourceClaims) == 0 && len(pod.Status.ResourceClaimStatuses) == 0 && pod.Status.ExtendedResourceClaimStatus == nil &&
		!slices.ContainsFunc(pod.Status.Conditions, func(c v1.PodCondition) bool { return c.Type == v1.PodResizePending })
}

// inCommon fills common with what a digest depends on, besides names, uid, labels and times.
// It shares parts with the pod.
func (t *Templates) inCommon(pod *v1.Pod) {
	common := &t.common
	containers, inits := common.Spec.Containers, common.Spec.InitContainers
	*common = v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace}, Spec: pod.Spec}
	spec := &common.Spec
	spec.NodeName, spec.Hostname = "", ""
	spec.Volumes = nil
	for i := range pod.Spec.Volumes {
		if v := &pod.Spec.Volumes[i]; v.Projected == nil && v.ConfigMap == nil && v.Secret == nil && v.EmptyDir == nil && v.DownwardAPI == nil && v.HostPath == nil {
			spec.Volumes = append(spec.Volumes, *v)
			if v.Ephemeral != nil { // the name of its claim has that of the pod
				common.Name = pod.Name
			}
		}
	}
	spec.InitContainers, spec.Containers = unmounted(inits, spec.InitContainers), unmounted(containers, spec.Containers)
	if controller := metav1.GetControllerOfNoCopy(pod); controller != nil {
		common.OwnerReferences = []metav1.OwnerReference{*controller}
	}
	if len(spec.TopologySpreadConstraints) > 0 {
		common.Labels = pod.Labels
	}
	status := &pod.Status
	common.Status = v1.PodStatus{
		QOSClass: status.QOSClass, Resources: status.Resources, AllocatedResources: status.AllocatedResources,
		InitContainerStatuses: allocated(status.InitContainerStatuses), ContainerStatuses: allocated(status.ContainerStatuses),
	}
}

// unmounted are containers without mounts, in a buffer.
func unmounted(buffer, containers []v1.Container) []v1.Container {
	buffer = append(buffer[:0], containers...)
	for i := range buffer {
		buffer[i].VolumeMounts = nil
	}
	return buffer
}

// allocated is what requests depend on.
func allocated(statuses []v1.ContainerStatus) (all []v1.ContainerStatus) {
	for i := range statuses {
		s := &statuses[i]
		all = append(all, v1.ContainerStatus{Name: s.Name, Resources: s.Resources, AllocatedResources: s.AllocatedResources})
	}
	return all
}

// template finds or makes the template of common.
func (t *Templates) template() *PodTemplate {
	size := t.common.Size()
	t.key = slices.Grow(t.key[:0], size)[:size]
	if _, err := t.common.MarshalToSizedBuffer(t.key); err != nil {
		return newSharedTemplate(t.common.DeepCopy())
	}
	if known := t.byKey[string(t.key)].Value(); known != nil {
		return known
	}
	template := newSharedTemplate(t.common.DeepCopy()) // keeps no part of the pod's object
	t.removeDead()
	t.byKey[string(t.key)] = weak.Make(template)
	return template
}

func newSharedTemplate(common *v1.Pod) *PodTemplate {
	template := newPodTemplate(common, NewLabels(common.Labels))
	template.shared = common
	return template
}

// labels are those of a pod, shared by the pods with the same label set.
func (t *Templates) labels(pod *v1.Pod) *podLabels {
	t.key = appendLabelSetKey(t.key[:0], pod.Namespace, pod.Labels)
	if known := t.sets[string(t.key)].Value(); known != nil {
		return known
	}
	l := newPodLabels(pod)
	t.removeDead()
	t.sets[l.labelSet.Value()] = weak.Make(l)
	return l
}

// removeDead removes what no pod and node has, when there is twice as much as last time.
func (t *Templates) removeDead() {
	if t.len() < t.sweep {
		return
	}
	removeDead(t.byKey)
	removeDead(t.nodes)
	removeDead(t.sets)
	t.sweep = 2*t.len() + 64
}

func (t *Templates) len() int { return len(t.byKey) + len(t.nodes) + len(t.sets) }

func removeDead[K comparable, V any](m map[K]weak.Pointer[V]) {
	for key, value := range m {
		if value.Value() == nil {
			delete(m, key)
		}
	}
}

// OwnObject is the object of the pod. For a digest of Templates it is made, without
// annotations, finalizers, conditions and mounts.
func (p *Pod) OwnObject() *v1.Pod {
	if p.Object != p.shared {
		return p.Object
	}
	object := *p.Object
	object.Name, object.UID, object.Generation = p.Name, p.UID, p.generation
	object.Labels = p.texts
	object.CreationTimestamp = metav1.Time{Time: p.Created}
	object.Spec.NodeName = p.Node.Value()
	if !p.Started.IsZero() {
		object.Status.StartTime = &metav1.Time{Time: p.Started}
	}
	return &object
}
