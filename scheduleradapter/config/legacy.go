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
	// A node has all PresentLabels and no AbsentLabels.
	PresentLabels []string `json:"presentLabels,omitempty"`
	AbsentLabels  []string `json:"absentLabels,omitempty"`
	// PresentLabelsPreference score nodes with the label, AbsentLabelsPreference
	// nodes without it.
	PresentLabelsPreference []string `json:"presentLabelsPreference,omitempty"`
	AbsentLabelsPreference  []string `json:"absentLabelsPreference,omitempty"`
}

func (a *NodeLabelArgs) DeepCopyObject() runtime.Object {
	b := *a
	return &b // pointers are never written through
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

// checkAbsence checks a label key, which must not be in the opposite list.
func checkAbsence(path *field.Path, opposite []string, label string) field.ErrorList {
	faults := metav1validation.ValidateLabelName(label, path)
	if slices.Contains(opposite, label) {
		faults = append(faults, field.Invalid(path, label, "is to be present and absent"))
	}
	return faults
}

// ServiceAffinityArgs are the arguments of the plugin ServiceAffinity: keys of node
// labels.
type ServiceAffinityArgs struct {
	metav1.TypeMeta `json:",inline"`
	// AffinityLabels have the same value on all nodes of the pods of a service.
	AffinityLabels []string `json:"affinityLabels,omitempty"`
	// AntiAffinityLabelsPreference score label values with few pods of the service.
	AntiAffinityLabelsPreference []string `json:"antiAffinityLabelsPreference,omitempty"`
}

func (a *ServiceAffinityArgs) DeepCopyObject() runtime.Object {
	b := *a
	return &b // pointers are never written through
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

// MaxVolumesVariable is the environment variable that overrides the volume limits
// of a Policy.
const MaxVolumesVariable = "KUBE_MAX_PD_VOLS"

// NodeVolumeLimitsArgs are the arguments of the plugin NodeVolumeLimits.
type NodeVolumeLimitsArgs struct {
	metav1.TypeMeta `json:",inline"`
	// CSI limits the volumes of each driver to the count of its CSINode. Default
	// true.
	CSI *bool `json:"csi,omitempty"`
	// InTree limits volumes of kinds without a CSI driver.
	InTree []InTreeLimit `json:"inTree,omitempty"`
}

// InTreeLimit is the number of volumes of a kind on a node without a limit of its
// own.
type InTreeLimit struct {
	// Plugin is one of kubernetes.io/aws-ebs, gce-pd, azure-disk and cinder.
	Plugin string `json:"plugin"`
	Count  int32  `json:"count"`
	// InstanceTypes is a regular expression that finds the label
	// node.kubernetes.io/instance-type, or its beta, of nodes with the limit
	// CountThere. Empty: none.
	InstanceTypes string `json:"instanceTypes,omitempty"`
	CountThere    int32  `json:"countThere,omitempty"`
}

func (a *NodeVolumeLimitsArgs) DeepCopyObject() runtime.Object {
	b := *a
	return &b // pointers are never written through
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
