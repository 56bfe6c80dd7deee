// Package simulate runs the scheduler on a cluster of manifests in simulated time
// and reports all decisions. It reads the manifests and does no other I/O.
package simulate

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	policyv1 "k8s.io/api/policy/v1"
	resourceapi "k8s.io/api/resource/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/conversion"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/dynamic-resource-allocation/api/v1beta1"
	"k8s.io/dynamic-resource-allocation/api/v1beta2"

	"github.com/evictd/evictd/internal/admission"
	"github.com/evictd/evictd/internal/manifest"
	"github.com/evictd/evictd/scheduleradapter/nodetable"
)

// Objects of a cluster, complete as an API server returns them, each kind in the
// order of the manifests.
type Objects struct {
	Nodes                  []*v1.Node
	Pods                   []*v1.Pod
	Namespaces             []*v1.Namespace
	Services               []*v1.Service
	ReplicationControllers []*v1.ReplicationController
	ReplicaSets            []*appsv1.ReplicaSet
	StatefulSets           []*appsv1.StatefulSet
	PriorityClasses        []*schedulingv1.PriorityClass
	RuntimeClasses         []*nodev1.RuntimeClass
	DisruptionBudgets      []*policyv1.PodDisruptionBudget
	Volumes                []*v1.PersistentVolume
	Claims                 []*v1.PersistentVolumeClaim
	StorageClasses         []*storagev1.StorageClass
	CSINodes               []*storagev1.CSINode
	CSIDrivers             []*storagev1.CSIDriver
	StorageCapacities      []*storagev1.CSIStorageCapacity
	Attachments            []*storagev1.VolumeAttachment
	Leases                 []*coordinationv1.Lease
	ResourceClaims         []*resourceapi.ResourceClaim
	ClaimTemplates         []*resourceapi.ResourceClaimTemplate
	DeviceClasses          []*resourceapi.DeviceClass
	ResourceSlices         []*resourceapi.ResourceSlice
	TaintRules             []*resourceapi.DeviceTaintRule
	PodGroups              []*schedulingv1beta1.PodGroup
	Workloads              []*schedulingv1beta1.Workload
	Deployments            []*appsv1.Deployment
	DaemonSets             []*appsv1.DaemonSet
	Jobs                   []*batchv1.Job

	digests   []*nodetable.Pod                       // of Pods in order
	uncounted map[*policyv1.PodDisruptionBudget]bool // given without a status
}

// kind is a kind of objects in one version.
type kind struct {
	namespaced bool
	// decode decodes a document, and returns the fields that are not known, and a
	// function that adds the object to its list.
	decode func(document *manifest.Document) (object metav1.Object, add func(), unknown []error, err error)
}

type object[T any] interface {
	*T
	metav1.Object
}

func kindOf[T any, P object[T]](objects *[]P, namespaced bool) kind {
	return kind{namespaced, func(document *manifest.Document) (metav1.Object, func(), []error, error) {
		object := P(new(T))
		unknown, err := document.DecodeLeniently(object)
		return object, func() { *objects = append(*objects, object) }, unknown, err
	}}
}

// converted is a kind in another version than that of its list.
func converted[In, T any, P object[T]](objects *[]P, namespaced bool, convert func(*In, *T, conversion.Scope) error) kind {
	return kind{namespaced, func(document *manifest.Document) (metav1.Object, func(), []error, error) {
		in, object := new(In), P(new(T))
		unknown, err := document.DecodeLeniently(in)
		err = errors.Join(err, convert(in, object, nil))
		return object, func() { *objects = append(*objects, object) }, unknown, err
	}}
}

// budgets are PodDisruptionBudgets. Those without a status are remembered.
func (o *Objects) budgets() kind {
	plain := kindOf(&o.DisruptionBudgets, true)
	return kind{true, func(document *manifest.Document) (metav1.Object, func(), []error, error) {
		object, add, unknown, err := plain.decode(document)
		var fields map[string]any
		if document.Decode(&fields) == nil && fields["status"] == nil {
			o.uncounted[object.(*policyv1.PodDisruptionBudget)] = true
		}
		return object, add, unknown, err
	}}
}

func (o *Objects) kinds() map[metav1.TypeMeta]kind {
	kinds := map[metav1.TypeMeta]kind{}
	for version, of := range map[string]map[string]kind{
		"v1": {
			"Node": kindOf(&o.Nodes, false), "Pod": kindOf(&o.Pods, true), "Namespace": kindOf(&o.Namespaces, false), "Service": kindOf(&o.Services, true),
			"ReplicationController": kindOf(&o.ReplicationControllers, true), "PersistentVolume": kindOf(&o.Volumes, false), "PersistentVolumeClaim": kindOf(&o.Claims, true),
		},
		"apps/v1": {
			"ReplicaSet": kindOf(&o.ReplicaSets, true), "StatefulSet": kindOf(&o.StatefulSets, true),
			"Deployment": kindOf(&o.Deployments, true), "DaemonSet": kindOf(&o.DaemonSets, true),
		},
		"batch/v1":             {"Job": kindOf(&o.Jobs, true)},
		"scheduling.k8s.io/v1": {"PriorityClass": kindOf(&o.PriorityClasses, false)},
		"node.k8s.io/v1":       {"RuntimeClass": kindOf(&o.RuntimeClasses, false)},
		"policy/v1":            {"PodDisruptionBudget": o.budgets()},
		"storage.k8s.io/v1": {
			"StorageClass": kindOf(&o.StorageClasses, false), "CSINode": kindOf(&o.CSINodes, false), "CSIDriver": kindOf(&o.CSIDrivers, false),
			"CSIStorageCapacity": kindOf(&o.StorageCapacities, true), "VolumeAttachment": kindOf(&o.Attachments, false),
		},
		"coordination.k8s.io/v1": {"Lease": kindOf(&o.Leases, true)},
		"resource.k8s.io/v1": {
			"ResourceClaim": kindOf(&o.ResourceClaims, true), "ResourceClaimTemplate": kindOf(&o.ClaimTemplates, true), "DeviceClass": kindOf(&o.DeviceClasses, false),
			"ResourceSlice": kindOf(&o.ResourceSlices, false), "DeviceTaintRule": kindOf(&o.TaintRules, false),
		},
		"resource.k8s.io/v1beta2": {
			"ResourceClaim":         converted(&o.ResourceClaims, true, v1beta2.Convert_v1beta2_ResourceClaim_To_v1_ResourceClaim),
			"ResourceClaimTemplate": converted(&o.ClaimTemplates, true, v1beta2.Convert_v1beta2_ResourceClaimTemplate_To_v1_ResourceClaimTemplate),
			"DeviceClass":           converted(&o.DeviceClasses, false, v1beta2.Convert_v1beta2_DeviceClass_To_v1_DeviceClass),
			"ResourceSlice":         converted(&o.ResourceSlices, false, v1beta2.Convert_v1beta2_ResourceSlice_To_v1_ResourceSlice),
			"DeviceTaintRule":       converted(&o.TaintRules, false, v1beta2.Convert_v1beta2_DeviceTaintRule_To_v1_DeviceTaintRule),
		},
		"resource.k8s.io/v1beta1": {
			"ResourceClaim":         converted(&o.ResourceClaims, true, v1beta1.Convert_v1beta1_ResourceClaim_To_v1_ResourceClaim),
			"ResourceClaimTemplate": converted(&o.ClaimTemplates, true, v1beta1.Convert_v1beta1_ResourceClaimTemplate_To_v1_ResourceClaimTemplate),
			"DeviceClass":           converted(&o.DeviceClasses, false, v1beta1.Convert_v1beta1_DeviceClass_To_v1_DeviceClass),
			"ResourceSlice":         converted(&o.ResourceSlices, false, v1beta1.Convert_v1beta1_ResourceSlice_To_v1_ResourceSlice),
		},
		"scheduling.k8s.io/v1beta1": {"PodGroup": kindOf(&o.PodGroups, true), "Workload": kindOf(&o.Workloads, true)},
	} {
		for name, k := range of {
			kinds[metav1.TypeMeta{APIVersion: version, Kind: name}] = k
		}
	}
	return kinds
}

// Load reads a cluster from files and directories; of directories the files .yaml,
// .yml and .json, also with .gz, at any depth, in lexical order. read reads a file, or
// standard input for -. It sets defaults as an API server does, and makes the pods that
// controllers would add. An object with a uid is stored: an API server has admitted it,
// and its unknown fields are those of another version. The warnings have these fields,
// and the number of objects that are not used. The error joins all faults with file,
// document and field.
func Load(read func(name string) ([]byte, error), paths ...string) (objects *Objects, warnings []string, err error) {
	objects = &Objects{uncounted: map[*policyv1.PodDisruptionBudget]bool{}}
	l := &loader{
		read: read, kinds: objects.kinds(), places: map[metav1.Object]string{}, names: map[string]first{}, stored: map[metav1.Object]bool{},
		unused: counts{}, unknown: map[string]counts{},
	}
	for _, path := range paths {
		l.path(path)
	}
	l.admit(objects)
	return objects, l.warnings(), errors.Join(l.faults...)
}

type loader struct {
	read    func(string) ([]byte, error)
	kinds   map[metav1.TypeMeta]kind
	places  map[metav1.Object]string // file and name of each object
	names   map[string]first         // by kind and name
	stored  map[metav1.Object]bool   // given with a uid
	unused  counts                   // objects by kind and version
	unknown map[string]counts        // of stored objects: fields by kind
	faults  []error
}

// first is the first object of a name.
type first struct {
	place string
	uid   types.UID // empty: not stored
}

// counts are numbers by name.
type counts map[string]int

func (c counts) String() string {
	var all []string
	for name, n := range admission.InOrder(c) {
		all = append(all, fmt.Sprintf("%d %s", n, name))
	}
	return strings.Join(all, ", ")
}

func (l *loader) warnings() (warnings []string) {
	for kind, fields := range admission.InOrder(l.unknown) {
		warnings = append(warnings, fmt.Sprintf("kind %s of another version: ignored: %s", kind, fields))
	}
	if len(l.unused) > 0 {
		warnings = append(warnings, "objects of kinds that are not used: "+l.unused.String())
	}
	return warnings
}

// fault adds each fault of an error with its place.
func (l *loader) fault(place string, err error) {
	l.faults = append(l.faults, manifest.Faults(manifest.At(place, err))...)
}

func (l *loader) path(path string) {
	if path == "-" {
		l.file(path)
		return
	}
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		path += string(filepath.Separator) // follows a symbolic link
	}
	err := filepath.WalkDir(path, func(name string, entry fs.DirEntry, err error) error {
		given := name == path
		switch {
		case err != nil:
			return err
		case !given && strings.HasPrefix(entry.Name(), ".") && entry.IsDir():
			return filepath.SkipDir
		case given && !entry.IsDir(), isManifest(entry.Name()) && !entry.IsDir():
			l.file(name)
		}
		return nil
	})
	l.fault("", err)
}

func isManifest(name string) bool {
	return !strings.HasPrefix(name, ".") && slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(strings.TrimSuffix(name, ".gz")))
}

func (l *loader) file(name string) {
	data, err := l.read(name)
	if err != nil {
		l.fault("", err)
		return
	}
	if name == "-" {
		name = "standard input"
	}
	objects, err := manifest.Objects(data)
	l.fault(name, err)
	for i := range objects {
		o := &objects[i]
		place := name
		if o.Place != "" {
			place += ": " + o.Place
		}
		kind, known := l.kinds[o.TypeMeta]
		switch {
		case o.Kind == "" || o.APIVersion == "":
			l.fault(place, fmt.Errorf("apiVersion %q, kind %q: both are required", o.APIVersion, o.Kind))
		case known:
			l.object(place, &kind, o)
		default:
			l.unused[o.Kind+" of "+o.APIVersion]++
		}
	}
}

func (l *loader) object(place string, kind *kind, document *manifest.Object) {
	object, add, unknown, err := kind.decode(&document.Document)
	uid := object.GetUID()
	faults := admission.CompleteMeta(object, kind.namespaced)
	name := document.Kind + " " + object.GetName()
	if kind.namespaced {
		name = document.Kind + " " + object.GetNamespace() + "/" + object.GetName()
	}
	before, twice := l.names[name]
	if twice && uid != "" && uid == before.uid {
		return
	}
	l.places[object] = place + ": " + name
	l.stored[object] = uid != ""
	l.fault(l.places[object], err)
	if uid == "" {
		l.fault(l.places[object], errors.Join(unknown...))
	} else {
		l.note(document.Kind, unknown)
	}
	l.fault(l.places[object], faults.ToAggregate())
	add()
	if twice {
		l.fault(l.places[object], fmt.Errorf("is in %s already", before.place))
		return
	}
	l.names[name] = first{place, uid}
}

var index = regexp.MustCompile(`\[[0-9]+\]`)

// note counts the unknown fields of a stored object.
func (l *loader) note(kind string, unknown []error) {
	for _, field := range unknown {
		if l.unknown[kind] == nil {
			l.unknown[kind] = counts{}
		}
		l.unknown[kind][index.ReplaceAllString(field.Error(), "[]")]++
	}
}

// admit sets the defaults of all objects, referenced ones first.
func (l *loader) admit(objects *Objects) {
	classes := admission.NewClasses()
	admit(l, objects.PriorityClasses, classes.AddPriorityClass)
	admit(l, objects.RuntimeClasses, classes.AddRuntimeClass)
	each(objects.StorageClasses, classes.AddStorageClass)
	each(objects.Namespaces, admission.CompleteNamespace)
	each(objects.ReplicationControllers, admission.CompleteController)
	admit(l, objects.Nodes, admission.CompleteNode)
	l.makePods(objects)
	each(objects.Claims, func(claim *v1.PersistentVolumeClaim) {
		if !l.stored[claim] {
			classes.CompleteClaim(claim)
		}
	})
	each(objects.Volumes, admission.CompleteVolume)
	admit(l, objects.Pods, func(pod *v1.Pod) field.ErrorList {
		if l.stored[pod] && pod.Spec.Priority != nil {
			admission.CompleteStored(pod)
			return nil
		}
		return classes.CompletePod(pod)
	})
	admit(l, objects.PodGroups, func(group *schedulingv1beta1.PodGroup) field.ErrorList {
		given := group.Spec.Priority
		faults := classes.CompletePodGroup(group)
		if l.stored[group] && given != nil {
			group.Spec.Priority = given
		}
		return faults
	})
	objects.completeClaims()
	l.digest(objects)
	l.addNamespaces(objects)
}

// digest digests the pods and finds invalid selectors of objects that are no pods.
func (l *loader) digest(objects *Objects) {
	for _, pod := range objects.Pods {
		objects.digests = append(objects.digests, nodetable.NewPod(pod))
	}
	check := func(object metav1.Object, selector *metav1.LabelSelector) {
		if _, err := metav1.LabelSelectorAsSelector(selector); err != nil {
			l.fault(l.places[object], fmt.Errorf("spec.selector: %w", err))
		}
	}
	for _, o := range objects.DisruptionBudgets {
		check(o, o.Spec.Selector)
	}
	for _, o := range objects.ReplicaSets {
		check(o, o.Spec.Selector)
	}
	for _, o := range objects.StatefulSets {
		check(o, o.Spec.Selector)
	}
}

// admit completes objects. What is stored has been admitted, and has no faults.
func admit[P metav1.Object](l *loader, objects []P, complete func(P) field.ErrorList) {
	for _, object := range objects {
		if faults := complete(object); !l.stored[object] {
			l.fault(l.places[object], faults.ToAggregate())
		}
	}
}

// addNamespaces adds the namespaces of pods that are not given.
func (l *loader) addNamespaces(objects *Objects) {
	for _, pod := range objects.Pods {
		name := "Namespace " + pod.Namespace
		if _, given := l.names[name]; given {
			continue
		}
		namespace := &v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: pod.Namespace}}
		admission.CompleteMeta(namespace, false)
		admission.CompleteNamespace(namespace)
		objects.Namespaces = append(objects.Namespaces, namespace)
		l.names[name] = first{}
	}
}
