package embeddedapi

import (
	"slices"
	"strings"
	"time"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
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
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	content "k8s.io/apimachinery/pkg/util/validation"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/evictd/evictd/internal/embeddedapi/store"
	"github.com/evictd/evictd/internal/embeddedapi/strategy"
)

// kind is one resource of the API, with its special cases.
type kind struct {
	schema.GroupVersionKind
	resource, singular string
	short              []string
	answers            bool                    // a deletion answers with the last state of the object
	ttl                time.Duration           // in memory, for so long after its last change; 0: on disk
	memory             string                  // the namespace whose objects have the lifetime; the others are on disk
	wire               schema.GroupVersionKind // as which objects are stored; empty: as they are served
	plugin             plugin                  // runs before the strategy; may be nil
	fields             fieldSet
	review             func(*request, store.Object) error // answers an object, which is not stored
	strategy           *strategy.Strategy                 // nil for a review
	namespaced         bool
	status             bool // has the subresource, and writes elsewhere leave the status alone
	table              *store.Table
}

// checkName refuses valid names that a manifest cannot have: the name of an object is the name of its file.
func (k *kind) checkName(name string) error {
	var why string
	switch {
	case len(name) > content.DNS1123SubdomainMaxLength:
		why = content.MaxLenError(content.DNS1123SubdomainMaxLength)
	case strings.HasPrefix(name, "."):
		why = "may not begin with a dot"
	default:
		return nil
	}
	return apierrors.NewInvalid(k.stored().GroupKind(), name, utilvalidation.ErrorList{utilvalidation.Invalid(utilvalidation.NewPath("metadata", "name"), name, why)})
}

func (k *kind) groupResource() schema.GroupResource {
	return schema.GroupResource{Group: k.Group, Resource: k.resource}
}

// stored is the kind as which objects are stored.
func (k *kind) stored() schema.GroupVersionKind {
	if k.isView() {
		return k.wire
	}
	return k.GroupVersionKind
}

// isView reports whether the kind is another version of a stored kind.
func (k *kind) isView() bool { return !k.wire.Empty() }

// eventTTL is how long an event is kept, as kube-apiserver's --event-ttl.
const eventTTL = time.Hour

var (
	core         = v1.SchemeGroupVersion
	apps         = appsv1.SchemeGroupVersion
	storageGroup = storagev1.SchemeGroupVersion
)

// newKinds is the API. Of the kinds on disk, referenced kinds are first.
func newKinds(strategies map[schema.GroupVersionKind]*strategy.Strategy) []*kind {
	kinds := slices.Concat(schedulingKinds(), controllerKinds())
	for _, k := range kinds {
		k.strategy = strategies[k.GroupVersionKind]
		k.namespaced, k.status = k.strategy.NamespaceScoped(), k.strategy.Has("status")
	}
	return kinds
}

func schedulingKinds() []*kind {
	return []*kind{
		{GroupVersionKind: core.WithKind("Namespace"), resource: "namespaces", singular: "namespace", short: []string{"ns"}, fields: namespaceFields},
		{GroupVersionKind: schedulingv1.SchemeGroupVersion.WithKind("PriorityClass"), resource: "priorityclasses", singular: "priorityclass", short: []string{"pc"}, plugin: admitPriorityClass},
		{GroupVersionKind: nodev1.SchemeGroupVersion.WithKind("RuntimeClass"), resource: "runtimeclasses", singular: "runtimeclass"},
		{GroupVersionKind: storageGroup.WithKind("StorageClass"), resource: "storageclasses", answers: true, singular: "storageclass", short: []string{"sc"}},
		{GroupVersionKind: storageGroup.WithKind("CSIDriver"), resource: "csidrivers", answers: true, singular: "csidriver"},
		{GroupVersionKind: core.WithKind("Node"), resource: "nodes", singular: "node", short: []string{"no"}, plugin: admitNode, fields: nodeFields},
		{GroupVersionKind: storageGroup.WithKind("CSINode"), resource: "csinodes", answers: true, singular: "csinode"},
		{GroupVersionKind: storageGroup.WithKind("CSIStorageCapacity"), resource: "csistoragecapacities", singular: "csistoragecapacity"},
		{GroupVersionKind: storageGroup.WithKind("VolumeAttachment"), resource: "volumeattachments", answers: true, singular: "volumeattachment"},
		{GroupVersionKind: core.WithKind("PersistentVolume"), resource: "persistentvolumes", answers: true, singular: "persistentvolume", short: []string{"pv"}},
		{GroupVersionKind: core.WithKind("PersistentVolumeClaim"), resource: "persistentvolumeclaims", answers: true, singular: "persistentvolumeclaim", short: []string{"pvc"}, plugin: admitClaim},
		{GroupVersionKind: core.WithKind("Service"), resource: "services", answers: true, singular: "service", short: []string{"svc"}, plugin: allocateService, fields: serviceFields},
		{GroupVersionKind: apps.WithKind("ReplicaSet"), resource: "replicasets", singular: "replicaset", short: []string{"rs"}, fields: replicaSetFields},
		{GroupVersionKind: apps.WithKind("StatefulSet"), resource: "statefulsets", singular: "statefulset", short: []string{"sts"}},
		{GroupVersionKind: apps.WithKind("DaemonSet"), resource: "daemonsets", singular: "daemonset", short: []string{"ds"}},
		{GroupVersionKind: core.WithKind("ReplicationController"), resource: "replicationcontrollers", singular: "replicationcontroller", short: []string{"rc"}, fields: controllerFields},
		{GroupVersionKind: policyv1.SchemeGroupVersion.WithKind("PodDisruptionBudget"), resource: "poddisruptionbudgets", singular: "poddisruptionbudget", short: []string{"pdb"}},
		{GroupVersionKind: core.WithKind("Pod"), resource: "pods", answers: true, singular: "pod", short: []string{"po"}, plugin: admitPod, fields: podFields},
		{GroupVersionKind: core.WithKind("Event"), resource: "events", singular: "event", short: []string{"ev"}, ttl: eventTTL,
			fields: eventFields},
		{GroupVersionKind: eventsv1.SchemeGroupVersion.WithKind("Event"), resource: "events", singular: "event", short: []string{"ev"}, ttl: eventTTL,
			fields: regardingFields, wire: core.WithKind("Event")},
		{GroupVersionKind: coordinationv1.SchemeGroupVersion.WithKind("Lease"), resource: "leases", singular: "lease",
			ttl: time.Hour, memory: v1.NamespaceNodeLease},
	}
}

func newScheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		v1.AddToScheme, appsv1.AddToScheme, coordinationv1.AddToScheme, eventsv1.AddToScheme, nodev1.AddToScheme,
		policyv1.AddToScheme, schedulingv1.AddToScheme, storagev1.AddToScheme, metav1.AddMetaToScheme, batchv1.AddToScheme,
		autoscalingv1.AddToScheme, autoscalingv2.AddToScheme, discoveryv1.AddToScheme, networkingv1.AddToScheme, resourceapi.AddToScheme,
		apidiscoveryv2.AddToScheme, authenticationv1.AddToScheme, authorizationv1.AddToScheme,
	} {
		utilruntime.Must(add(scheme))
	}
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})
	// The name that kubectl before 1.22 uses, which kube-apiserver accepts.
	scheme.AddKnownTypeWithName(schema.GroupVersionKind{Group: policyv1.GroupName, Version: "v1beta1", Kind: "Eviction"}, &policyv1.Eviction{})
	return scheme
}

func newMedia(scheme *runtime.Scheme) []runtime.SerializerInfo {
	return serializer.NewCodecFactory(scheme,
		serializer.WithStreamingCollectionEncodingToJSON(), serializer.WithStreamingCollectionEncodingToProtobuf()).SupportedMediaTypes()
}

// blank is a new object of a kind.
func (a *API) blank(gvk schema.GroupVersionKind) store.Object {
	object, err := a.scheme.New(gvk)
	utilruntime.Must(err)
	object.GetObjectKind().SetGroupVersionKind(gvk)
	return object.(store.Object)
}

// served is a stored object in the version that clients of a kind receive.
func (k *kind) served(o store.Object) store.Object { return k.converted(o, k.GroupVersion()) }

// received is a served object in the version in which it is stored.
func (k *kind) received(o store.Object) store.Object {
	return k.converted(o, k.stored().GroupVersion())
}

func (k *kind) converted(o store.Object, version schema.GroupVersion) store.Object {
	if !k.isView() {
		return o
	}
	converted, err := strategy.Convert(o, version)
	utilruntime.Must(err)
	return converted
}
