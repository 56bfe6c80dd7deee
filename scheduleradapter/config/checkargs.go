package config

import (
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	configv1 "k8s.io/kube-scheduler/config/v1"
)

// Bounds of several arguments.
const (
	maxPercent        = 100
	maxShapeScore     = 10
	maxResourceWeight = 100
)

func inRange(path *field.Path, value, low, high int32) (faults field.ErrorList) {
	if value < low || value > high {
		faults = append(faults, field.Invalid(path, value, fmt.Sprintf("not in valid range [%d, %d]", low, high)))
	}
	return faults
}

func checkPreemption(path *field.Path, args *configv1.DefaultPreemptionArgs) field.ErrorList {
	percentage, absolute := path.Child("minCandidateNodesPercentage"), path.Child("minCandidateNodesAbsolute")
	faults := inRange(percentage, *args.MinCandidateNodesPercentage, 0, maxPercent)
	if *args.MinCandidateNodesAbsolute < 0 {
		faults = append(faults, field.Invalid(absolute, *args.MinCandidateNodesAbsolute, "not in valid range [0, inf)"))
	}
	if *args.MinCandidateNodesPercentage == 0 && *args.MinCandidateNodesAbsolute == 0 {
		faults = append(faults,
			field.Invalid(percentage, 0, "cannot be zero at the same time as minCandidateNodesAbsolute"),
			field.Invalid(absolute, 0, "cannot be zero at the same time as minCandidateNodesPercentage"))
	}
	return faults
}

func checkInterPod(path *field.Path, args *configv1.InterPodAffinityArgs) field.ErrorList {
	return inRange(path.Child("hardPodAffinityWeight"), *args.HardPodAffinityWeight, 0, maxPercent)
}

func checkNodeAffinity(path *field.Path, args *configv1.NodeAffinityArgs) (faults field.ErrorList) {
	if args.AddedAffinity == nil {
		return nil
	}
	path = path.Child("addedAffinity")
	if required := args.AddedAffinity.RequiredDuringSchedulingIgnoredDuringExecution; required != nil {
		_, err := nodeaffinity.NewNodeSelector(required, field.WithPath(path.Child("requiredDuringSchedulingIgnoredDuringExecution")))
		faults = append(faults, list(err)...)
	}
	if preferred := args.AddedAffinity.PreferredDuringSchedulingIgnoredDuringExecution; len(preferred) > 0 {
		_, err := nodeaffinity.NewPreferredSchedulingTerms(preferred, field.WithPath(path.Child("preferredDuringSchedulingIgnoredDuringExecution")))
		faults = append(faults, list(err)...)
	}
	return faults
}

// list splits the aggregate error of nodeaffinity.
func list(err error) (faults field.ErrorList) {
	if err == nil {
		return nil
	}
	aggregate, ok := err.(utilerrors.Aggregate)
	if !ok {
		aggregate = utilerrors.NewAggregate([]error{err})
	}
	for _, fault := range utilerrors.Flatten(aggregate).Errors() {
		if f, ok := fault.(*field.Error); ok {
			faults = append(faults, f)
		}
	}
	return faults
}

func checkFit(path *field.Path, args *configv1.NodeResourcesFitArgs) (faults field.ErrorList) {
	for i, name := range args.IgnoredResources {
		faults = append(faults, metav1validation.ValidateLabelName(name, path.Child("ignoredResources").Index(i))...)
	}
	for i, group := range args.IgnoredResourceGroups {
		at := path.Child("ignoredResourceGroups").Index(i)
		if strings.Contains(group, "/") {
			faults = append(faults, field.Invalid(at, group, "resource group name can't contain '/'"))
		}
		faults = append(faults, metav1validation.ValidateLabelName(group, at)...)
	}
	return append(faults, checkStrategy(path.Child("scoringStrategy"), args.ScoringStrategy)...)
}

func checkStrategy(path *field.Path, strategy *configv1.ScoringStrategy) (faults field.ErrorList) {
	types := []configv1.ScoringStrategyType{configv1.LeastAllocated, configv1.MostAllocated, configv1.RequestedToCapacityRatio}
	if !slices.Contains(types, strategy.Type) {
		faults = append(faults, field.NotSupported(path.Child("type"), strategy.Type, types))
	}
	faults = append(faults, checkResources(path.Child("resources"), strategy.Resources)...)
	ratio := path.Child("requestedToCapacityRatio")
	switch given, wanted := strategy.RequestedToCapacityRatio != nil, strategy.Type == configv1.RequestedToCapacityRatio; {
	case given && wanted:
		faults = append(faults, checkShape(ratio.Child("shape"), strategy.RequestedToCapacityRatio.Shape)...)
	case wanted:
		faults = append(faults, field.Required(ratio, "must be specified when type is RequestedToCapacityRatio"))
	case given:
		faults = append(faults, field.Forbidden(ratio, "must be nil when type is not RequestedToCapacityRatio"))
	}
	return faults
}

func checkResources(path *field.Path, resources []configv1.ResourceSpec) (faults field.ErrorList) {
	for i, r := range resources {
		if r.Weight < 1 || r.Weight > maxResourceWeight {
			faults = append(faults, field.Invalid(path.Index(i).Child("weight"), r.Weight,
				fmt.Sprintf("resource weight of %s not in valid range (0, %d]", r.Name, maxResourceWeight)))
		}
	}
	return faults
}

func checkShape(path *field.Path, shape []configv1.UtilizationShapePoint) (faults field.ErrorList) {
	if len(shape) == 0 {
		return field.ErrorList{field.Required(path, "at least one point must be specified")}
	}
	for i, point := range shape {
		at := path.Index(i)
		if i > 0 && shape[i-1].Utilization >= point.Utilization {
			faults = append(faults, field.Invalid(at.Child("utilization"), point.Utilization, "values must be sorted in increasing order"))
		}
		faults = append(faults, inRange(at.Child("utilization"), point.Utilization, 0, maxPercent)...)
		faults = append(faults, inRange(at.Child("score"), point.Score, 0, maxShapeScore)...)
	}
	return faults
}

func checkBalanced(path *field.Path, args *configv1.NodeResourcesBalancedAllocationArgs) (faults field.ErrorList) {
	for i, r := range args.Resources {
		at := path.Child("resources").Index(i)
		if slices.ContainsFunc(args.Resources[:i], func(before configv1.ResourceSpec) bool { return before.Name == r.Name }) {
			faults = append(faults, field.Duplicate(at.Child("name"), r.Name))
		}
		if r.Weight != 1 {
			faults = append(faults, field.Invalid(at.Child("weight"), r.Weight, "must be 1"))
		}
	}
	return faults
}

func checkVolumeBinding(path *field.Path, args *configv1.VolumeBindingArgs) (faults field.ErrorList) {
	if *args.BindTimeoutSeconds < 0 {
		faults = append(faults, field.Invalid(path.Child("bindTimeoutSeconds"), *args.BindTimeoutSeconds, "invalid BindTimeoutSeconds, should not be a negative value"))
	}
	return append(faults, checkShape(path.Child("shape"), args.Shape)...)
}

func checkDevices(path *field.Path, args *configv1.DynamicResourcesArgs) (faults field.ErrorList) {
	if args.FilterTimeout.Duration < 0 {
		faults = append(faults, field.Invalid(path.Child("filterTimeout"), args.FilterTimeout, "must be zero or positive"))
	}
	if args.BindingTimeout.Duration < time.Second {
		faults = append(faults, field.Invalid(path.Child("bindingTimeout"), args.BindingTimeout, "must be at least 1 second"))
	}
	return faults
}

func checkSpread(path *field.Path, args *configv1.PodTopologySpreadArgs) (faults field.ErrorList) {
	defaulting := path.Child("defaultingType")
	switch types := []configv1.PodTopologySpreadConstraintsDefaulting{configv1.SystemDefaulting, configv1.ListDefaulting}; {
	case !slices.Contains(types, args.DefaultingType):
		faults = append(faults, field.NotSupported(defaulting, args.DefaultingType, types))
	case args.DefaultingType == configv1.SystemDefaulting && len(args.DefaultConstraints) > 0:
		faults = append(faults, field.Invalid(defaulting, args.DefaultingType, "when .defaultConstraints are not empty"))
	}
	for i := range args.DefaultConstraints {
		faults = append(faults, checkConstraint(path.Child("defaultConstraints").Index(i), args.DefaultConstraints[:i], &args.DefaultConstraints[i])...)
	}
	return faults
}

func checkConstraint(path *field.Path, before []v1.TopologySpreadConstraint, c *v1.TopologySpreadConstraint) (faults field.ErrorList) {
	if c.MaxSkew <= 0 {
		faults = append(faults, field.Invalid(path.Child("maxSkew"), c.MaxSkew, "not in valid range (0, inf)"))
	}
	if c.TopologyKey == "" {
		faults = append(faults, field.Required(path.Child("topologyKey"), "can not be empty"))
	} else {
		faults = append(faults, metav1validation.ValidateLabelName(c.TopologyKey, path.Child("topologyKey"))...)
	}
	actions := []v1.UnsatisfiableConstraintAction{v1.DoNotSchedule, v1.ScheduleAnyway}
	if c.WhenUnsatisfiable == "" {
		faults = append(faults, field.Required(path.Child("whenUnsatisfiable"), "can not be empty"))
	} else if !slices.Contains(actions, c.WhenUnsatisfiable) {
		faults = append(faults, field.NotSupported(path.Child("whenUnsatisfiable"), c.WhenUnsatisfiable, actions))
	}
	if c.LabelSelector != nil {
		faults = append(faults, field.Forbidden(path.Child("labelSelector"), "constraint must not define a selector, as they deduced for each pod"))
	}
	if slices.ContainsFunc(before, func(b v1.TopologySpreadConstraint) bool {
		return b.TopologyKey == c.TopologyKey && b.WhenUnsatisfiable == c.WhenUnsatisfiable
	}) {
		faults = append(faults, field.Duplicate(path, fmt.Sprintf("{%s, %s}", c.TopologyKey, c.WhenUnsatisfiable)))
	}
	return faults
}
