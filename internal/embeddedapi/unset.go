package embeddedapi

import (
	"maps"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/evictd/evictd/internal/admission"
	"github.com/evictd/evictd/internal/embeddedapi/apply"
)

// unsetAdmitted removes from an object what admission has set in it when it was made. These fields have
// no manager in kube-apiserver, so that their application is no conflict.
func unsetAdmitted(object apply.Object) {
	switch o := object.(type) {
	case *v1.Pod:
		unsetPod(o)
	case *batchv1.Job:
		unsetJob(o)
	case *appsv1.DaemonSet:
		delete(o.Annotations, appsv1.DeprecatedTemplateGeneration)
	case *v1.PersistentVolumeClaim:
		if o.Status.Phase == v1.ClaimPending {
			o.Status.Phase = ""
		}
	}
}

func unsetPod(pod *v1.Pod) {
	bare := &v1.Pod{ObjectMeta: metav1.ObjectMeta{OwnerReferences: pod.OwnerReferences}, Spec: v1.PodSpec{HostNetwork: pod.Spec.HostNetwork}, Status: v1.PodStatus{QOSClass: pod.Status.QOSClass}}
	admission.SetTolerations(bare)
	if apiequality.Semantic.DeepEqual(bare.Spec.Tolerations, pod.Spec.Tolerations) {
		pod.Spec.Tolerations = nil
	}
	unsetLimits(pod)
	pod.Spec.Priority, pod.Spec.PreemptionPolicy = nil, nil
	if pod.Spec.RuntimeClassName != nil {
		pod.Spec.Overhead = nil
	}
	pod.Status.QOSClass = ""
	if pod.Status.Phase == v1.PodPending {
		pod.Status.Phase = ""
	}
}

// batchLabels begins the names of labels that say which job a pod is of.
const batchLabels = "batch.kubernetes.io/"

func unsetJob(job *batchv1.Job) {
	if ptr.Deref(job.Spec.ManualSelector, false) {
		return
	}
	if maps.Equal(job.Labels, job.Spec.Template.Labels) {
		job.Labels = nil
	}
	for _, name := range []string{"job-name", "controller-uid"} {
		delete(job.Spec.Template.Labels, name)
		delete(job.Spec.Template.Labels, batchLabels+name)
	}
	job.Spec.Selector = nil
}

// setAnnotation says on a pod which resources a LimitRange has set.
const setAnnotation, setPrefix = "kubernetes.io/limit-ranger", "LimitRanger plugin set: "

// unsetLimits removes what a LimitRange has set, as an annotation of the pod says, and the annotation.
func unsetLimits(pod *v1.Pod) {
	said, _ := strings.CutPrefix(pod.Annotations[setAnnotation], setPrefix)
	delete(pod.Annotations, setAnnotation)
	for part := range strings.SplitSeq(said, "; ") {
		names, of, _ := strings.Cut(part, " for ")
		at := strings.LastIndexByte(names, ' ')
		if at < 0 {
			continue
		}
		container := of[strings.LastIndexByte(of, ' ')+1:]
		for _, list := range [][]v1.Container{pod.Spec.Containers, pod.Spec.InitContainers} {
			for i := range list {
				amounts := list[i].Resources.Requests
				if names[at+1:] == "limit" {
					amounts = list[i].Resources.Limits
				}
				for name := range strings.SplitSeq(names[:at], ", ") {
					if list[i].Name == container {
						delete(amounts, v1.ResourceName(name))
					}
				}
			}
		}
	}
}
