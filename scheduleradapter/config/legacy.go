package config

import (
	"regexp"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// NodeLabelArgs are the arguments of the plugin NodeLabel: keys of node labels.
type NodeLabelArgs struct {
	metav1.TypeMeta `json:",inline"`
	// PresentLabels must all be on a node, AbsentLabels must none.
	PresentLabels []string `json:"presentLabels,omitempty"`
	AbsentLabels  []string `json:"absentLabels,omitempty"`
	// PresentLabelsPreference score for a node that has them,
	// AbsentLabelsPreference for one that has not.
	PresentLabelsPreference []string `json:"presentLabelsPreference,omitempty"`
	AbsentLabelsPreference  []string `json:"absentLabelsPreference,omitempty"`
}

// DeepCopyObject copies the arguments.
func (a *NodeLabelArgs) DeepCopyObject() runtime.Object {
	b := *a
	return &b // nothing that it points to is ever changed
}

func checkNodeLabel(path *field.Path, args *NodeLabelArgs) (faults field.ErrorList) {
	for _, part := range []struct {
		name          string
		labels, other []string
	}{
		{"presentLabels", args.PresentLabels, nil},
		{"absentLabels", args.AbsentLabels, args.PresentLabels},
		{"presentLabelsPreference", args.PresentLabelsPreference, nil},
		{"absentLabelsPreference", args.AbsentLabelsPreference, args.PresentLabelsPreference},
	} {
		for i, label := range part.labels {
			faults = append(faults, checkAbsence(path.Child(part.name).Index(i), part.other, label)...)
		}
	}
	return faults
}

// checkAbsence holds the key of a label to being one, and not among those that
// are asked the opposite of.
func checkAbsence(path *field.Path, opposite []string, label string) field.ErrorList {
	faults := metav1validation.ValidateLabelName(label, path)
	if slices.Contains(opposite, label) {
		faults = append(faults, field.Invalid(path, label, "is to be present and absent"))
	}
	return faults
}

// ServiceAffinityArgs are the arguments of the plugin ServiceAffinity: keys of
// node labels.
type ServiceAffinityArgs struct {
	metav1.TypeMeta `json:",inline"`
	// AffinityLabels have one value on all nodes of a service's pods.
	AffinityLabels []string `json:"affinityLabels,omitempty"`
	// AntiAffinityLabelsPreference score for values with few of a service's pods.
	AntiAffinityLabelsPreference []string `json:"antiAffinityLabelsPreference,omitempty"`
}

// DeepCopyObject copies the arguments.
func (a *ServiceAffinityArgs) DeepCopyObject() runtime.Object {
	b := *a
	return &b // nothing that it points to is ever changed
}

func checkServiceArgs(path *field.Path, args *ServiceAffinityArgs) (faults field.ErrorList) {
	for i, label := range args.AffinityLabels {
		faults = append(faults, metav1validation.ValidateLabelName(label, path.Child("affinityLabels").Index(i))...)
	}
	for i, label := range args.AntiAffinityLabelsPreference {
		faults = append(faults, metav1validation.ValidateLabelName(label, path.Child("antiAffinityLabelsPreference").Index(i))...)
	}
	return faults
}

// MaxVolumesVariable is the environment variable that overrides how many volumes
// of each in-tree kind a node takes, where a Policy has them counted.
const MaxVolumesVariable = "KUBE_MAX_PD_VOLS"

// NodeVolumeLimitsArgs are the arguments of the plugin NodeVolumeLimits.
type NodeVolumeLimitsArgs struct {
	metav1.TypeMeta `json:",inline"`
	// CSI: a node gets no more volumes of a driver than its CSINode says. Default
	// true.
	CSI *bool `json:"csi,omitempty"`
	// InTree are kinds of volumes that are counted also where no CSI driver looks
	// after them.
	InTree []InTreeLimit `json:"inTree,omitempty"`
}

// InTreeLimit is how many volumes of a kind a node takes that does not say so
// itself.
type InTreeLimit struct {
	// Plugin is one of kubernetes.io/aws-ebs, gce-pd, azure-disk and cinder.
	Plugin string `json:"plugin"`
	Count  int32  `json:"count"`
	// InstanceTypes is a regular expression. Nodes whose label
	// node.kubernetes.io/instance-type, or its beta, matches it anywhere take
	// CountThere. Empty: none do.
	InstanceTypes string `json:"instanceTypes,omitempty"`
	CountThere    int32  `json:"countThere,omitempty"`
}

// DeepCopyObject copies the arguments.
func (a *NodeVolumeLimitsArgs) DeepCopyObject() runtime.Object {
	b := *a
	return &b // nothing that it points to is ever changed
}

func completeLimits(args *NodeVolumeLimitsArgs) { orPointer(&args.CSI, true) }

func checkLimits(path *field.Path, args *NodeVolumeLimitsArgs) (faults field.ErrorList) {
	kinds := []string{"kubernetes.io/aws-ebs", "kubernetes.io/gce-pd", "kubernetes.io/azure-disk", "kubernetes.io/cinder"}
	for i, limit := range args.InTree {
		at := path.Child("inTree").Index(i)
		switch {
		case !slices.Contains(kinds, limit.Plugin):
			faults = append(faults, field.NotSupported(at.Child("plugin"), limit.Plugin, kinds))
		case slices.ContainsFunc(args.InTree[:i], func(before InTreeLimit) bool { return before.Plugin == limit.Plugin }):
			faults = append(faults, field.Duplicate(at.Child("plugin"), limit.Plugin))
		}
		if limit.Count < 0 {
			faults = append(faults, field.Invalid(at.Child("count"), limit.Count, "must not be negative"))
		}
		if limit.CountThere < 0 {
			faults = append(faults, field.Invalid(at.Child("countThere"), limit.CountThere, "must not be negative"))
		}
		if _, err := regexp.Compile(limit.InstanceTypes); err != nil {
			faults = append(faults, field.Invalid(at.Child("instanceTypes"), limit.InstanceTypes, err.Error()))
		}
	}
	return faults
}
