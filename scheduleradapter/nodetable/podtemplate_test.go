package nodetable

import (
	"fmt"
	"reflect"
	"runtime"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// workloadPod is the pod of a workload with all that a digest reads.
func workloadPod(i int) *v1.Pod {
	name := fmt.Sprint("web-", i)
	selector := &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}
	term := v1.PodAffinityTerm{LabelSelector: selector, TopologyKey: v1.LabelHostname}
	cpu := func(s string) v1.ResourceList {
		return v1.ResourceList{v1.ResourceCPU: resource.MustParse(s), "example.com/gpu": resource.MustParse("1")}
	}
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: name, UID: types.UID(name), Labels: map[string]string{"app": "web"}, Generation: int64(i),
			OwnerReferences:   []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web", UID: "rs", Controller: new(true)}},
			CreationTimestamp: metav1.Unix(int64(1000+i), 0), ResourceVersion: fmt.Sprint(i),
		},
		Spec: v1.PodSpec{
			NodeName: fmt.Sprint("node-", i), SchedulerName: v1.DefaultSchedulerName, Priority: new(int32(7)), TerminationGracePeriodSeconds: new(int64(5)),
			NodeSelector: map[string]string{"disk": "ssd"}, Tolerations: []v1.Toleration{{Key: "a", Operator: v1.TolerationOpExists}},
			Containers: []v1.Container{{
				Name: "web", Image: "web:1", Resources: v1.ResourceRequirements{Requests: cpu("100m")}, Ports: []v1.ContainerPort{{HostPort: 80}},
				VolumeMounts: []v1.VolumeMount{{Name: fmt.Sprint("kube-api-access-", i)}},
			}},
			Volumes: []v1.Volume{
				{Name: fmt.Sprint("kube-api-access-", i), VolumeSource: v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{}}},
				{Name: "disk", VolumeSource: v1.VolumeSource{GCEPersistentDisk: &v1.GCEPersistentDiskVolumeSource{PDName: "disk"}}},
				{Name: "claim", VolumeSource: v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: "claim"}}},
			},
			Affinity:                  &v1.Affinity{PodAffinity: &v1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []v1.PodAffinityTerm{term}}},
			TopologySpreadConstraints: []v1.TopologySpreadConstraint{{MaxSkew: 1, TopologyKey: "zone", WhenUnsatisfiable: v1.DoNotSchedule, LabelSelector: selector}},
		},
		Status: v1.PodStatus{
			Phase: v1.PodRunning, QOSClass: v1.PodQOSBurstable, StartTime: &metav1.Time{Time: time.Unix(int64(2000+i), 0)}, PodIP: fmt.Sprint("10.0.0.", i),
			ContainerStatuses: []v1.ContainerStatus{{Name: "web", ContainerID: fmt.Sprint("containerd://", i), AllocatedResources: cpu("100m")}},
		},
	}
}

// differences of pods with what a digest depends on.
var differences = map[string]func(*v1.Pod){
	"namespace": func(p *v1.Pod) { p.Namespace = "other" },
	"priority":  func(p *v1.Pod) { p.Spec.Priority = new(int32(8)) },
	"request": func(p *v1.Pod) {
		p.Spec.Containers[0].Resources.Requests[v1.ResourceMemory] = resource.MustParse("1Gi")
	},
	"resize": func(p *v1.Pod) {
		p.Status.ContainerStatuses[0].AllocatedResources[v1.ResourceCPU] = resource.MustParse("2")
	},
	"toleration": func(p *v1.Pod) { p.Spec.Tolerations[0].Key = "b" },
	"selector":   func(p *v1.Pod) { p.Spec.NodeSelector["disk"] = "hdd" },
	"image":      func(p *v1.Pod) { p.Spec.Containers[0].Image = "web:2" },
	"port":       func(p *v1.Pod) { p.Spec.Containers[0].Ports[0].HostPort = 81 },
	"disk":       func(p *v1.Pod) { p.Spec.Volumes[1].GCEPersistentDisk.PDName = "other" },
	"claim":      func(p *v1.Pod) { p.Spec.Volumes[2].PersistentVolumeClaim.ClaimName = "other" },
	"affinity": func(p *v1.Pod) {
		p.Spec.Affinity.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution[0].TopologyKey = "zone"
	},
	"spread":           func(p *v1.Pod) { p.Spec.TopologySpreadConstraints[0].MaxSkew = 2 },
	"label and spread": func(p *v1.Pod) { p.Labels["app"] = "other" },
	"owner":            func(p *v1.Pod) { p.OwnerReferences[0].UID = "other" },
	"scheduler":        func(p *v1.Pod) { p.Spec.SchedulerName = "other" },
	"grace period":     func(p *v1.Pod) { p.Spec.TerminationGracePeriodSeconds = new(int64(6)) },
	"QoS class":        func(p *v1.Pod) { p.Status.QOSClass = v1.PodQOSGuaranteed },
	"ephemeral volume": func(p *v1.Pod) {
		p.Spec.Volumes = append(p.Spec.Volumes, v1.Volume{Name: "data", VolumeSource: v1.VolumeSource{Ephemeral: &v1.EphemeralVolumeSource{}}})
	},
}

// sameDigest compares the digest of Templates with that of NewPod.
func sameDigest(t *testing.T, got *Pod, object *v1.Pod) {
	t.Helper()
	want := NewPod(object)
	again := NewPod(got.OwnObject())
	for _, p := range []*Pod{got, again} {
		template, digest := *p.PodTemplate, *p
		template.shared, digest.PodTemplate, digest.Object = nil, want.PodTemplate, want.Object
		if !reflect.DeepEqual(template, *want.PodTemplate) || !reflect.DeepEqual(digest, *want) {
			t.Errorf("digest of %s is %+v\n%+v\nexpected %+v\n%+v", p, digest, template, *want, *want.PodTemplate)
		}
	}
	own := got.OwnObject()
	if !reflect.DeepEqual(object.Labels, own.Labels) || object.Spec.NodeName != own.Spec.NodeName || OwnerOf(object) != OwnerOf(own) {
		t.Errorf("object of %s is %+v", got, own)
	}
}

// TestPodsOfAWorkloadShareATemplate: a digest of Templates is that of NewPod, and pods
// that differ in names, times and mounts have one template.
func TestPodsOfAWorkloadShareATemplate(t *testing.T) {
	templates := NewTemplates()
	first := templates.NewPod(workloadPod(0))
	for i := range 3 {
		p := templates.NewPod(workloadPod(i))
		if p.PodTemplate != first.PodTemplate || p.podLabels != first.podLabels {
			t.Error("pods of a workload have different templates")
		}
		sameDigest(t, p, workloadPod(i))
	}
	for name, change := range differences {
		t.Run(name, func(t *testing.T) {
			object := workloadPod(1)
			change(object)
			p := templates.NewPod(object)
			sameDigest(t, p, object)
			if p.PodTemplate == first.PodTemplate || templates.NewPod(object).PodTemplate != p.PodTemplate {
				t.Error("expected a template of its own, made once")
			}
		})
	}
	runtime.KeepAlive(first)
}

// TestPodsThatAreReadKeepTheirObject: Templates digests them by NewPod.
func TestPodsThatAreReadKeepTheirObject(t *testing.T) {
	for name, change := range map[string]func(*v1.Pod){
		"pending":        func(p *v1.Pod) { p.Spec.NodeName = "" },
		"terminating":    func(p *v1.Pod) { p.DeletionTimestamp = &metav1.Time{} },
		"PodGroup":       func(p *v1.Pod) { p.Spec.SchedulingGroup = &v1.PodSchedulingGroup{} },
		"resource claim": func(p *v1.Pod) { p.Spec.ResourceClaims = []v1.PodResourceClaim{{Name: "gpu"}} },
		"extended resource claim": func(p *v1.Pod) {
			p.Status.ExtendedResourceClaimStatus = &v1.PodExtendedResourceClaimStatus{}
		},
		"resize that waits": func(p *v1.Pod) { p.Status.Conditions = []v1.PodCondition{{Type: v1.PodResizePending}} },
	} {
		t.Run(name, func(t *testing.T) {
			object := workloadPod(0)
			change(object)
			p := NewTemplates().NewPod(object)
			if p.Object != object || p.OwnObject() != object {
				t.Error("the digest has another object")
			}
			sameDigest(t, NewTemplates().NewPodWithObject(object), object)
		})
	}
}

// TestPendingPodsOfAWorkloadShareATemplate: also with pods that are being deleted, and each has
// its object, which may share what it has in common with the others.
func TestPendingPodsOfAWorkloadShareATemplate(t *testing.T) {
	templates := NewTemplates()
	first := templates.NewPod(workloadPod(0))
	for i := range 3 {
		object := workloadPod(i)
		object.Spec.NodeName, object.Spec.Hostname = "", fmt.Sprint("host-", i)
		if i == 2 {
			object.DeletionTimestamp = &metav1.Time{}
		}
		p := templates.NewPodWithObject(object)
		if p.PodTemplate != first.PodTemplate || p.Object != object || p.OwnObject() != object {
			t.Errorf("pod %d has a template of its own or another object", i)
		}
		sameDigest(t, p, object)
		original := object.DeepCopy()
		p.ShareObject()
		sameDigest(t, p, original)
		spec, shared := &p.Object.Spec, &first.shared.Spec
		if &spec.Containers[0] != &shared.Containers[0] || p.Object.Name != original.Name || spec.Hostname != original.Spec.Hostname {
			t.Errorf("pod %d has %+v", i, p.Object)
		}
	}
	runtime.KeepAlive(first)
}

// TestTemplatesWithoutPodsAreRemoved: what is kept is bounded by the pods that there are.
func TestTemplatesWithoutPodsAreRemoved(t *testing.T) {
	for name, differ := range map[string]func(pod *v1.Pod, i int){
		"templates":  func(pod *v1.Pod, i int) { pod.Spec.Containers[0].Image = fmt.Sprint("web:", i) },
		"label sets": func(pod *v1.Pod, i int) { pod.Labels["app"] = fmt.Sprint("web-", i) },
	} {
		templates := NewTemplates()
		for i := range 1000 {
			object := workloadPod(0)
			object.Spec.TopologySpreadConstraints = nil // labels are part of a template with them
			differ(object, i)
			templates.NewPod(object)
			if i%100 == 0 {
				runtime.GC()
			}
		}
		if templates.len() > 500 {
			t.Errorf("%d %s are kept without a pod", templates.len(), name)
		}
	}
}

// BenchmarkPodsOfAWorkload digests pods of a workload, one by one and with a shared template.
func BenchmarkPodsOfAWorkload(b *testing.B) {
	object := workloadPod(0)
	for name, digest := range map[string]func(*v1.Pod) *Pod{"alone": NewPod, "shared": NewTemplates().NewPod} {
		b.Run(name, func(b *testing.B) {
			keep := digest(object)
			b.ReportAllocs()
			for b.Loop() {
				digest(object)
			}
			runtime.KeepAlive(keep)
		})
	}
}
