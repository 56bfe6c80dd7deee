package nodetable

import (
	"fmt"
	"math/rand/v2"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// generator makes random nodes and pods with few distinct labels, so that selectors
// often match.
type generator struct{ *rand.Rand }

var (
	zoneNames      = []string{"a", "b", "c"}
	keyNames       = []string{"app", "tier", "size"}
	valueNames     = []string{"1", "2", "x", "7"}
	namespaceNames = []string{"blue", "green", "red"}
	topologyNames  = []string{v1.LabelHostname, v1.LabelTopologyZone, "tier"}
	extendedNames  = []v1.ResourceName{"example.org/gpu", "hugepages-2Mi"}
	imageNames     = []string{"reg:5000/web:latest", "db:2", "cache:latest"}
	effects        = []v1.TaintEffect{v1.TaintEffectNoSchedule, v1.TaintEffectNoExecute, v1.TaintEffectPreferNoSchedule}
)

func pick[T any](g generator, of []T) T { return of[g.IntN(len(of))] }

func (g generator) chance(percent int) bool { return g.IntN(100) < percent }

func (g generator) labels() map[string]string {
	labels := map[string]string{}
	for _, key := range keyNames {
		if g.chance(50) {
			labels[key] = pick(g, valueNames)
		}
	}
	return labels
}

func (g generator) quantities(max int64, extended int) v1.ResourceList {
	list := v1.ResourceList{}
	for _, name := range []v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory, v1.ResourceEphemeralStorage} {
		if g.chance(70) {
			list[name] = *resource.NewMilliQuantity(g.Int64N(max*1000), resource.DecimalSI)
		}
	}
	for _, name := range extendedNames {
		if g.chance(extended) {
			list[name] = *resource.NewQuantity(g.Int64N(max), resource.DecimalSI)
		}
	}
	return list
}

func (g generator) node(name string) *v1.Node {
	n := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: g.labels()}}
	n.Labels[v1.LabelHostname] = name
	if g.chance(80) {
		n.Labels[v1.LabelTopologyZone] = pick(g, zoneNames)
	}
	n.Spec.Unschedulable = g.chance(10)
	for range g.IntN(3) {
		n.Spec.Taints = append(n.Spec.Taints, v1.Taint{Key: pick(g, keyNames), Value: pick(g, valueNames), Effect: pick(g, effects)})
	}
	n.Status.Allocatable = g.quantities(64, 30)
	n.Status.Allocatable[v1.ResourcePods] = *resource.NewQuantity(110, resource.DecimalSI)
	for _, image := range imageNames {
		if g.chance(30) {
			n.Status.Images = append(n.Status.Images, v1.ContainerImage{Names: []string{image, image + "@digest"}, SizeBytes: 1000 + g.Int64N(1000)})
		}
	}
	return n
}

func (g generator) selector() *metav1.LabelSelector {
	if g.chance(5) {
		return nil
	}
	s := &metav1.LabelSelector{}
	if g.chance(60) {
		s.MatchLabels = map[string]string{pick(g, keyNames): pick(g, valueNames)}
	}
	for range g.IntN(2) {
		e := metav1.LabelSelectorRequirement{Key: pick(g, keyNames)}
		e.Operator = pick(g, []metav1.LabelSelectorOperator{metav1.LabelSelectorOpIn, metav1.LabelSelectorOpNotIn, metav1.LabelSelectorOpExists, metav1.LabelSelectorOpDoesNotExist})
		if e.Operator == metav1.LabelSelectorOpIn || e.Operator == metav1.LabelSelectorOpNotIn {
			e.Values = []string{pick(g, valueNames), pick(g, valueNames)}
		}
		s.MatchExpressions = append(s.MatchExpressions, e)
	}
	return s
}

func (g generator) term() v1.PodAffinityTerm {
	t := v1.PodAffinityTerm{LabelSelector: g.selector(), TopologyKey: pick(g, topologyNames)}
	if g.chance(20) {
		t.Namespaces = []string{pick(g, namespaceNames)}
	}
	if g.chance(30) {
		t.NamespaceSelector = g.selector()
	}
	return t
}

func (g generator) terms() (required []v1.PodAffinityTerm, preferred []v1.WeightedPodAffinityTerm) {
	for range g.IntN(3) {
		required = append(required, g.term())
	}
	for range g.IntN(3) {
		preferred = append(preferred, v1.WeightedPodAffinityTerm{Weight: 1 + g.Int32N(3), PodAffinityTerm: g.term()})
	}
	return required, preferred
}

func (g generator) nodeTerm(names []string) (t v1.NodeSelectorTerm) {
	for range g.IntN(3) {
		e := v1.NodeSelectorRequirement{Key: pick(g, append(keyNames, v1.LabelTopologyZone))}
		e.Operator = pick(g, []v1.NodeSelectorOperator{v1.NodeSelectorOpIn, v1.NodeSelectorOpNotIn, v1.NodeSelectorOpExists, v1.NodeSelectorOpDoesNotExist, v1.NodeSelectorOpGt, v1.NodeSelectorOpLt})
		switch e.Operator {
		case v1.NodeSelectorOpIn, v1.NodeSelectorOpNotIn:
			e.Values = []string{pick(g, valueNames), pick(g, zoneNames)}
		case v1.NodeSelectorOpGt, v1.NodeSelectorOpLt:
			e.Values = []string{fmt.Sprint(g.IntN(8))}
		}
		t.MatchExpressions = append(t.MatchExpressions, e)
	}
	if g.chance(30) {
		t.MatchFields = append(t.MatchFields, v1.NodeSelectorRequirement{
			Key: metav1.ObjectNameField, Operator: pick(g, []v1.NodeSelectorOperator{v1.NodeSelectorOpIn, v1.NodeSelectorOpNotIn}), Values: []string{pick(g, names)},
		})
	}
	return t
}

func (g generator) volume() (v v1.Volume) {
	name := pick(g, valueNames)
	switch g.IntN(3) {
	case 0:
		v.PersistentVolumeClaim = &v1.PersistentVolumeClaimVolumeSource{ClaimName: name}
	case 1:
		v.GCEPersistentDisk = &v1.GCEPersistentDiskVolumeSource{PDName: name}
	case 2:
		v.Cinder = &v1.CinderVolumeSource{VolumeID: name}
	}
	return v
}

func (g generator) pod(uid string, nodes []string) *v1.Pod {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "pod-" + uid, UID: types.UID(uid), Namespace: pick(g, namespaceNames), Labels: g.labels()}}
	if g.chance(15) {
		p.DeletionTimestamp = &metav1.Time{}
	}
	always := v1.ContainerRestartPolicyAlways
	for i := range 1 + g.IntN(2) {
		c := v1.Container{Name: fmt.Sprint("c", i), Image: pick(g, imageNames), Resources: v1.ResourceRequirements{Requests: g.quantities(4, 20)}}
		if g.chance(20) {
			c.Ports = []v1.ContainerPort{{HostPort: 80 + g.Int32N(2), Protocol: pick(g, []v1.Protocol{"", v1.ProtocolUDP}), HostIP: pick(g, []string{"", "10.0.0.1", "10.0.0.2"})}}
		}
		p.Spec.Containers = append(p.Spec.Containers, c)
	}
	if g.chance(30) {
		c := v1.Container{Name: "init", Resources: v1.ResourceRequirements{Requests: g.quantities(8, 0)}}
		if g.chance(50) {
			c.RestartPolicy = &always
			c.Ports = []v1.ContainerPort{{HostPort: 82}}
		}
		p.Spec.InitContainers = append(p.Spec.InitContainers, c)
	}
	if g.chance(20) {
		p.Spec.Overhead = v1.ResourceList{v1.ResourceCPU: resource.MustParse("250m")}
	}
	if g.chance(20) {
		p.Spec.Resources = &v1.ResourceRequirements{Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse("3"), v1.ResourceMemory: resource.MustParse("1Gi")}}
	}
	for range g.IntN(3) {
		p.Spec.Volumes = append(p.Spec.Volumes, g.volume())
	}
	for range g.IntN(3) {
		p.Spec.Tolerations = append(p.Spec.Tolerations, v1.Toleration{
			Key: pick(g, keyNames), Value: pick(g, valueNames), Effect: pick(g, append(effects, "")), Operator: pick(g, []v1.TolerationOperator{"", v1.TolerationOpExists, v1.TolerationOpEqual}),
		})
	}
	if g.chance(30) {
		p.Spec.NodeSelector = map[string]string{pick(g, keyNames): pick(g, valueNames)}
	}
	a := &v1.Affinity{}
	if g.chance(30) {
		required := &v1.NodeSelector{}
		for range g.IntN(3) {
			required.NodeSelectorTerms = append(required.NodeSelectorTerms, g.nodeTerm(nodes))
		}
		a.NodeAffinity = &v1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: required}
	}
	if g.chance(40) {
		a.PodAffinity = &v1.PodAffinity{}
		a.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution, a.PodAffinity.PreferredDuringSchedulingIgnoredDuringExecution = g.terms()
	}
	if g.chance(40) {
		a.PodAntiAffinity = &v1.PodAntiAffinity{}
		a.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution, a.PodAntiAffinity.PreferredDuringSchedulingIgnoredDuringExecution = g.terms()
	}
	p.Spec.Affinity = a
	return p
}
