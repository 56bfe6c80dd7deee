package podspec

import (
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Bounds of a reduced pod. An object of the API may have 1.5 MiB, and a node 110 pods and more.
const (
	// maxContainers bounds the init containers, the containers and the ephemeral containers,
	// each, and maxVolumes the volumes.
	maxContainers = 200
	maxVolumes    = 500
	// maxText bounds the annotations and the names of images, bytes; longer ones are left out.
	maxText = 1024
)

// ownAnnotations is the prefix of evictd's annotations.
const ownAnnotations = "evictd.io/"

// Reduce copies what evictd needs to know of a pod, in bounded memory: neither environment nor
// arguments. Beyond maxContainers the requests and limits of containers are added to those
// of the last one that is kept; other containers and volumes are left out beyond their bounds.
func Reduce(pod *v1.Pod) *v1.Pod {
	p := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: pod.Name, Namespace: pod.Namespace, UID: pod.UID, ResourceVersion: pod.ResourceVersion, Generation: pod.Generation,
			DeletionTimestamp: pod.DeletionTimestamp,
		},
		Spec: v1.PodSpec{
			NodeName: pod.Spec.NodeName, Priority: pod.Spec.Priority, PriorityClassName: pod.Spec.PriorityClassName,
			TerminationGracePeriodSeconds: pod.Spec.TerminationGracePeriodSeconds,
			RestartPolicy:                 pod.Spec.RestartPolicy,
			Overhead:                      reduceList(pod.Spec.Overhead),
			InitContainers:                reduceContainers(pod.Spec.InitContainers, pod.Spec.Volumes),
			Containers:                    reduceContainers(pod.Spec.Containers, pod.Spec.Volumes),
		},
		Status: v1.PodStatus{Phase: pod.Status.Phase, QOSClass: pod.Status.QOSClass},
	}
	reduceResize(p, &pod.Status)
	if IsCgroup(pod) {
		p.Kind = Cgroup
	}
	if i := slices.IndexFunc(pod.Spec.Tolerations, toleratesMemoryPressure); i >= 0 {
		p.Spec.Tolerations = []v1.Toleration{pod.Spec.Tolerations[i]}
	}
	if pod.Spec.Resources != nil {
		resources := reduceResources(pod.Spec.Resources)
		p.Spec.Resources = &resources
	}
	for i := range pod.OwnerReferences {
		if owner := &pod.OwnerReferences[i]; owner.Controller != nil && *owner.Controller {
			p.OwnerReferences = append(p.OwnerReferences, *owner)
			break
		}
	}
	for name, value := range pod.Annotations {
		read := name == v1.MirrorPodAnnotationKey || name == configSource || name == configHash || strings.HasPrefix(name, ownAnnotations)
		if !read || len(value) > maxText {
			continue
		}
		if p.Annotations == nil {
			p.Annotations = map[string]string{}
		}
		p.Annotations[name] = value
	}
	for i := range min(len(pod.Spec.EphemeralContainers), maxContainers) {
		c := &pod.Spec.EphemeralContainers[i]
		p.Spec.EphemeralContainers = append(p.Spec.EphemeralContainers, v1.EphemeralContainer{
			EphemeralContainerCommon: v1.EphemeralContainerCommon{Name: c.Name, Image: shortText(c.Image)},
		})
	}
	for i := range min(len(pod.Spec.Volumes), maxVolumes) {
		p.Spec.Volumes = append(p.Spec.Volumes, reduceVolume(&pod.Spec.Volumes[i]))
	}
	return p
}

func reduceContainers(containers []v1.Container, volumes []v1.Volume) (all []v1.Container) {
	for i := range containers {
		c := &containers[i]
		resources := reduceResources(&c.Resources)
		if len(all) < maxContainers {
			all = append(all, v1.Container{
				Name: c.Name, Image: shortText(c.Image), Resources: resources, RestartPolicy: c.RestartPolicy,
				RestartPolicyRules: reduceRestartRules(c.RestartPolicyRules), VolumeMounts: reduceMounts(c.VolumeMounts, volumes),
				ResizePolicy: reduceResizePolicy(c.ResizePolicy),
			})
			continue
		}
		last := &all[maxContainers-1].Resources
		last.Requests, last.Limits = addLists(last.Requests, resources.Requests), addLists(last.Limits, resources.Limits)
	}
	return all
}

func reduceResources(r *v1.ResourceRequirements) v1.ResourceRequirements {
	return v1.ResourceRequirements{Requests: reduceList(r.Requests), Limits: reduceList(r.Limits)}
}

// reduceList copies the resources that decide anything of a pod on its node.
func reduceList(list v1.ResourceList) (reduced v1.ResourceList) {
	for _, name := range []v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory, v1.ResourceEphemeralStorage} {
		if q, has := list[name]; has {
			reduced = addLists(reduced, v1.ResourceList{name: q})
		}
	}
	return reduced
}

// addLists adds what more has to a list, which it changes.
func addLists(list, more v1.ResourceList) v1.ResourceList {
	for name, amount := range more {
		if list == nil {
			list = v1.ResourceList{}
		}
		if sum, has := list[name]; has {
			sum.Add(amount)
			amount = sum
		}
		list[name] = amount
	}
	return list
}

// reduceVolume keeps the kind of a volume, the bounds of an emptyDir and the name of an image.
func reduceVolume(v *v1.Volume) v1.Volume {
	kept := v1.Volume{Name: v.Name}
	switch {
	case v.EmptyDir != nil:
		kept.EmptyDir = &v1.EmptyDirVolumeSource{Medium: v.EmptyDir.Medium, SizeLimit: v.EmptyDir.SizeLimit}
	case v.HostPath != nil:
		kept.HostPath = &v1.HostPathVolumeSource{}
	case v.ConfigMap != nil:
		kept.ConfigMap = &v1.ConfigMapVolumeSource{}
	case v.GitRepo != nil:
		kept.GitRepo = &v1.GitRepoVolumeSource{}
	case v.Image != nil:
		kept.Image = &v1.ImageVolumeSource{Reference: shortText(v.Image.Reference)}
	}
	return kept
}

func shortText(text string) string {
	if len(text) > maxText {
		return ""
	}
	return text
}
