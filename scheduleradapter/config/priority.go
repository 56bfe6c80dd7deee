package config

import (
	"fmt"
	"math"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"
	configv1 "k8s.io/kube-scheduler/config/v1"
)

// priorityTerm maps a priority to a plugin.
type priorityTerm struct {
	name          string
	plugin        string
	strategy      configv1.ScoringStrategyType // for a plugin with several strategies
	needs         func(*translation)
	defaultWeight int64 // weight if the Policy has no list; 0: not enabled
	replacement   string
}

// equalPriority scored all nodes the same; no plugin replaces it.
const equalPriority = "EqualPriority"

// priorities are those of kube-scheduler 1.22. If several stand for a plugin, the
// weight of the first in this order applies.
var priorities = []priorityTerm{
	{name: "EvenPodsSpreadPriority", plugin: podTopologySpread, defaultWeight: 2},
	{name: "SelectorSpreadPriority", plugin: podTopologySpread, needs: systemSpread, defaultWeight: 1, replacement: "PodTopologySpread spreads by its system defaults"},
	{name: "ServiceSpreadingPriority", plugin: podTopologySpread, needs: systemSpread, replacement: "PodTopologySpread spreads by its system defaults"},
	{name: "InterPodAffinityPriority", plugin: interPodAffinity, defaultWeight: 1},
	{name: "LeastRequestedPriority", plugin: "NodeResourcesLeastAllocated", strategy: configv1.LeastAllocated, defaultWeight: 1},
	{name: "MostRequestedPriority", plugin: "NodeResourcesMostAllocated", strategy: configv1.MostAllocated},
	{name: "BalancedResourceAllocation", plugin: "NodeResourcesBalancedAllocation", defaultWeight: 1},
	{name: "NodePreferAvoidPodsPriority", plugin: nodePreferAvoidPods, defaultWeight: 10000},
	{name: "NodeAffinityPriority", plugin: "NodeAffinity", defaultWeight: 1},
	{name: "TaintTolerationPriority", plugin: "TaintToleration", defaultWeight: 1},
	{name: "ImageLocalityPriority", plugin: "ImageLocality", defaultWeight: 1},
}

func systemSpread(t *translation) { t.spread.DefaultingType = configv1.SystemDefaulting }

// score enables the plugins of priorities.
func (t *translation) score(path *field.Path, named []priority) {
	at := map[string]int{}
	for i := range named {
		p, here := &named[i], path.Index(i)
		before, twice := at[p.Name]
		switch {
		case p.Weight < 1 || p.Weight > math.MaxInt32:
			t.invalid(here.Child("weight"), p.Weight, fmt.Sprintf("not in valid range [1, %d]", math.MaxInt32))
		case p.Argument != nil:
			t.argument(here, p)
		case p.Name == equalPriority:
		case !slices.ContainsFunc(priorities, func(known priorityTerm) bool { return known.name == p.Name }):
			t.invalid(here.Child("name"), p.Name, "there is no such priority")
		case twice && named[before].Weight != p.Weight:
			t.invalid(here.Child("weight"), p.Weight, "is another than that of "+path.Index(before).String())
		default:
			at[p.Name] = i
		}
	}
	for i := range priorities {
		p := &priorities[i]
		weight, here := p.defaultWeight, (*field.Path)(nil)
		if named != nil {
			i, isNamed := at[p.name]
			if !isNamed {
				continue
			}
			weight, here = named[i].Weight, path.Index(i)
			if p.replacement != "" {
				t.warn(here.Child("name"), "%s was removed: %s", p.name, p.replacement)
			}
		}
		if weight == 0 {
			continue
		}
		if p.needs != nil {
			p.needs(t)
		}
		if p.strategy != "" {
			t.follow(here, p.plugin, weight, configv1.ScoringStrategy{Type: p.strategy})
		} else {
			t.weigh(here, p.plugin, weight)
		}
	}
	for _, plugin := range []string{nodeLabel, serviceAffinity} {
		if s, preferred := t.shared[plugin]; preferred {
			t.weigh(s.path, plugin, s.weight*s.times)
		}
	}
}

func (a *priorityArgument) isOne() bool {
	n := 0
	for _, given := range []bool{a.ServiceAntiAffinity != nil, a.LabelPreference != nil, a.RequestedToCapacityRatioArguments != nil} {
		if given {
			n++
		}
	}
	return n == 1
}

func (t *translation) argument(path *field.Path, p *priority) {
	at, a := path.Child("argument"), p.Argument
	switch ratio := a.RequestedToCapacityRatioArguments; {
	case !a.isOne():
		t.faults = append(t.faults, field.Required(at, "exactly one of serviceAntiAffinity, labelPreference and requestedToCapacityRatioArguments"))
	case a.ServiceAntiAffinity != nil:
		t.services.AntiAffinityLabelsPreference = append(t.services.AntiAffinityLabelsPreference, a.ServiceAntiAffinity.Label)
		t.share(path, serviceAffinity, p.Weight)
	case a.LabelPreference != nil:
		t.preference(at.Child("labelPreference", "label"), a.LabelPreference.Label, a.LabelPreference.Presence)
		t.share(path, nodeLabel, p.Weight)
	case slices.ContainsFunc(t.fits, func(f fit) bool { return f.strategy.Type == configv1.RequestedToCapacityRatio }):
		t.faults = append(t.faults, field.Duplicate(at, "requestedToCapacityRatioArguments"))
	default:
		s := configv1.ScoringStrategy{
			Type: configv1.RequestedToCapacityRatio, Resources: orResources(ratio.Resources),
			RequestedToCapacityRatio: &configv1.RequestedToCapacityRatioParam{Shape: ratio.Shape},
		}
		at = at.Child("requestedToCapacityRatioArguments")
		if !t.fault(append(checkShape(at.Child("shape"), ratio.Shape), checkResources(at.Child("resources"), s.Resources)...)) {
			t.follow(path, "RequestedToCapacityRatio", p.Weight, s)
		}
	}
}

// share adds a priority to those that share a plugin. They have one weight; the
// score of the plugin is their average and is multiplied by their number.
func (t *translation) share(path *field.Path, plugin string, weight int64) {
	s, preferred := t.shared[plugin]
	switch {
	case !preferred:
		s = shared{path, weight, 0}
	case s.weight != weight:
		t.invalid(path.Child("weight"), weight, fmt.Sprintf("must be that of %s, %d", s.path, s.weight))
	}
	s.times++
	t.shared[plugin] = s
}

func (t *translation) preference(path *field.Path, label string, present bool) {
	into, other := &t.labels.PresentLabelsPreference, t.labels.AbsentLabelsPreference
	if !present {
		into, other = &t.labels.AbsentLabelsPreference, t.labels.PresentLabelsPreference
	}
	if !t.fault(checkAbsence(path, other, label)) {
		*into = append(*into, label)
	}
}

// follow gives NodeResourcesFit the first strategy, and each further one a plugin
// of its own.
func (t *translation) follow(path *field.Path, plugin string, weight int64, s configv1.ScoringStrategy) {
	if len(t.fits) == 0 {
		plugin = nodeResourcesFit
	}
	t.fits = append(t.fits, fit{plugin, s})
	t.weigh(path, plugin, weight)
}
