package pods

import (
	"cmp"
	"maps"
	"path"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evictd/evictd/cri/inventory"
	"github.com/evictd/evictd/internal/podspec"
)

// Scores that the kubelet gives a container by its class
// (pkg/kubelet/qos).
const (
	guaranteedScore = -997 // of node-critical pods too, whatever their class
	bestEffortScore = 1000
)

// RuntimePod is a pod as the container runtime has it.
type RuntimePod struct {
	Sandboxes  []*inventory.Sandbox   // the newest first
	Containers []*inventory.Container // of all of them; of one name the newest first
}

// Alive says whether anything of the pod runs, or is about to.
func (r *RuntimePod) Alive() bool {
	return slices.ContainsFunc(r.Sandboxes, func(s *inventory.Sandbox) bool { return s.Ready }) ||
		slices.ContainsFunc(r.Containers, alive)
}

func alive(c *inventory.Container) bool {
	return c.State == inventory.ContainerRunning || c.State == inventory.ContainerCreated
}

// Current is the newest container of a name; nil without one.
func (r *RuntimePod) Current(name string) *inventory.Container {
	for _, c := range r.Containers {
		if c.Name == name {
			return c
		}
	}
	return nil
}

// Cgroup is the pod's as the kubelet gave it to the runtime: a path from the root of the
// hierarchy, or "".
func (r *RuntimePod) Cgroup() string {
	cgroup := r.Sandboxes[0].Cgroup
	if !strings.HasSuffix(cgroup, ".slice") || strings.Contains(cgroup, "/") {
		return cgroup
	}
	// systemd.slice(5): a-b.slice lies in a.slice.
	whole, name := "", ""
	for part := range strings.SplitSeq(strings.TrimSuffix(cgroup, ".slice"), "-") {
		name += part
		whole += "/" + name + ".slice"
		name += "-"
	}
	return whole
}

// group gathers what the runtime has by the uid of the pod.
func group(i *inventory.Snapshot) map[types.UID]*RuntimePod {
	pods, bySandbox := map[types.UID]*RuntimePod{}, map[string]*RuntimePod{}
	for s := range i.Sandboxes {
		sandbox := &i.Sandboxes[s]
		if sandbox.UID == "" || sandbox.Name == "" {
			continue
		}
		if pods[sandbox.UID] == nil {
			pods[sandbox.UID] = &RuntimePod{}
		}
		pod := pods[sandbox.UID]
		pod.Sandboxes = append(pod.Sandboxes, sandbox)
		bySandbox[sandbox.ID] = pod
	}
	for c := range i.Containers {
		if pod := bySandbox[i.Containers[c].Sandbox]; pod != nil {
			pod.Containers = append(pod.Containers, &i.Containers[c])
		}
	}
	for _, pod := range pods {
		slices.SortStableFunc(pod.Sandboxes, func(a, b *inventory.Sandbox) int {
			return cmp.Or(cmp.Compare(b.Attempt, a.Attempt), b.Created.Compare(a.Created))
		})
		slices.SortStableFunc(pod.Containers, func(a, b *inventory.Container) int {
			return cmp.Or(cmp.Compare(a.Name, b.Name), b.Created.Compare(a.Created))
		})
	}
	return pods
}

// Estimator makes pods of what only the runtime has. It
// keeps what it made, so that a pod that stays the same stays the same value.
type Estimator struct {
	// Capacity is the node's memory, bytes, which scores are shares of.
	Capacity int64
	// Priorities are those that the API server's pods were last known to have.
	Priorities map[types.UID]int32
	// Unlisted says that the API server has not listed the node's pods yet: those of
	// kube-system whose priority is not known count as critical.
	Unlisted bool

	made, runc map[types.UID]*v1.Pod
}

// Match finds the pods in what the runtime has, and adds those it has alone:
// what they request is estimated. Joined is by pod; all is in the order of
// namespace and name.
func (e *Estimator) Match(known []*v1.Pod, has *inventory.Snapshot, node string) (all []*v1.Pod, joined map[*v1.Pod]*RuntimePod) {
	joined = map[*v1.Pod]*RuntimePod{}
	if has == nil {
		return known, joined
	}
	left := group(has)
	byName := map[string]types.UID{}
	for uid, r := range left {
		if s := r.Sandboxes[0]; r.Alive() {
			byName[s.Namespace+"/"+s.Name] = uid
		}
	}
	for _, names := range []func(*v1.Pod) []types.UID{ // the author of a pod writes its annotations: they prove nothing of one that is known
		func(pod *v1.Pod) []types.UID { return []types.UID{pod.UID} },
		func(pod *v1.Pod) []types.UID { return aliases(pod, byName, node) },
	} {
		for _, pod := range known {
			for _, uid := range names(pod) {
				if left[uid] != nil && joined[pod] == nil {
					joined[pod] = left[uid]
					delete(left, uid)
				}
			}
		}
	}
	made := map[types.UID]*v1.Pod{}
	all = slices.Clone(known)
	for _, uid := range slices.Sorted(maps.Keys(left)) {
		r := left[uid]
		if !r.Alive() {
			continue
		}
		pod := e.estimate(r)
		if before := e.made[uid]; before != nil && equality.Semantic.DeepEqual(before, pod) {
			pod = before
		}
		made[uid], joined[pod] = pod, r
		all = append(all, pod)
	}
	e.made = made
	slices.SortStableFunc(all, compareNames)
	return all, joined
}

// Estimated says whether the pod was made here by the last Match or RuncPods.
func (e *Estimator) Estimated(pod *v1.Pod) bool {
	return pod != nil && (e.made[pod.UID] == pod || e.runc[pod.UID] == pod)
}

// aliases are the uids beside its own that a pod may have in the runtime. By its
// name only one is known that was given no uid: of two pods of a name both may run.
func aliases(pod *v1.Pod, byName map[string]types.UID, node string) []types.UID {
	uids := []types.UID{types.UID(pod.Annotations[configHashAnnotation]), types.UID(pod.Annotations[v1.MirrorPodAnnotationKey])}
	if !isElement(pod.UID) {
		uids = append(uids, byName[fullName(pod)], byName[fullName(pod)+"-"+node])
	}
	return uids
}

// estimate makes a pod of what runs of it.
func (e *Estimator) estimate(r *RuntimePod) *v1.Pod {
	sandbox := r.Sandboxes[0]
	pod := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: sandbox.Namespace, Name: sandbox.Name, UID: sandbox.UID, Annotations: maps.Clone(sandbox.Annotations)},
		Status:     v1.PodStatus{Phase: v1.PodRunning, QOSClass: class(r)},
		Spec:       v1.PodSpec{RestartPolicy: v1.RestartPolicyNever}, // what starts its containers is not known
	}
	for i, c := range r.Containers {
		if !alive(c) || i > 0 && r.Containers[i-1].Name == c.Name {
			continue
		}
		pod.Spec.Containers = append(pod.Spec.Containers, v1.Container{Name: c.Name, Image: c.ImageName, Resources: e.resources(c, pod.Status.QOSClass)})
		if c.GraceSeconds != nil {
			pod.Spec.TerminationGracePeriodSeconds = c.GraceSeconds
		}
		if pod.Status.QOSClass != v1.PodQOSGuaranteed && c.OOMScoreAdj != nil && *c.OOMScoreAdj == guaranteedScore {
			pod.Spec.Priority = new(int32(podspec.SystemNodeCriticalPriority))
		}
	}
	e.setPriority(pod)
	return pod
}

// setPriority sets the priority of a pod that has none from the API server.
func (e *Estimator) setPriority(pod *v1.Pod) {
	if priority, known := e.Priorities[pod.UID]; known {
		pod.Spec.Priority = &priority
	} else if e.Unlisted && pod.Namespace == metav1.NamespaceSystem && pod.Spec.Priority == nil {
		pod.Spec.Priority = new(int32(podspec.SystemCriticalPriority))
	}
}

// class is that of the cgroup that the pod is in, or else of its scores.
func class(r *RuntimePod) v1.PodQOSClass {
	parent, name := path.Split(r.Cgroup())
	ofKubelet := strings.Contains(strings.ReplaceAll(name, "_", "-"), "pod"+string(r.Sandboxes[0].UID))
	switch {
	case ofKubelet && strings.Contains(parent, "besteffort"):
		return v1.PodQOSBestEffort
	case ofKubelet && strings.Contains(parent, "burstable"):
		return v1.PodQOSBurstable
	case ofKubelet:
		return v1.PodQOSGuaranteed
	}
	all := func(score int64) bool {
		return !slices.ContainsFunc(r.Containers, func(c *inventory.Container) bool { return c.OOMScoreAdj == nil || *c.OOMScoreAdj != score })
	}
	switch {
	case all(bestEffortScore): // as is a pod of which nothing is known
		return v1.PodQOSBestEffort
	case all(guaranteedScore):
		return v1.PodQOSGuaranteed
	}
	return v1.PodQOSBurstable
}

// resources turns the kubelet's score of a burstable container back into the
// request that gives it (oom.Scores: 1000 - 1000*request/capacity, from 3 to 999).
func (e *Estimator) resources(c *inventory.Container, class v1.PodQOSClass) v1.ResourceRequirements {
	r := v1.ResourceRequirements{}
	if c.MemoryLimit > 0 {
		r.Limits = v1.ResourceList{v1.ResourceMemory: *resource.NewQuantity(c.MemoryLimit, resource.BinarySI)}
	}
	request := int64(0)
	switch {
	case class == v1.PodQOSGuaranteed:
		request = c.MemoryLimit
	case class == v1.PodQOSBurstable && c.OOMScoreAdj != nil && *c.OOMScoreAdj >= 3 && *c.OOMScoreAdj < bestEffortScore:
		request = (1000 - *c.OOMScoreAdj) * e.Capacity / 1000
		if (1000-*c.OOMScoreAdj)*e.Capacity%1000 != 0 {
			request++
		}
		if c.MemoryLimit > 0 {
			request = min(request, c.MemoryLimit)
		}
	}
	// A limit without a request would stand for both.
	r.Requests = v1.ResourceList{v1.ResourceMemory: *resource.NewQuantity(request, resource.BinarySI)}
	return r
}
