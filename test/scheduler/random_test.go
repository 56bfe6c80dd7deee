package scheduler_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	resourceapi "k8s.io/api/resource/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes/scheme"
)

// maker draws a random world.
type maker struct {
	*rand.Rand
	items        []json.RawMessage
	nodes        []string
	namespaces   []string
	ports        map[string]bool // of nodes, that running pods have
	used         map[string]bool // claims of running pods
	limits       bool            // nodes limit the volumes of the driver
	claims       []*v1.PersistentVolumeClaim
	deviceClaims []*resourceapi.ResourceClaim
	devicesOf    []*resourceapi.ResourceSlice // of nodes
	taken        map[string]bool              // devices that claims have
	podGroups    []*schedulingv1beta1.PodGroup
	// Likelihoods in percent that a pod has a feature, so that worlds differ.
	affinity, podAffinity, spread, tolerations, volumes, devices int
}

func (m *maker) chance(percent int) bool { return m.IntN(100) < percent }

func pick[T any](m *maker, options ...T) T { return options[m.IntN(len(options))] }

// some are a random part of the options.
func some[T any](m *maker, percent int, options ...T) (chosen []T) {
	for _, o := range options {
		if m.chance(percent) {
			chosen = append(chosen, o)
		}
	}
	return chosen
}

func (m *maker) add(object runtime.Object) {
	kinds, _, err := scheme.Scheme.ObjectKinds(object)
	if err != nil {
		panic(err)
	}
	object.GetObjectKind().SetGroupVersionKind(kinds[0])
	m.items = append(m.items, encode(object))
}

// epoch is before all instants of a world.
var epoch = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)

// randomWorld is a world that follows from the seed alone.
func randomWorld(seed uint64) *world {
	m := &maker{Rand: rand.New(rand.NewPCG(seed, 0)), ports: map[string]bool{}, used: map[string]bool{}, taken: map[string]bool{}}
	often := func() int { return pick(m, 0, 10, 30, 60) }
	m.affinity, m.podAffinity, m.spread, m.tolerations, m.volumes, m.devices = often(), often(), often(), often(), often(), often()
	m.namespaces = []string{v1.NamespaceDefault}
	for _, name := range some(m, 40, "a", "b") {
		m.namespaces = append(m.namespaces, name)
		m.add(&v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: m.labels(50, "team")}})
	}
	for i := range 1 + m.IntN(8) {
		m.node(fmt.Sprintf("n%d", i))
	}
	m.owners()
	m.storage()
	m.deviceObjects()
	m.budgets()
	m.podGroupObjects()
	for i := range m.IntN(20) {
		m.pod(fmt.Sprintf("r%d", i), true)
	}
	for i := range 1 + m.IntN(6) {
		m.pod(fmt.Sprintf("p%d", i), false)
	}
	if len(m.podGroups) > 0 {
		return &world{PodGroups: true, Items: m.items}
	}
	return &world{Config: m.configuration(), Items: m.items}
}

// labels are some of those with the keys.
func (m *maker) labels(percent int, keys ...string) map[string]string {
	labels := map[string]string{}
	for _, key := range some(m, percent, keys...) {
		labels[key] = pick(m, "a", "b", "c")
	}
	return labels
}

var resources = []v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory, v1.ResourceEphemeralStorage, "example.com/gpu"}

// amount of a resource in units of which a node has up to 16.
func amount(name v1.ResourceName, n int) resource.Quantity {
	switch name {
	case v1.ResourceCPU:
		return *resource.NewMilliQuantity(int64(n)*250, resource.DecimalSI)
	case v1.ResourceMemory, v1.ResourceEphemeralStorage:
		return *resource.NewQuantity(int64(n)<<28, resource.BinarySI)
	default:
		return *resource.NewQuantity(int64(n), resource.DecimalSI)
	}
}

var images = []string{"app:1", "app:2", "registry.example.com/big"}

func (m *maker) node(name string) {
	m.nodes = append(m.nodes, name)
	node := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: m.labels(60, "disk", v1.LabelTopologyZone, v1.LabelTopologyRegion)}}
	if m.chance(90) {
		node.Labels[v1.LabelHostname] = name
	}
	if m.chance(40) {
		node.Labels["size"] = fmt.Sprint(m.IntN(4))
	}
	node.Status.Allocatable = v1.ResourceList{v1.ResourcePods: *resource.NewQuantity(int64(pick(m, 2, 4, 8, 110)), resource.DecimalSI)}
	for _, r := range resources {
		if r == v1.ResourceCPU || r == v1.ResourceMemory || m.chance(60) {
			node.Status.Allocatable[r] = amount(r, 1+m.IntN(16))
		}
	}
	node.Status.Capacity = node.Status.Allocatable
	for _, key := range some(m, 12, "dedicated", "other", "soft") {
		node.Spec.Taints = append(node.Spec.Taints, v1.Taint{Key: key, Value: pick(m, "", "a", "b"), Effect: pick(m, v1.TaintEffectNoSchedule, v1.TaintEffectPreferNoSchedule, v1.TaintEffectNoExecute)})
	}
	node.Spec.Unschedulable = m.chance(6)
	for _, image := range some(m, 40, images...) {
		node.Status.Images = append(node.Status.Images, v1.ContainerImage{Names: []string{image}, SizeBytes: int64(pick(m, 10, 100, 500, 2000)) << 20})
	}
	if m.chance(5) {
		node.Status.Conditions = append(node.Status.Conditions, v1.NodeCondition{Type: pick(m, v1.NodeMemoryPressure, v1.NodeDiskPressure, v1.NodePIDPressure), Status: v1.ConditionTrue})
	}
	m.add(node)
}

// owners are controllers and services, whose pods are spread by default.
func (m *maker) owners() {
	meta := func(name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Name: name, Namespace: pick(m, m.namespaces...)}
	}
	selector := func() *metav1.LabelSelector { return &metav1.LabelSelector{MatchLabels: m.someLabels("app", "tier")} }
	if m.chance(30) {
		m.add(&v1.Service{ObjectMeta: meta("s"), Spec: v1.ServiceSpec{Selector: m.labels(60, "app", "tier")}})
	}
	if m.chance(20) {
		m.add(&appsv1.ReplicaSet{ObjectMeta: meta("o"), Spec: appsv1.ReplicaSetSpec{Selector: selector()}})
	}
	if m.chance(20) {
		m.add(&appsv1.StatefulSet{ObjectMeta: meta("o"), Spec: appsv1.StatefulSetSpec{Selector: selector()}})
	}
	if m.chance(20) {
		m.add(&v1.ReplicationController{ObjectMeta: meta("o"), Spec: v1.ReplicationControllerSpec{Selector: m.labels(60, "app", "tier")}})
	}
}

// someLabels are one or several.
func (m *maker) someLabels(keys ...string) map[string]string {
	labels := m.labels(50, keys...)
	if len(labels) == 0 {
		labels[keys[0]] = pick(m, "a", "b", "c")
	}
	return labels
}

func (m *maker) budgets() {
	for i := range pick(m, 0, 0, 1, 2) {
		b := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("b%d", i), Namespace: pick(m, m.namespaces...)}}
		least := intstr.FromInt32(int32(m.IntN(3)))
		b.Spec.MinAvailable = &least
		b.Spec.Selector = m.selector()
		if s, _ := metav1.LabelSelectorAsSelector(b.Spec.Selector); s.Matches(labels.Set{}) { // kube-scheduler does not ask about pods without labels
			b.Spec.Selector = &metav1.LabelSelector{MatchLabels: m.someLabels("app", "tier")}
		}
		b.Status.DisruptionsAllowed = int32(m.IntN(3))
		m.add(b)
	}
}

// selector of pods; nil: none.
func (m *maker) selector() *metav1.LabelSelector {
	s := &metav1.LabelSelector{}
	switch m.IntN(8) {
	case 0:
		s.MatchExpressions = []metav1.LabelSelectorRequirement{{
			Key: pick(m, "app", "tier"), Operator: pick(m, metav1.LabelSelectorOpIn, metav1.LabelSelectorOpNotIn), Values: append(some(m, 40, "a", "b"), "c"),
		}}
	case 1:
		s.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: pick(m, "app", "tier"), Operator: pick(m, metav1.LabelSelectorOpExists, metav1.LabelSelectorOpDoesNotExist)}}
	default:
		s.MatchLabels = m.someLabels("app", "tier")
	}
	return s
}
