package config

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	configv1 "k8s.io/kube-scheduler/config/v1"
	"k8s.io/utils/ptr"

	"github.com/evictd/evictd/internal/manifest"
)

// Readers of the arguments of built-in plugins.
var (
	NodeAffinity     = reader(nil, checkNodeAffinity)
	Fit              = reader(completeFit, checkFit)
	Balanced         = reader(completeBalanced, checkBalanced)
	VolumeLimits     = readerOf(Group, completeLimits, checkLimits)
	DynamicResources = reader(completeDevices, checkDevices)
	VolumeBinding    = reader(completeVolumeBinding, checkVolumeBinding)
	TopologySpread   = reader(completeSpread, checkSpread)
	InterPodAffinity = reader(completeInterPod, checkInterPod)
	Preemption       = reader(completePreemption, checkPreemption)
	Pressure         = readerOf(Group, completePressure, checkPressure)
	NodeLabel        = readerOf(Group, nil, checkNodeLabel)
	ServiceAffinity  = readerOf(Group, nil, checkServiceArgs)
)

// reader makes the reader of an argument type. complete sets defaults; nil: there
// are none.
func reader[T any, P interface {
	*T
	runtime.Object
}](complete func(P), check func(*field.Path, P) field.ErrorList) ArgsReader {
	return readerOf(configv1.SchemeGroupVersion, complete, check)
}

// readerOf makes a reader for a group other than kube-scheduler's.
func readerOf[T any, P interface {
	*T
	runtime.Object
}](group schema.GroupVersion, complete func(P), check func(*field.Path, P) field.ErrorList) ArgsReader {
	return func(path *field.Path, raw []byte) (runtime.Object, []error) {
		var faults []error
		args := P(new(T))
		if len(raw) > 0 {
			for _, fault := range manifest.Faults(manifest.Decode(raw, args)) {
				faults = append(faults, fmt.Errorf("%s: %w", path, fault))
			}
		}
		want := group.WithKind(reflect.TypeFor[T]().Name())
		if got := args.GetObjectKind().GroupVersionKind(); !got.Empty() && got != want {
			faults = append(faults, field.Invalid(path.Child("kind"), got.GroupVersion().String()+" "+got.Kind, "expected "+want.GroupVersion().String()+" "+want.Kind))
		}
		args.GetObjectKind().SetGroupVersionKind(want)
		if complete != nil {
			complete(args)
		}
		for _, fault := range check(path, args) {
			faults = append(faults, fault)
		}
		return args, faults
	}
}

func completePreemption(args *configv1.DefaultPreemptionArgs) {
	orPointer(&args.MinCandidateNodesPercentage, 10)
	orPointer(&args.MinCandidateNodesAbsolute, 100)
}

func completeInterPod(args *configv1.InterPodAffinityArgs) {
	orPointer(&args.HardPodAffinityWeight, 1)
}

func completeSpread(args *configv1.PodTopologySpreadArgs) {
	args.DefaultingType = cmp.Or(args.DefaultingType, configv1.SystemDefaulting)
}

func completeBalanced(args *configv1.NodeResourcesBalancedAllocationArgs) {
	args.Resources = orResources(args.Resources)
}

// completeFit sets no default strategy if one is given without a type:
// kube-scheduler rejects it too.
func completeFit(args *configv1.NodeResourcesFitArgs) {
	if args.ScoringStrategy == nil {
		args.ScoringStrategy = &configv1.ScoringStrategy{Type: configv1.LeastAllocated}
	}
	args.ScoringStrategy.Resources = orResources(args.ScoringStrategy.Resources)
}

func completeVolumeBinding(args *configv1.VolumeBindingArgs) {
	orPointer(&args.BindTimeoutSeconds, 600)
	if len(args.Shape) == 0 {
		args.Shape = []configv1.UtilizationShapePoint{{Utilization: 0, Score: maxShapeScore}, {Utilization: 100, Score: 0}}
	}
}

func completeDevices(args *configv1.DynamicResourcesArgs) {
	orPointer(&args.FilterTimeout, metav1.Duration{Duration: configv1.DynamicResourcesFilterTimeoutDefault})
	orPointer(&args.BindingTimeout, metav1.Duration{Duration: configv1.DynamicResourcesBindingTimeoutDefault})
}

func orPointer[T any](value **T, otherwise T) {
	*value = new(ptr.Deref(*value, otherwise))
}

// orResources defaults to cpu and memory, and a missing weight to 1.
func orResources(resources []configv1.ResourceSpec) []configv1.ResourceSpec {
	if len(resources) == 0 {
		return []configv1.ResourceSpec{{Name: string(v1.ResourceCPU), Weight: 1}, {Name: string(v1.ResourceMemory), Weight: 1}}
	}
	for i := range resources {
		resources[i].Weight = cmp.Or(resources[i].Weight, 1)
	}
	return resources
}

// ignoreResources adds the resources with ignoredByScheduler of extenders to the
// ignoredResources of NodeResourcesFit.
func ignoreResources(profiles []Profile, extenders []Extender) {
	var ignored []string
	for _, e := range extenders {
		ignored = append(ignored, e.IgnoredResources...)
	}
	for _, profile := range profiles {
		i := slices.IndexFunc(profile.Plugins, func(i Instance) bool { return i.Name == nodeResourcesFit })
		if i < 0 {
			continue
		}
		if args, ok := profile.Plugins[i].Args.(*configv1.NodeResourcesFitArgs); ok {
			args.IgnoredResources = append(args.IgnoredResources, ignored...)
		}
	}
}
