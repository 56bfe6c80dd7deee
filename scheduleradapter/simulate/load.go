// Package simulate runs the scheduler on a cluster of manifests in simulated time
// and reports all decisions. It reads the manifests and does no other I/O.
package simulate

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	policyv1 "k8s.io/api/policy/v1"
	resourceapi "k8s.io/api/resource/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

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

	digests   []*nodetable.Pod                       // of Pods in order
	uncounted map[*policyv1.PodDisruptionBudget]bool // given without a status
}

// kind is the decoder of a kind.
type kind struct {
	apiVersion string
	namespaced bool
	// decode adds the object of a document to its list.
	decode func(document *manifest.Document) (metav1.Object, error)
}

// list makes the decode function of a list of objects.
func list[T any, P interface {
	*T
	metav1.Object
}](objects *[]P) func(*manifest.Document) (metav1.Object, error) {
	return func(document *manifest.Document) (metav1.Object, error) {
		object := P(new(T))
		*objects = append(*objects, object)
		return object, document.Decode(object)
	}
}

// budget adds a PodDisruptionBudget, and remembers one without a status.
func (o *Objects) budget(document *manifest.Document) (metav1.Object, error) {
	object, err := list(&o.DisruptionBudgets)(document)
	var fields map[string]any
	if document.Decode(&fields) == nil && fields["status"] == nil {
		o.uncounted[o.DisruptionBudgets[len(o.DisruptionBudgets)-1]] = true
	}
	return object, err
}

func (o *Objects) kinds() map[string]kind {
	const apps, policy, scheduling, storage, node, coordination, device, workload = "apps/v1", "policy/v1", "scheduling.k8s.io/v1", "storage.k8s.io/v1", "node.k8s.io/v1", "coordination.k8s.io/v1", "resource.k8s.io/v1", "scheduling.k8s.io/v1beta1"
	return map[string]kind{
		"Node":                  {"v1", false, list(&o.Nodes)},
		"Pod":                   {"v1", true, list(&o.Pods)},
		"Namespace":             {"v1", false, list(&o.Namespaces)},
		"Service":               {"v1", true, list(&o.Services)},
		"ReplicationController": {"v1", true, list(&o.ReplicationControllers)},
		"ReplicaSet":            {apps, true, list(&o.ReplicaSets)},
		"StatefulSet":           {apps, true, list(&o.StatefulSets)},
		"PriorityClass":         {scheduling, false, list(&o.PriorityClasses)},
		"RuntimeClass":          {node, false, list(&o.RuntimeClasses)},
		"PodDisruptionBudget":   {policy, true, o.budget},
		"PersistentVolume":      {"v1", false, list(&o.Volumes)},
		"PersistentVolumeClaim": {"v1", true, list(&o.Claims)},
		"StorageClass":          {storage, false, list(&o.StorageClasses)},
		"CSINode":               {storage, false, list(&o.CSINodes)},
		"CSIDriver":             {storage, false, list(&o.CSIDrivers)},
		"CSIStorageCapacity":    {storage, true, list(&o.StorageCapacities)},
		"VolumeAttachment":      {storage, false, list(&o.Attachments)},
		"Lease":                 {coordination, true, list(&o.Leases)},
		"ResourceClaim":         {device, true, list(&o.ResourceClaims)},
		"ResourceClaimTemplate": {device, true, list(&o.ClaimTemplates)},
		"DeviceClass":           {device, false, list(&o.DeviceClasses)},
		"ResourceSlice":         {device, false, list(&o.ResourceSlices)},
		"DeviceTaintRule":       {device, false, list(&o.TaintRules)},
		"PodGroup":              {workload, true, list(&o.PodGroups)},
		"Workload":              {workload, true, list(&o.Workloads)},
	}
}

// Load reads a cluster from files and directories; of directories the files .yaml,
// .yml and .json at any depth, in lexical order. It sets defaults as an API server
// does. Documents of unknown kinds are left out with a warning. The error joins all
// faults with file, document and field.
func Load(paths ...string) (objects *Objects, warnings []string, err error) {
	objects = &Objects{uncounted: map[*policyv1.PodDisruptionBudget]bool{}}
	l := &loader{kinds: objects.kinds(), places: map[metav1.Object]string{}, names: map[string]string{}}
	for _, path := range paths {
		l.path(path)
	}
	l.admit(objects)
	return objects, l.warnings, errors.Join(l.faults...)
}

type loader struct {
	kinds    map[string]kind
	places   map[metav1.Object]string // file and name of each object
	names    map[string]string        // first file of each name
	warnings []string
	faults   []error
}

// fault adds each fault of an error with its place.
func (l *loader) fault(place string, err error) {
	for _, fault := range manifest.Faults(err) {
		l.faults = append(l.faults, fmt.Errorf("%s: %w", place, fault))
	}
}

func (l *loader) path(path string) {
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
		case entry.IsDir(), !given && !isManifest(entry.Name()):
			return nil
		}
		data, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		l.file(name, data)
		return nil
	})
	if err != nil {
		l.faults = append(l.faults, err)
	}
}

func isManifest(name string) bool {
	return !strings.HasPrefix(name, ".") && slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(name))
}

func (l *loader) file(name string, data []byte) {
	documents := manifest.Split(data)
	for i, document := range documents {
		place := name
		if len(documents) > 1 {
			place = fmt.Sprintf("%s: document %d", name, i+1)
		}
		l.document(place, document, metav1.TypeMeta{})
	}
}

// document adds an object or the items of a list. An item without a type has the
// expected one.
func (l *loader) document(place string, text []byte, expected metav1.TypeMeta) {
	document, err := manifest.Parse(text)
	if err != nil {
		l.fault(place, err)
		return
	}
	about, err := document.Type()
	if err != nil {
		l.fault(place, err)
		return
	}
	if about == (metav1.TypeMeta{}) {
		about = expected
	}
	known := func(kind string) bool { k, ok := l.kinds[kind]; return ok && k.apiVersion == about.APIVersion }
	of, isList := strings.CutSuffix(about.Kind, "List")
	switch {
	case about.Kind == "" || about.APIVersion == "":
		l.faults = append(l.faults, fmt.Errorf("%s: apiVersion %q, kind %q: both are required", place, about.APIVersion, about.Kind))
	case known(about.Kind):
		l.object(place, about.Kind, &document)
	case isList && known(of):
		l.list(place, &document, metav1.TypeMeta{APIVersion: about.APIVersion, Kind: of})
	case about == (metav1.TypeMeta{APIVersion: "v1", Kind: "List"}):
		l.list(place, &document, metav1.TypeMeta{})
	default:
		l.warnings = append(l.warnings, fmt.Sprintf("%s: kind %s of %s is left out", place, about.Kind, about.APIVersion))
	}
}

// list adds the items of a list. Items without a type have that of the list.
func (l *loader) list(place string, document *manifest.Document, of metav1.TypeMeta) {
	var list struct {
		metav1.TypeMeta `json:",inline"`
		Metadata        metav1.ListMeta   `json:"metadata"`
		Items           []json.RawMessage `json:"items"`
	}
	l.fault(place, document.Decode(&list))
	for i, item := range list.Items {
		l.document(fmt.Sprintf("%s: items[%d]", place, i), item, of)
	}
}

func (l *loader) object(place, kindName string, document *manifest.Document) {
	kind := l.kinds[kindName]
	object, err := kind.decode(document)
	faults := admission.CompleteMeta(object, kind.namespaced)
	name := kindName + " " + object.GetName()
	if kind.namespaced {
		name = kindName + " " + object.GetNamespace() + "/" + object.GetName()
	}
	l.places[object] = place + ": " + name
	l.fault(l.places[object], err)
	l.fault(l.places[object], faults.ToAggregate())
	if first, twice := l.names[name]; twice {
		l.faults = append(l.faults, fmt.Errorf("%s: is in %s already", l.places[object], first))
		return
	}
	l.names[name] = place
}

// admit sets the defaults of all objects, referenced ones first.
func (l *loader) admit(objects *Objects) {
	classes := admission.NewClasses()
	admit(l, objects.PriorityClasses, classes.AddPriorityClass)
	admit(l, objects.RuntimeClasses, classes.AddRuntimeClass)
	each(objects.StorageClasses, classes.AddStorageClass)
	each(objects.Namespaces, admission.CompleteNamespace)
	each(objects.Claims, classes.CompleteClaim)
	each(objects.Volumes, admission.CompleteVolume)
	each(objects.ReplicationControllers, admission.CompleteController)
	admit(l, objects.Nodes, admission.CompleteNode)
	admit(l, objects.Pods, classes.CompletePod)
	admit(l, objects.PodGroups, classes.CompletePodGroup)
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

func admit[P metav1.Object](l *loader, objects []P, complete func(P) field.ErrorList) {
	for _, object := range objects {
		l.fault(l.places[object], complete(object).ToAggregate())
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
		l.names[name] = ""
	}
}
