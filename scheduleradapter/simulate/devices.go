package simulate

import (
	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evictd/evictd/internal/admission"
	"github.com/evictd/evictd/scheduleradapter/framework"
)

// completeClaims sets the defaults of claims, and makes the claims of templates as
// the controller of claims does, with the name POD-NAME.
func (o *Objects) completeClaims() {
	for _, claim := range o.ResourceClaims {
		admission.CompleteResourceClaim(&claim.Spec)
	}
	templates := map[types.NamespacedName]*resourceapi.ResourceClaimTemplate{}
	for _, template := range o.ClaimTemplates {
		admission.CompleteResourceClaim(&template.Spec.Spec)
		templates[types.NamespacedName{Namespace: template.Namespace, Name: template.Name}] = template
	}
	for _, pod := range o.Pods {
		if len(pod.Status.ResourceClaimStatuses) > 0 {
			continue
		}
		for i := range pod.Spec.ResourceClaims {
			used := &pod.Spec.ResourceClaims[i]
			if used.ResourceClaimTemplateName == nil {
				continue
			}
			if template := templates[types.NamespacedName{Namespace: pod.Namespace, Name: *used.ResourceClaimTemplateName}]; template != nil {
				o.instantiate(template, pod, used.Name)
			}
		}
	}
}

func (o *Objects) instantiate(template *resourceapi.ResourceClaimTemplate, pod *v1.Pod, name string) {
	claim := &resourceapi.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{
			Name: pod.Name + "-" + name, Namespace: pod.Namespace, Labels: template.Spec.Labels, Annotations: template.Spec.Annotations,
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(pod, v1.SchemeGroupVersion.WithKind("Pod"))},
		},
		Spec: *template.Spec.Spec.DeepCopy(),
	}
	admission.CompleteMeta(claim, true)
	o.ResourceClaims = append(o.ResourceClaims, claim)
	pod.Status.ResourceClaimStatuses = append(pod.Status.ResourceClaimStatuses, v1.PodResourceClaimStatus{Name: name, ResourceClaimName: &claim.Name})
}

func (s *Simulation) populateDevices() {
	store := s.stores.Devices
	for _, o := range s.objects.DeviceClasses {
		store.SetClass(o)
	}
	for _, o := range s.objects.TaintRules {
		store.SetRule(o)
	}
	for _, o := range s.objects.ResourceSlices {
		store.SetSlice(o)
	}
	for _, o := range s.objects.ResourceClaims {
		store.SetClaim(o)
	}
	store.Controller().Changed = s.claimChanged
}

// claimChanged moves the pods that a change of a claim may help.
func (s *Simulation) claimChanged(was, is *resourceapi.ResourceClaim) {
	o := &framework.Occurrence{Event: framework.Event{Resource: framework.ResourceClaim, Action: framework.Update}}
	if was != nil {
		o.OldObject = was
	} else {
		o.Action = framework.Add
	}
	if is != nil {
		o.Object = is
	} else {
		o.Action = framework.Delete
	}
	s.calls.Add(func() { s.Queue.MoveAllToActiveOrBackoff(s.now, o) })
}
