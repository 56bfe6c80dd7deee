package profile

import (
	"fmt"
	"maps"
	"reflect"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evictd/evictd/scheduleradapter/plugins/plugintest"
)

// shape is a pod of which the cluster creates many.
func (w *changingCluster) shape() *v1.Pod {
	p := w.Pod("shape")
	p.DeletionTimestamp = nil
	p.Spec.SchedulerName = plugintest.Pick(w.Dice, v1.DefaultSchedulerName, v1.DefaultSchedulerName, v1.DefaultSchedulerName, otherProfile)
	requests := v1.ResourceList{v1.ResourceCPU: resource.MustParse(plugintest.Pick(w.Dice, "10m", "20m", "300m")), v1.ResourceMemory: resource.MustParse(plugintest.Pick(w.Dice, "10Mi", "100Mi"))}
	if w.Chance(10) {
		requests["example.com/gpu"] = resource.MustParse("1")
	}
	if w.Chance(10) {
		requests = nil
	}
	p.Spec.Containers = []v1.Container{{Image: fmt.Sprint("image-", w.Random.IntN(5)), Resources: v1.ResourceRequirements{Requests: requests}}}
	if w.Chance(5) {
		p.Spec.Containers[0].Ports = []v1.ContainerPort{{HostPort: 80}}
	}
	p.Spec.Affinity = &v1.Affinity{NodeAffinity: &v1.NodeAffinity{}, PodAffinity: &v1.PodAffinity{}, PodAntiAffinity: &v1.PodAntiAffinity{}}
	if p.Status.QOSClass = v1.PodQOSBurstable; w.Chance(30) {
		p.Status.QOSClass = v1.PodQOSBestEffort
	}
	if w.Chance(10) {
		p.Spec.Tolerations = []v1.Toleration{{Operator: v1.TolerationOpExists}}
	}
	if nodes := slices.Sorted(maps.Keys(w.nodes)); w.Chance(4) {
		p.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution = &v1.NodeSelector{NodeSelectorTerms: []v1.NodeSelectorTerm{{
			MatchFields: []v1.NodeSelectorRequirement{{Key: metav1.ObjectNameField, Operator: v1.NodeSelectorOpIn, Values: []string{plugintest.Pick(w.Dice, nodes...)}}},
		}, {
			MatchFields: []v1.NodeSelectorRequirement{{Key: metav1.ObjectNameField, Operator: v1.NodeSelectorOpIn, Values: []string{plugintest.Pick(w.Dice, nodes...)}}},
		}}}
	}
	if w.Chance(25) {
		p.Spec.Affinity.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution = []v1.PreferredSchedulingTerm{{Weight: 30, Preference: v1.NodeSelectorTerm{
			MatchExpressions: []v1.NodeSelectorRequirement{{Key: "rack", Operator: v1.NodeSelectorOpIn, Values: []string{"1", plugintest.Pick(w.Dice, "2", "3")}}},
		}}}
	}
	term := func() v1.PodAffinityTerm {
		return v1.PodAffinityTerm{TopologyKey: plugintest.Pick(w.Dice, append(w.Topologies(), v1.LabelHostname)...), LabelSelector: w.Selector(), NamespaceSelector: plugintest.Pick(w.Dice, nil, w.Selector())}
	}
	if w.Chance(10) {
		p.Spec.Affinity.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution = []v1.PodAffinityTerm{term()}
	}
	if w.Chance(25) {
		p.Spec.Affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution = []v1.PodAffinityTerm{term()}
	}
	if w.Chance(15) {
		p.Spec.Affinity.PodAffinity.PreferredDuringSchedulingIgnoredDuringExecution = []v1.WeightedPodAffinityTerm{{Weight: 7, PodAffinityTerm: term()}}
	}
	if w.Chance(15) {
		p.Spec.Affinity.PodAntiAffinity.PreferredDuringSchedulingIgnoredDuringExecution = []v1.WeightedPodAffinityTerm{{Weight: 3, PodAffinityTerm: term()}, {Weight: 5, PodAffinityTerm: term()}}
	}
	for w.Chance(40) {
		p.Spec.TopologySpreadConstraints = append(p.Spec.TopologySpreadConstraints, v1.TopologySpreadConstraint{
			MaxSkew: int32(1 + w.Random.IntN(4)), TopologyKey: plugintest.Pick(w.Dice, append(w.Topologies(), v1.LabelHostname)...), LabelSelector: w.Selector(),
			WhenUnsatisfiable: plugintest.Pick(w.Dice, v1.DoNotSchedule, v1.ScheduleAnyway, v1.ScheduleAnyway),
		})
	}
	return p
}

// fillShapes makes other shapes. In clusters with close shapes, each differs from the
// first in one part.
func (w *changingCluster) fillShapes() {
	w.shapes = []*v1.Pod{w.shape()}
	for range 5 {
		w.shapes = append(w.shapes, w.another())
	}
}

func (w *changingCluster) another() *v1.Pod {
	if w.close {
		return w.variant(w.shapes[0])
	}
	if w.Chance(50) {
		return w.shape()
	}
	return w.variant(plugintest.Pick(w.Dice, w.shapes...))
}

// variant is a shape with one part that differs.
func (w *changingCluster) variant(of *v1.Pod) *v1.Pod {
	p := of.DeepCopy()
	for reflect.DeepEqual(p, of) {
		w.changePart(p)
	}
	return p
}

func (w *changingCluster) changePart(p *v1.Pod) {
	other := w.shape()
	affinity, others := p.Spec.Affinity, other.Spec.Affinity
	switch w.Random.IntN(18) {
	case 0, 1:
		p.Labels = other.Labels
	case 2:
		p.Namespace = other.Namespace
	case 3:
		p.Spec.NodeSelector = other.Spec.NodeSelector
	case 4:
		p.Spec.Containers[0].Image = other.Spec.Containers[0].Image
	case 5:
		p.Spec.InitContainers = other.Spec.Containers
	case 6:
		p.Spec.Containers[0].Resources = other.Spec.Containers[0].Resources
	case 7:
		p.Spec.Tolerations = other.Spec.Tolerations
	case 8:
		p.Spec.SchedulerName = other.Spec.SchedulerName
	case 9:
		affinity.NodeAffinity = others.NodeAffinity
	case 10:
		terms := affinity.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution
		for i := range terms {
			terms[i].Weight = int32(1 + w.Random.IntN(100))
		}
	case 11:
		p.Status.QOSClass = other.Status.QOSClass
	case 12, 13, 14:
		w.varySpread(p.Spec.TopologySpreadConstraints)
	default:
		w.varyTerms(affinity)
	}
}

func (w *changingCluster) varySpread(constraints []v1.TopologySpreadConstraint) {
	part := w.Random.IntN(3)
	for i := range constraints {
		switch c := &constraints[i]; part {
		case 0:
			c.TopologyKey = plugintest.Pick(w.Dice, w.Topologies()...)
		case 1:
			c.LabelSelector = w.Selector()
		default:
			c.WhenUnsatisfiable = plugintest.Pick(w.Dice, v1.DoNotSchedule, v1.ScheduleAnyway)
		}
	}
}

func (w *changingCluster) varyTerms(affinity *v1.Affinity) {
	own, anti := affinity.PodAffinity, affinity.PodAntiAffinity
	part := w.Random.IntN(4)
	if part == 0 {
		own.PreferredDuringSchedulingIgnoredDuringExecution, anti.PreferredDuringSchedulingIgnoredDuringExecution = anti.PreferredDuringSchedulingIgnoredDuringExecution, own.PreferredDuringSchedulingIgnoredDuringExecution
		return
	}
	vary := func(term *v1.PodAffinityTerm) {
		switch part {
		case 1:
			term.LabelSelector = w.Selector()
		case 2:
			term.TopologyKey = plugintest.Pick(w.Dice, w.Topologies()...)
		}
	}
	for _, terms := range [...][]v1.PodAffinityTerm{own.RequiredDuringSchedulingIgnoredDuringExecution, anti.RequiredDuringSchedulingIgnoredDuringExecution} {
		for i := range terms {
			vary(&terms[i])
		}
	}
	for _, terms := range [...][]v1.WeightedPodAffinityTerm{own.PreferredDuringSchedulingIgnoredDuringExecution, anti.PreferredDuringSchedulingIgnoredDuringExecution} {
		for i := range terms {
			if vary(&terms[i].PodAffinityTerm); part == 3 {
				terms[i].Weight = int32(1 + w.Random.IntN(100))
			}
		}
	}
}
