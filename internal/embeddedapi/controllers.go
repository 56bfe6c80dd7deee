package embeddedapi

import (
	"strconv"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	resourceapi "k8s.io/api/resource/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/utils/ptr"
)

// controllerKinds are what kube-controller-manager and a kubelet read and write beside the kinds
// of a scheduler.
func controllerKinds() []*kind {
	batch, resources, discovery := batchv1.SchemeGroupVersion, resourceapi.SchemeGroupVersion, discoveryv1.SchemeGroupVersion
	return []*kind{
		{GroupVersionKind: core.WithKind("ConfigMap"), resource: "configmaps", singular: "configmap", short: []string{"cm"}},
		{GroupVersionKind: core.WithKind("Secret"), resource: "secrets", singular: "secret", fields: secretFields},
		{GroupVersionKind: core.WithKind("ServiceAccount"), resource: "serviceaccounts", singular: "serviceaccount", short: []string{"sa"}, answers: true},
		{GroupVersionKind: core.WithKind("LimitRange"), resource: "limitranges", singular: "limitrange", short: []string{"limits"}},
		{GroupVersionKind: core.WithKind("ResourceQuota"), resource: "resourcequotas", singular: "resourcequota", short: []string{"quota"}, answers: true},
		{GroupVersionKind: core.WithKind("Endpoints"), resource: "endpoints", singular: "endpoints", short: []string{"ep"}},
		{GroupVersionKind: core.WithKind("PodTemplate"), resource: "podtemplates", singular: "podtemplate", answers: true},
		{GroupVersionKind: discovery.WithKind("EndpointSlice"), resource: "endpointslices", singular: "endpointslice"},
		{GroupVersionKind: apps.WithKind("ControllerRevision"), resource: "controllerrevisions", singular: "controllerrevision"},
		{GroupVersionKind: apps.WithKind("Deployment"), resource: "deployments", singular: "deployment", short: []string{"deploy"}},
		{GroupVersionKind: batch.WithKind("Job"), resource: "jobs", singular: "job", fields: jobFields},
		{GroupVersionKind: batch.WithKind("CronJob"), resource: "cronjobs", singular: "cronjob", short: []string{"cj"}},
		{GroupVersionKind: autoscalingv2.SchemeGroupVersion.WithKind("HorizontalPodAutoscaler"), resource: "horizontalpodautoscalers", singular: "horizontalpodautoscaler",
			short: []string{"hpa"}},
		{GroupVersionKind: networkingv1.SchemeGroupVersion.WithKind("NetworkPolicy"), resource: "networkpolicies", singular: "networkpolicy", short: []string{"netpol"}},
		{GroupVersionKind: storagev1.SchemeGroupVersion.WithKind("VolumeAttributesClass"), resource: "volumeattributesclasses", singular: "volumeattributesclass", short: []string{"vac"}, answers: true},
		{GroupVersionKind: resources.WithKind("DeviceClass"), resource: "deviceclasses", singular: "deviceclass", answers: true},
		{GroupVersionKind: resources.WithKind("DeviceTaintRule"), resource: "devicetaintrules", singular: "devicetaintrule"},
		{GroupVersionKind: resources.WithKind("ResourceClaim"), resource: "resourceclaims", singular: "resourceclaim", answers: true},
		{GroupVersionKind: resources.WithKind("ResourceClaimTemplate"), resource: "resourceclaimtemplates", singular: "resourceclaimtemplate", answers: true},
		{GroupVersionKind: resources.WithKind("ResourceSlice"), resource: "resourceslices", singular: "resourceslice", answers: true, fields: sliceFields},
	}
}

var (
	secretFields = fieldSet{"type": field(func(s *v1.Secret) string { return string(s.Type) })}
	jobFields    = fieldSet{"status.successful": field(func(j *batchv1.Job) string { return strconv.Itoa(int(j.Status.Succeeded)) })}
	sliceFields  = fieldSet{
		"spec.nodeName": field(func(s *resourceapi.ResourceSlice) string { return ptr.Deref(s.Spec.NodeName, "") }),
		"spec.driver":   field(func(s *resourceapi.ResourceSlice) string { return s.Spec.Driver }),
	}
)
