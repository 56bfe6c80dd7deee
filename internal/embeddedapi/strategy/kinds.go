package strategy

import (
	"context"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	eventsv1 "k8s.io/api/events/v1"
	networkingv1 "k8s.io/api/networking/v1"
	nodev1 "k8s.io/api/node/v1"
	policyv1 "k8s.io/api/policy/v1"
	resourceapi "k8s.io/api/resource/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/registry/rest"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	_ "k8s.io/kubernetes/pkg/apis/apps/install"         // its types, conversions and defaults
	_ "k8s.io/kubernetes/pkg/apis/autoscaling/install"  // its types, conversions and defaults
	_ "k8s.io/kubernetes/pkg/apis/batch/install"        // its types, conversions and defaults
	_ "k8s.io/kubernetes/pkg/apis/coordination/install" // its types, conversions and defaults
	_ "k8s.io/kubernetes/pkg/apis/core/install"         // its types, conversions and defaults
	_ "k8s.io/kubernetes/pkg/apis/discovery/install"    // its types, conversions and defaults
	_ "k8s.io/kubernetes/pkg/apis/events/install"       // its types, conversions and defaults
	_ "k8s.io/kubernetes/pkg/apis/networking/install"   // its types, conversions and defaults
	_ "k8s.io/kubernetes/pkg/apis/node/install"         // its types, conversions and defaults
	_ "k8s.io/kubernetes/pkg/apis/policy/install"       // its types, conversions and defaults
	_ "k8s.io/kubernetes/pkg/apis/resource/install"     // its types, conversions and defaults
	_ "k8s.io/kubernetes/pkg/apis/scheduling/install"   // its types, conversions and defaults
	_ "k8s.io/kubernetes/pkg/apis/storage/install"      // its types, conversions and defaults
	"k8s.io/kubernetes/pkg/capabilities"
	"k8s.io/kubernetes/pkg/registry/apps/controllerrevision"
	"k8s.io/kubernetes/pkg/registry/apps/daemonset"
	"k8s.io/kubernetes/pkg/registry/apps/deployment"
	"k8s.io/kubernetes/pkg/registry/apps/replicaset"
	"k8s.io/kubernetes/pkg/registry/apps/statefulset"
	"k8s.io/kubernetes/pkg/registry/autoscaling/horizontalpodautoscaler"
	"k8s.io/kubernetes/pkg/registry/batch/cronjob"
	"k8s.io/kubernetes/pkg/registry/batch/job"
	"k8s.io/kubernetes/pkg/registry/coordination/lease"
	"k8s.io/kubernetes/pkg/registry/core/configmap"
	"k8s.io/kubernetes/pkg/registry/core/endpoint"
	"k8s.io/kubernetes/pkg/registry/core/event"
	"k8s.io/kubernetes/pkg/registry/core/limitrange"
	"k8s.io/kubernetes/pkg/registry/core/namespace"
	"k8s.io/kubernetes/pkg/registry/core/node"
	"k8s.io/kubernetes/pkg/registry/core/persistentvolume"
	"k8s.io/kubernetes/pkg/registry/core/persistentvolumeclaim"
	"k8s.io/kubernetes/pkg/registry/core/pod"
	"k8s.io/kubernetes/pkg/registry/core/podtemplate"
	"k8s.io/kubernetes/pkg/registry/core/replicationcontroller"
	"k8s.io/kubernetes/pkg/registry/core/resourcequota"
	"k8s.io/kubernetes/pkg/registry/core/secret"
	"k8s.io/kubernetes/pkg/registry/core/service"
	"k8s.io/kubernetes/pkg/registry/core/serviceaccount"
	"k8s.io/kubernetes/pkg/registry/discovery/endpointslice"
	"k8s.io/kubernetes/pkg/registry/networking/networkpolicy"
	"k8s.io/kubernetes/pkg/registry/node/runtimeclass"
	"k8s.io/kubernetes/pkg/registry/policy/poddisruptionbudget"
	"k8s.io/kubernetes/pkg/registry/resource/deviceclass"
	"k8s.io/kubernetes/pkg/registry/resource/devicetaintrule"
	"k8s.io/kubernetes/pkg/registry/resource/resourceclaim"
	"k8s.io/kubernetes/pkg/registry/resource/resourceclaimtemplate"
	"k8s.io/kubernetes/pkg/registry/resource/resourceslice"
	"k8s.io/kubernetes/pkg/registry/scheduling/priorityclass"
	"k8s.io/kubernetes/pkg/registry/storage/csidriver"
	"k8s.io/kubernetes/pkg/registry/storage/csinode"
	"k8s.io/kubernetes/pkg/registry/storage/csistoragecapacity"
	"k8s.io/kubernetes/pkg/registry/storage/storageclass"
	"k8s.io/kubernetes/pkg/registry/storage/volumeattachment"
	"k8s.io/kubernetes/pkg/registry/storage/volumeattributesclass"
)

// Namespaces returns the namespace of a name, or an error of the API.
type Namespaces func(name string) (*v1.Namespace, error)

// namespaces are the namespaces that the strategies of claims of devices read.
type namespaces struct {
	corev1client.NamespaceInterface // nil: they read one namespace at a time
	get                             Namespaces
}

func (n namespaces) Get(_ context.Context, name string, _ metav1.GetOptions) (*v1.Namespace, error) {
	return n.get(name)
}

// everything is the authorizer that allows every known user everything.
type everything struct {
	authorizer.UnconditionalAuthorizer
}

func (everything) Authorize(context.Context, authorizer.Attributes) (authorizer.Decision, string, error) {
	return authorizer.DecisionAllow, "", nil
}

// New returns the strategies of the kinds that the embedded API serves.
func New(get Namespaces) map[schema.GroupVersionKind]*Strategy {
	capabilities.Setup(true, 0) // a container may be privileged, as with kube-apiserver's --allow-privileged
	of := namespaces{get: get}
	claims := resourceclaim.NewStrategy(of, everything{})
	const status = "status"
	type parts = map[string]rest.RESTUpdateStrategy
	all := map[schema.GroupVersionKind]*Strategy{}
	for _, group := range []struct {
		version schema.GroupVersion
		kinds   map[string]Strategy
	}{
		{v1.SchemeGroupVersion, map[string]Strategy{
			"ConfigMap":             {whole: configmap.Strategy},
			"Endpoints":             {whole: endpoint.Strategy},
			"Event":                 {whole: event.Strategy},
			"LimitRange":            {whole: limitrange.Strategy},
			"Namespace":             {whole: namespace.Strategy, parts: parts{status: namespace.StatusStrategy, "finalize": namespace.FinalizeStrategy}},
			"Node":                  {whole: node.Strategy, parts: parts{status: node.StatusStrategy}},
			"PersistentVolume":      {whole: persistentvolume.Strategy, parts: parts{status: persistentvolume.StatusStrategy}},
			"PersistentVolumeClaim": {whole: persistentvolumeclaim.Strategy, parts: parts{status: persistentvolumeclaim.StatusStrategy}},
			"Pod":                   {whole: pod.Strategy, parts: parts{status: pod.StatusStrategy, "ephemeralcontainers": pod.EphemeralContainersStrategy, "resize": pod.ResizeStrategy}},
			"PodTemplate":           {whole: podtemplate.Strategy},
			"ReplicationController": {whole: replicationcontroller.Strategy, parts: parts{status: replicationcontroller.StatusStrategy}},
			"ResourceQuota":         {whole: resourcequota.Strategy, parts: parts{status: resourcequota.StatusStrategy}},
			"Secret":                {whole: secret.Strategy},
			"Service":               {whole: service.Strategy, parts: parts{status: service.StatusStrategy}},
			"ServiceAccount":        {whole: serviceaccount.Strategy},
		}},
		{appsv1.SchemeGroupVersion, map[string]Strategy{
			"ControllerRevision": {whole: controllerrevision.Strategy},
			"DaemonSet":          {whole: daemonset.Strategy, parts: parts{status: daemonset.StatusStrategy}},
			"Deployment":         {whole: deployment.Strategy, parts: parts{status: deployment.StatusStrategy}},
			"ReplicaSet":         {whole: replicaset.Strategy, parts: parts{status: replicaset.StatusStrategy}},
			"StatefulSet":        {whole: statefulset.Strategy, parts: parts{status: statefulset.StatusStrategy}},
		}},
		{autoscalingv2.SchemeGroupVersion, map[string]Strategy{
			"HorizontalPodAutoscaler": {whole: horizontalpodautoscaler.Strategy, parts: parts{status: horizontalpodautoscaler.StatusStrategy}},
		}},
		{batchv1.SchemeGroupVersion, map[string]Strategy{
			"CronJob": {whole: cronjob.Strategy, parts: parts{status: cronjob.StatusStrategy}},
			"Job":     {whole: job.Strategy, parts: parts{status: job.StatusStrategy}},
		}},
		{coordinationv1.SchemeGroupVersion, map[string]Strategy{"Lease": {whole: lease.Strategy}}},
		{discoveryv1.SchemeGroupVersion, map[string]Strategy{"EndpointSlice": {whole: endpointslice.Strategy}}},
		{eventsv1.SchemeGroupVersion, map[string]Strategy{"Event": {whole: event.Strategy, stored: v1.SchemeGroupVersion}}},
		{networkingv1.SchemeGroupVersion, map[string]Strategy{"NetworkPolicy": {whole: networkpolicy.Strategy}}},
		{nodev1.SchemeGroupVersion, map[string]Strategy{"RuntimeClass": {whole: runtimeclass.Strategy}}},
		{policyv1.SchemeGroupVersion, map[string]Strategy{
			"PodDisruptionBudget": {whole: poddisruptionbudget.Strategy, parts: parts{status: poddisruptionbudget.StatusStrategy}},
		}},
		{resourceapi.SchemeGroupVersion, map[string]Strategy{
			"DeviceClass":           {whole: deviceclass.Strategy},
			"DeviceTaintRule":       {whole: devicetaintrule.Strategy, parts: parts{status: devicetaintrule.StatusStrategy}},
			"ResourceClaim":         {whole: claims, parts: parts{status: resourceclaim.NewStatusStrategy(claims)}},
			"ResourceClaimTemplate": {whole: resourceclaimtemplate.NewStrategy(of)},
			"ResourceSlice":         {whole: resourceslice.Strategy},
		}},
		{schedulingv1.SchemeGroupVersion, map[string]Strategy{"PriorityClass": {whole: priorityclass.Strategy}}},
		{storagev1.SchemeGroupVersion, map[string]Strategy{
			"CSIDriver":             {whole: csidriver.Strategy},
			"CSINode":               {whole: csinode.Strategy},
			"CSIStorageCapacity":    {whole: csistoragecapacity.Strategy},
			"StorageClass":          {whole: storageclass.Strategy},
			"VolumeAttachment":      {whole: volumeattachment.Strategy, parts: parts{status: volumeattachment.StatusStrategy}},
			"VolumeAttributesClass": {whole: volumeattributesclass.Strategy},
		}},
	} {
		for kind, s := range group.kinds {
			if s.stored.Empty() {
				s.stored = group.version
			}
			s.kind = group.version.WithKind(kind)
			all[s.kind] = &s
		}
	}
	return all
}
