package pods

import (
	"maps"
	"path"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evictd/evictd/cri/inventory"
)

// RuncNamespace is that of pods made of containers that only runc has.
const RuncNamespace = "runc"

// RuncPod is a pod made of containers that runc runs: of one without a sandbox, which
// is a pod of its own, or of all those of a sandbox.
type RuncPod struct {
	*v1.Pod
	// Cgroup is the directory of the pod's group, and Children the names of the
	// containers' below it, "." for a container that has the pod's.
	Cgroup   string
	Children map[string]string
}

// RuncPods makes pods of the containers that runc runs, in the order of their uids. A
// pod that stays the same stays the same value. Limits are those of the containers,
// and so, as an API server would have it, are requests that are not stated by a
// memory reservation.
func (e *Estimator) RuncPods(containers []inventory.RuncContainer) []RuncPod {
	grouped := map[types.UID]*RuncPod{}
	for i := range containers {
		c := &containers[i]
		if c.Cgroup == "" || c.Sandbox != "" && c.Container == "" { // the sandbox's own
			continue
		}
		b := runcPodOf(c)
		e.setPriority(b.Pod)
		if grouped[b.UID] == nil {
			grouped[b.UID] = b
			continue
		}
		first := grouped[b.UID]
		first.Spec.Containers = append(first.Spec.Containers, b.Spec.Containers...)
		maps.Copy(first.Children, b.Children)
	}
	made := map[types.UID]*v1.Pod{}
	var all []RuncPod
	for _, uid := range slices.Sorted(maps.Keys(grouped)) {
		b := grouped[uid]
		if before := e.runc[uid]; before != nil && equality.Semantic.DeepEqual(before, b.Pod) {
			b.Pod = before
		}
		made[uid] = b.Pod
		all = append(all, *b)
	}
	e.runc = made
	return all
}

// runcPodOf makes a pod of one container.
func runcPodOf(c *inventory.RuncContainer) *RuncPod {
	b := &RuncPod{Cgroup: c.Cgroup, Pod: &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: RuncNamespace, Name: c.ID, UID: types.UID("runc-" + c.ID)},
		Status:     v1.PodStatus{Phase: v1.PodRunning},
		Spec:       v1.PodSpec{RestartPolicy: v1.RestartPolicyNever}, // as of estimate
	}}
	name, child := c.ID, "."
	if c.Sandbox != "" {
		b.Cgroup, name, child = path.Dir(c.Cgroup), c.Container, path.Base(c.Cgroup)
		b.Namespace, b.Name, b.UID = c.Namespace, c.Name, types.UID(c.UID)
		if b.UID == "" {
			b.UID = types.UID("runc-" + c.Sandbox)
		}
	}
	r := v1.ResourceRequirements{Limits: v1.ResourceList{}, Requests: v1.ResourceList{}}
	if c.MemoryLimit > 0 {
		r.Limits[v1.ResourceMemory] = *resource.NewQuantity(c.MemoryLimit, resource.BinarySI)
	}
	if c.MemoryReservation > 0 {
		r.Requests[v1.ResourceMemory] = *resource.NewQuantity(c.MemoryReservation, resource.BinarySI)
	}
	if c.CPUQuota > 0 && c.CPUPeriod > 0 {
		r.Limits[v1.ResourceCPU] = *resource.NewMilliQuantity(c.CPUQuota*1000/int64(c.CPUPeriod), resource.DecimalSI)
	}
	b.Spec.Containers = []v1.Container{{Name: name, Resources: r}}
	b.Children = map[string]string{name: child}
	return b
}
