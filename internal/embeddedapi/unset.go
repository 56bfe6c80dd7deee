package embeddedapi

import (
	"maps"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/evictd/evictd/internal/admission"
	"github.com/evictd/evictd/internal/embeddedapi/apply"
	"github.com/evictd/evictd/internal/embeddedapi/quota"
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
	quota.UnsetDefaults(pod)
	pod.Spec.Priority, pod.Spec.PreemptionPolicy = nil, nil
	if pod.Spec.RuntimeClassName != nil {
		pod.Spec.Overhead = nil
	}
	pod.Status.QOSClass = ""
	if pod.Status.Phase == v1.PodPending {
		pod.Status.Phase = ""
	}
}

func unsetJob(job *batchv1.Job) {
	if ptr.Deref(job.Spec.ManualSelector, false) {
		return
	}
	if maps.Equal(job.Labels, job.Spec.Template.Labels) {
		job.Labels = nil
	}
	for _, name := range []string{"job-name", "controller-uid"} {
		delete(job.Spec.Template.Labels, name)
		delete(job.Spec.Template.Labels, jobLabels+name)
	}
	job.Spec.Selector = nil
}
