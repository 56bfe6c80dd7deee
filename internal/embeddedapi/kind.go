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
	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"

	"github.com/evictd/evictd/internal/embeddedapi/store"
	podvalidation "github.com/evictd/evictd/internal/embeddedapi/validation"
)

// kind is one resource of the API, with its special cases.
type kind struct {
	schema.GroupVersionKind
	resource, singular string
	short              []string
	namespaced         bool
	status             bool                        // has the subresource, and writes elsewhere leave the status alone
	fixed              []string                    // fields of metadata that a write of the status leaves alone
	generation         bool                        // counts the changes of its spec
	annotations        bool                        // and of its annotations
	answers            bool                        // a deletion answers with the last state of the object
	orphans            bool                        // a deletion that names no policy keeps the dependents
	upsert             bool                        // an update makes what is not there
	versioned          bool                        // an update needs the resourceVersion of what it changes
	ttl                time.Duration               // in memory, for so long after its last change; 0: on disk
	memory             string                      // the namespace whose objects have the lifetime; the others are on disk
	names              validation.ValidateNameFunc // nil: subdomains of DNS
	anyName            bool                        // that fits in a path, and metadata is validated only where the rest is valid
	allocate           admitter                    // before metadata is validated; may be nil
	admit              admitter                    // nil: only metadata is validated
	fields             fieldSet
	columns            []column
	review             func(*request, store.Object) error // answers an object, which is not stored
	wire               *conversion                        // nil: objects are stored as they are served
	table              *store.Table
}

// conversion is between the stored and the served version of a kind.
type conversion struct {
	stored  schema.GroupVersionKind
	serve   func(store.Object) store.Object
	receive func(store.Object) store.Object
}

// allMeta are the fields of metadata that clients write.
var allMeta = []string{"labels", "annotations", "finalizers"}

// fitsPath is a name that kube-apiserver leaves to clients: it fits in a path and, before the extension of a
// manifest, in the name of a file that is not hidden.
func fitsPath(name string, prefix bool) []string {
	faults := content.IsPathSegmentPrefix(name)
	if !prefix {
		faults = content.IsPathSegmentName(name)
	}
	if len(name) > utilvalidation.DNS1123SubdomainMaxLength {
		faults = append(faults, utilvalidation.MaxLenError(utilvalidation.DNS1123SubdomainMaxLength))
	}
	if len(faults) == 0 && strings.HasPrefix(name, ".") {
		faults = append(faults, "may not begin with a dot")
	}
	return faults
}

func (k *kind) groupResource() schema.GroupResource {
	return schema.GroupResource{Group: k.Group, Resource: k.resource}
}

// stored is the kind as which objects are stored.
func (k *kind) stored() schema.GroupVersionKind {
	if k.wire != nil {
		return k.wire.stored
	}
	return k.GroupVersionKind
}

// eventTTL is how long an event is kept, as kube-apiserver's --event-ttl.
const eventTTL = time.Hour

var (
	core         = v1.SchemeGroupVersion
	apps         = appsv1.SchemeGroupVersion
	storageGroup = storagev1.SchemeGroupVersion
)

// newKinds is the API. Of the kinds on disk, referenced kinds are first.
func newKinds() []*kind { return slices.Concat(schedulingKinds(), controllerKinds()) }

func schedulingKinds() []*kind {
	return []*kind{
		{GroupVersionKind: core.WithKind("Namespace"), resource: "namespaces", singular: "namespace", short: []string{"ns"}, status: true, names: validation.ValidateNamespaceName,
			admit: admitNamespace, fields: namespaceFields, columns: namespaceColumns},
		{GroupVersionKind: schedulingv1.SchemeGroupVersion.WithKind("PriorityClass"), resource: "priorityclasses", singular: "priorityclass", short: []string{"pc"},
			admit: admitPriorityClass, columns: priorityClassColumns},
		{GroupVersionKind: nodev1.SchemeGroupVersion.WithKind("RuntimeClass"), resource: "runtimeclasses", singular: "runtimeclass", upsert: true, versioned: true,
			admit: admitRuntimeClass, columns: runtimeClassColumns},
		{GroupVersionKind: storageGroup.WithKind("StorageClass"), resource: "storageclasses", answers: true, singular: "storageclass", short: []string{"sc"},
			admit: admitStorageClass, columns: storageClassColumns},
		{GroupVersionKind: storageGroup.WithKind("CSIDriver"), resource: "csidrivers", answers: true, singular: "csidriver", versioned: true, admit: admitDriver},
		{GroupVersionKind: core.WithKind("Node"), resource: "nodes", singular: "node", short: []string{"no"}, status: true,
			admit: admitNode, fields: nodeFields, columns: nodeColumns},
		{GroupVersionKind: storageGroup.WithKind("CSINode"), resource: "csinodes", answers: true, singular: "csinode", versioned: true, admit: checked(podvalidation.CSINode), columns: csiNodeColumns},
		{GroupVersionKind: storageGroup.WithKind("CSIStorageCapacity"), resource: "csistoragecapacities", singular: "csistoragecapacity", namespaced: true, versioned: true,
			admit: checked(podvalidation.CSIStorageCapacity)},
		{GroupVersionKind: storageGroup.WithKind("VolumeAttachment"), resource: "volumeattachments", answers: true, singular: "volumeattachment", status: true, fixed: allMeta, versioned: true,
			admit: admitAttachment, columns: attachmentColumns},
		{GroupVersionKind: core.WithKind("PersistentVolume"), resource: "persistentvolumes", answers: true, singular: "persistentvolume", short: []string{"pv"}, status: true,
			admit: admitVolume, columns: volumeColumns},
		{GroupVersionKind: core.WithKind("PersistentVolumeClaim"), resource: "persistentvolumeclaims", answers: true, singular: "persistentvolumeclaim", short: []string{"pvc"}, namespaced: true, status: true,
			admit: admitClaim, columns: claimColumns},
		{GroupVersionKind: core.WithKind("Service"), resource: "services", answers: true, singular: "service", short: []string{"svc"}, namespaced: true, status: true, upsert: true, names: validation.NameIsDNSLabel,
			allocate: allocateService, admit: admitService, fields: serviceFields, columns: serviceColumns},
		{GroupVersionKind: apps.WithKind("ReplicaSet"), resource: "replicasets", singular: "replicaset", short: []string{"rs"}, namespaced: true, status: true, generation: true,
			admit: admitWorkload, fields: replicaSetFields, columns: replicaSetColumns},
		{GroupVersionKind: apps.WithKind("StatefulSet"), resource: "statefulsets", singular: "statefulset", short: []string{"sts"}, namespaced: true, status: true, generation: true, names: validation.NameIsDNSLabel,
			admit: admitWorkload, columns: statefulSetColumns},
		{GroupVersionKind: apps.WithKind("DaemonSet"), resource: "daemonsets", singular: "daemonset", short: []string{"ds"}, namespaced: true, status: true, generation: true,
			admit: admitDaemonSet, columns: daemonSetColumns},
		{GroupVersionKind: core.WithKind("ReplicationController"), resource: "replicationcontrollers", singular: "replicationcontroller", short: []string{"rc"}, namespaced: true, status: true, generation: true, orphans: true,
			admit: admitWorkload, fields: controllerFields, columns: controllerColumns},
		{GroupVersionKind: policyv1.SchemeGroupVersion.WithKind("PodDisruptionBudget"), resource: "poddisruptionbudgets", singular: "poddisruptionbudget", short: []string{"pdb"}, namespaced: true, status: true, generation: true, versioned: true, anyName: true,
			admit: admitBudget, columns: budgetColumns},
		{GroupVersionKind: core.WithKind("Pod"), resource: "pods", answers: true, singular: "pod", short: []string{"po"}, namespaced: true, status: true, generation: true,
			admit: admitPod, fields: podFields, columns: podColumns},
		{GroupVersionKind: core.WithKind("Event"), resource: "events", singular: "event", short: []string{"ev"}, namespaced: true, upsert: true, ttl: eventTTL, anyName: true,
			fields: eventFields, columns: eventColumns},
		{GroupVersionKind: eventsv1.SchemeGroupVersion.WithKind("Event"), resource: "events", singular: "event", short: []string{"ev"}, namespaced: true, upsert: true, ttl: eventTTL,
			admit: admitEvent, fields: regardingFields, columns: eventColumns,
			wire: &conversion{core.WithKind("Event"), serveEvent, receiveEvent}},
		{GroupVersionKind: coordinationv1.SchemeGroupVersion.WithKind("Lease"), resource: "leases", singular: "lease", namespaced: true, upsert: true, versioned: true,
			ttl: time.Hour, memory: v1.NamespaceNodeLease, admit: admitLease, columns: leaseColumns},
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
func (k *kind) served(o store.Object) store.Object {
	if k.wire == nil {
		return o
	}
	return k.wire.serve(o)
}

func (k *kind) received(o store.Object) store.Object {
	if k.wire == nil {
		return o
	}
	return k.wire.receive(o)
}
