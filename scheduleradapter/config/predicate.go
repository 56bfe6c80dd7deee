package config

import (
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Predicates with an argument; a file may name them freely.
const (
	checkLabelPresence   = "CheckNodeLabelPresence"
	checkServiceAffinity = "CheckServiceAffinity"
)

// predicateTerm maps a predicate to plugins.
type predicateTerm struct {
	names   []string // the first is the usual name
	plugins []string
	// needs configures the plugin, if it stands for several predicates.
	needs func(*translation)
	// isDefault: enabled if the Policy has no list. mandatory: always enabled.
	isDefault, mandatory bool
	// replacement describes the replacement of a removed predicate.
	replacement string
}

func volumesOf(plugin string, most int32) func(*translation) {
	return func(t *translation) { t.count(InTreeLimit{Plugin: plugin, Count: most}) }
}

// nitroInstanceTypes matches the instance types with 25 EBS volumes. Source: EBSNitroLimitRegex
// of pkg/volume/util; it has no later types.
const nitroInstanceTypes = "^[cmr]5.*|t3|z1d"

func volumesOfEBS(t *translation) {
	t.count(InTreeLimit{Plugin: "kubernetes.io/aws-ebs", Count: 39, InstanceTypes: nitroInstanceTypes, CountThere: 25})
}

func conditionOf(kind v1.NodeConditionType) func(*translation) {
	return func(t *translation) { t.pressure.Conditions = append(t.pressure.Conditions, kind) }
}

// predicates are those of kube-scheduler 1.22 in the order of their evaluation, and
// the condition predicates of 1.17.
var predicates = []predicateTerm{
	{names: []string{"CheckNodeCondition"}, plugins: []string{"TaintToleration"}, replacement: "nodes are tainted by condition, and TaintToleration filters by the taints"},
	{names: []string{"CheckNodeUnschedulable"}, plugins: []string{"NodeUnschedulable"}, isDefault: true, mandatory: true},
	{names: []string{"GeneralPredicates"}, plugins: []string{nodeResourcesFit, "NodeName", "NodePorts", "NodeAffinity"}, isDefault: true},
	{names: []string{"HostName"}, plugins: []string{"NodeName"}},
	{names: []string{"PodFitsHostPorts", "PodFitsPorts"}, plugins: []string{"NodePorts"}},
	{names: []string{"MatchNodeSelector"}, plugins: []string{"NodeAffinity"}},
	{names: []string{"PodFitsResources"}, plugins: []string{nodeResourcesFit}},
	{names: []string{"NoDiskConflict"}, plugins: []string{"VolumeRestrictions"}, isDefault: true},
	{names: []string{"PodToleratesNodeTaints"}, plugins: []string{"TaintToleration"}, isDefault: true, mandatory: true},
	{names: []string{"PodToleratesNodeNoExecuteTaints"}, plugins: []string{"TaintToleration"}, replacement: "TaintToleration also filters by NoSchedule taints"},
	{names: []string{checkLabelPresence}, plugins: []string{nodeLabel}},
	{names: []string{checkServiceAffinity}, plugins: []string{serviceAffinity}},
	{names: []string{"MaxEBSVolumeCount"}, plugins: []string{nodeVolumeLimits}, needs: volumesOfEBS, isDefault: true},
	{names: []string{"MaxGCEPDVolumeCount"}, plugins: []string{nodeVolumeLimits}, needs: volumesOf("kubernetes.io/gce-pd", 16), isDefault: true},
	{names: []string{"MaxCSIVolumeCountPred"}, plugins: []string{nodeVolumeLimits}, needs: func(t *translation) { t.volumes.CSI = new(true) }, isDefault: true},
	{names: []string{"MaxAzureDiskVolumeCount"}, plugins: []string{nodeVolumeLimits}, needs: volumesOf("kubernetes.io/azure-disk", 16), isDefault: true},
	{names: []string{"MaxCinderVolumeCount"}, plugins: []string{nodeVolumeLimits}, needs: volumesOf("kubernetes.io/cinder", 256)},
	{names: []string{"CheckVolumeBinding"}, plugins: []string{"VolumeBinding"}, isDefault: true},
	{names: []string{"NoVolumeNodeConflict"}, plugins: []string{"VolumeBinding"}, replacement: "VolumeBinding filters by the node affinity of volumes"},
	{names: []string{"NoVolumeZoneConflict"}, plugins: []string{"VolumeZone"}, isDefault: true},
	{names: []string{"CheckNodeMemoryPressure"}, plugins: []string{nodePressure}, needs: conditionOf(v1.NodeMemoryPressure)},
	{names: []string{"CheckNodePIDPressure"}, plugins: []string{nodePressure}, needs: conditionOf(v1.NodePIDPressure)},
	{names: []string{"CheckNodeDiskPressure"}, plugins: []string{nodePressure}, needs: conditionOf(v1.NodeDiskPressure)},
	{names: []string{"EvenPodsSpread"}, plugins: []string{podTopologySpread}, isDefault: true},
	{names: []string{"MatchInterPodAffinity"}, plugins: []string{interPodAffinity}, isDefault: true},
}

// filter enables the plugins of predicates in the order of evaluation.
func (t *translation) filter(path *field.Path, named []predicate) {
	at := map[string]*field.Path{} // by usual name
	for i := range named {
		name := t.predicate(path.Index(i), &named[i])
		if at[name] == nil {
			at[name] = path.Index(i)
		}
	}
	for i := range predicates {
		p := &predicates[i]
		here, isNamed := at[p.names[0]]
		if !isNamed && !p.mandatory && !(named == nil && p.isDefault) {
			continue
		}
		if p.replacement != "" {
			t.warn(here.Child("name"), "%s was removed: %s", p.names[0], p.replacement)
		}
		if p.needs != nil {
			p.needs(t)
		}
		for _, plugin := range p.plugins {
			t.enable(plugin)
		}
	}
}

// predicate is the usual name of a predicate; empty: it is invalid.
func (t *translation) predicate(path *field.Path, p *predicate) string {
	if a := p.Argument; a != nil {
		path = path.Child("argument")
		switch {
		case (a.ServiceAffinity == nil) == (a.LabelsPresence == nil):
			t.faults = append(t.faults, field.Required(path, "exactly one of serviceAffinity and labelsPresence"))
		case a.ServiceAffinity != nil:
			t.services.AffinityLabels = append(t.services.AffinityLabels, a.ServiceAffinity.Labels...)
			return checkServiceAffinity
		default:
			t.presence(path.Child("labelsPresence", "labels"), a.LabelsPresence.Labels, a.LabelsPresence.Presence)
			return checkLabelPresence
		}
		return ""
	}
	i := slices.IndexFunc(predicates, func(known predicateTerm) bool { return slices.Contains(known.names, p.Name) })
	switch {
	case i < 0:
		t.invalid(path.Child("name"), p.Name, "there is no such predicate")
		return ""
	case p.Name == checkLabelPresence || p.Name == checkServiceAffinity:
		t.warn(path, "%s without an argument checks nothing", p.Name)
		return ""
	}
	return predicates[i].names[0]
}

func (t *translation) presence(path *field.Path, labels []string, present bool) {
	into, other := &t.labels.PresentLabels, t.labels.AbsentLabels
	if !present {
		into, other = &t.labels.AbsentLabels, t.labels.PresentLabels
	}
	for i, label := range labels {
		if !t.fault(checkAbsence(path.Index(i), other, label)) {
			*into = append(*into, label)
		}
	}
}
