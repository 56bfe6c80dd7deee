package nodetable

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
)

// SpreadConstraint is a topology spread constraint of a pod.
type SpreadConstraint struct {
	MaxSkew, MinDomains int64 // MinDomains is at least 1
	Topology            Symbol
	// Hard is DoNotSchedule, otherwise ScheduleAnyway.
	Hard bool
	// HonorNodes is nodeAffinityPolicy Honor, HonorTaints is nodeTaintsPolicy Honor.
	HonorNodes, HonorTaints bool
	// Pods are the counted pods. Self: the pod itself is one of them.
	Pods *Matcher
	Self bool
}

// NewSpreadConstraint compiles a constraint with the values of its matchLabelKeys
// in the pod's labels.
func NewSpreadConstraint(c *v1.TopologySpreadConstraint, namespace string, labels Labels) SpreadConstraint {
	var further []Label
	if c.LabelSelector != nil {
		for _, key := range c.MatchLabelKeys {
			if value, found := labels.Get(Intern(key)); found {
				further = append(further, Label{Intern(key), value})
			}
		}
	}
	selector := NewSelector(c.LabelSelector, further...)
	s := SpreadConstraint{
		MaxSkew: int64(c.MaxSkew), MinDomains: 1, Topology: Intern(c.TopologyKey), Hard: c.WhenUnsatisfiable == v1.DoNotSchedule,
		HonorNodes:  c.NodeAffinityPolicy == nil || *c.NodeAffinityPolicy == v1.NodeInclusionPolicyHonor,
		HonorTaints: c.NodeTaintsPolicy != nil && *c.NodeTaintsPolicy == v1.NodeInclusionPolicyHonor,
		Pods:        NewMatcher([]string{namespace}, nil, selector, true),
		Self:        selector.Matches(labels),
	}
	if c.MinDomains != nil {
		s.MinDomains = int64(*c.MinDomains)
	}
	return s
}

func (p *PodTemplate) digestSpread(pod *v1.Pod, labels Labels) {
	for i := range min(len(pod.Spec.TopologySpreadConstraints), MaxSpread) {
		p.Spread = append(p.Spread, NewSpreadConstraint(&pod.Spec.TopologySpreadConstraints[i], pod.Namespace, labels))
	}
}

// Term is an inter-pod affinity or anti-affinity term.
type Term struct {
	// Key is equal for equal terms, including the weight.
	Key      Symbol
	Pods     *Matcher
	Topology Symbol
	// Weight of a preferred term; 0: required.
	Weight int64
}

func newTerm(term *v1.PodAffinityTerm, weight int32, namespace string) *Term {
	namespaces := term.Namespaces
	var byLabels *Selector
	if s := term.NamespaceSelector; s != nil {
		byLabels = NewSelector(s)
	} else if len(namespaces) == 0 {
		namespaces = []string{namespace}
	}
	t := &Term{Pods: NewMatcher(namespaces, byLabels, NewSelector(term.LabelSelector), false), Topology: Intern(term.TopologyKey), Weight: int64(weight)}
	t.Key = Intern(fmt.Sprintf("%d %q %s", weight, term.TopologyKey, t.Pods.Key.Value()))
	return t
}

func (p *PodTemplate) digestAffinity(pod *v1.Pod) {
	a := pod.Spec.Affinity
	if a == nil {
		return
	}
	left := MaxTerms
	if t := a.PodAffinity; t != nil {
		p.Affinity, p.PreferredAffinity = newTerms(&left, t.RequiredDuringSchedulingIgnoredDuringExecution, t.PreferredDuringSchedulingIgnoredDuringExecution, pod.Namespace)
	}
	if len(p.Affinity) > 0 {
		matchers := make([]*Matcher, len(p.Affinity))
		for i, term := range p.Affinity {
			matchers[i] = term.Pods
		}
		p.Companions = AllOf(matchers)
	}
	if t := a.PodAntiAffinity; t != nil {
		p.AntiAffinity, p.PreferredAntiAffinity = newTerms(&left, t.RequiredDuringSchedulingIgnoredDuringExecution, t.PreferredDuringSchedulingIgnoredDuringExecution, pod.Namespace)
	}
}

// newTerms compiles as many terms as are left, required ones first.
func newTerms(left *int, required []v1.PodAffinityTerm, preferred []v1.WeightedPodAffinityTerm, namespace string) (hard, soft []*Term) {
	required = required[:min(len(required), *left)]
	preferred = preferred[:min(len(preferred), *left-len(required))]
	*left -= len(required) + len(preferred)
	for i := range required {
		hard = append(hard, newTerm(&required[i], 0, namespace))
	}
	for i := range preferred {
		soft = append(soft, newTerm(&preferred[i].PodAffinityTerm, preferred[i].Weight, namespace))
	}
	return hard, soft
}

func termCount(a *v1.Affinity) (n int) {
	if a == nil {
		return 0
	}
	if t := a.PodAffinity; t != nil {
		n += len(t.RequiredDuringSchedulingIgnoredDuringExecution) + len(t.PreferredDuringSchedulingIgnoredDuringExecution)
	}
	if t := a.PodAntiAffinity; t != nil {
		n += len(t.RequiredDuringSchedulingIgnoredDuringExecution) + len(t.PreferredDuringSchedulingIgnoredDuringExecution)
	}
	return n
}
