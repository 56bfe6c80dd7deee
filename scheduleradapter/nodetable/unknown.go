package nodetable

import (
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

// unknown refuses a pod with a value that a later API server may store, and which decides
// about nodes. Operators of selectors are no part of it: a term with an unknown one
// matches nothing.
func (p *PodTemplate) unknown(spec *v1.PodSpec) {
	if policy := spec.PreemptionPolicy; policy != nil {
		p.known("spec.preemptionPolicy", string(*policy), string(v1.PreemptLowerPriority), string(v1.PreemptNever))
	}
	for i := range spec.Tolerations {
		p.known(fmt.Sprintf("spec.tolerations[%d].operator", i), string(spec.Tolerations[i].Operator), string(v1.TolerationOpEqual), string(v1.TolerationOpExists))
	}
	for i := range spec.TopologySpreadConstraints {
		c, field := &spec.TopologySpreadConstraints[i], fmt.Sprintf("spec.topologySpreadConstraints[%d].", i)
		p.known(field+"whenUnsatisfiable", string(c.WhenUnsatisfiable), string(v1.DoNotSchedule), string(v1.ScheduleAnyway))
		honor, ignore := string(v1.NodeInclusionPolicyHonor), string(v1.NodeInclusionPolicyIgnore)
		p.known(field+"nodeAffinityPolicy", string(ptr.Deref(c.NodeAffinityPolicy, "")), honor, ignore)
		p.known(field+"nodeTaintsPolicy", string(ptr.Deref(c.NodeTaintsPolicy, "")), honor, ignore)
	}
	for i := range spec.Volumes {
		if v := &spec.Volumes[i]; v.VolumeSource == (v1.VolumeSource{}) {
			p.refuse(fmt.Sprintf("spec.volumes[%d] %q has a source that evictd-scheduler does not know", i, v.Name))
		}
	}
}

// known refuses a pod for a value that is neither empty nor one of those given.
func (p *PodTemplate) known(field, value string, values ...string) {
	if value != "" && !slices.Contains(values, value) {
		p.refuse(fmt.Sprintf("%s is %q, which evictd-scheduler does not know", field, value))
	}
}

// refuse keeps the first reason.
func (p *PodTemplate) refuse(why string) {
	if p.Refused == "" {
		p.Refused = why
	}
}
