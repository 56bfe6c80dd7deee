package scheduler_test

import (
	"bytes"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

func (m *maker) pod(name string, running bool) {
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: pick(m, m.namespaces...), Labels: m.labels(70, "app", "tier", "rev")}}
	s := &pod.Spec
	for i := range pick(m, 1, 1, 1, 2) {
		s.Containers = append(s.Containers, m.container("c"+string(rune('0'+i))))
	}
	if m.chance(15) {
		c := m.container("i")
		if m.chance(50) {
			c.RestartPolicy = new(v1.ContainerRestartPolicyAlways)
		}
		s.InitContainers = append(s.InitContainers, c)
	}
	if m.chance(6) {
		s.Overhead = m.amounts(60)
	}
	if m.chance(8) {
		s.Resources = &v1.ResourceRequirements{Requests: v1.ResourceList{v1.ResourceCPU: amount(v1.ResourceCPU, 8+m.IntN(8)), v1.ResourceMemory: amount(v1.ResourceMemory, 16)}}
	}
	s.Priority = pick(m, nil, new(int32(0)), new(int32(10)), new(int32(100)), new(int32(-5)))
	if m.chance(10) {
		s.PreemptionPolicy = new(v1.PreemptNever)
	}
	m.join(pod, running)
	s.TerminationGracePeriodSeconds = new(int64(pick(m, 0, 1, 30)))
	if m.chance(30) {
		kind := pick(m, "ReplicaSet", "StatefulSet", "ReplicationController")
		version := "apps/v1"
		if kind == "ReplicationController" {
			version = "v1"
		}
		pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: version, Kind: kind, Name: "o", UID: types.UID(kind), Controller: new(true)}}
	}
	m.constraints(s)
	if running {
		s.NodeName = pick(m, m.nodes...)
	}
	m.mounts(pod)
	pod.CreationTimestamp = metav1.NewTime(epoch.Add(time.Duration(m.IntN(1000)) * time.Second))
	if running {
		pod.Status.StartTime = new(metav1.NewTime(epoch.Add(time.Duration(m.IntN(1_000_000)) * time.Millisecond).Truncate(time.Second)))
		pod.Status.Phase = pick(m, v1.PodRunning, v1.PodRunning, v1.PodRunning, v1.PodSucceeded)
		if m.chance(6) {
			pod.DeletionTimestamp, pod.DeletionGracePeriodSeconds = new(metav1.NewTime(epoch.Add(time.Hour))), new(int64(30))
			if m.chance(50) {
				pod.Status.Conditions = append(pod.Status.Conditions, v1.PodCondition{Type: v1.DisruptionTarget, Status: v1.ConditionTrue, Reason: v1.PodReasonPreemptionByScheduler})
			}
		}
		m.resize(pod)
	} else {
		m.uses(pod)
		if m.chance(10) && !narrows(pod) {
			pod.Status.NominatedNodeName = pick(m, m.nodes...)
		}
		if m.chance(4) {
			s.SchedulingGates = []v1.PodSchedulingGate{{Name: "wait"}}
		}
	}
	if running {
		m.freePorts(pod)
	}
	m.add(pod)
}

// narrows says whether PreFilter may exclude nodes for a pod.
func narrows(pod *v1.Pod) bool {
	return len(pod.Spec.Volumes) > 0 || bytes.Contains(encode(pod.Spec.Affinity), []byte("matchFields"))
}

// resize makes the resources that a pod has differ from those that its spec asks for.
func (m *maker) resize(pod *v1.Pod) {
	if !m.chance(10) {
		return
	}
	for _, c := range pod.Spec.Containers {
		s := v1.ContainerStatus{Name: c.Name, AllocatedResources: m.amounts(50)}
		if m.chance(50) {
			s.Resources = &v1.ResourceRequirements{Requests: m.amounts(50)}
		}
		pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses, s)
	}
	if pod.Spec.Resources != nil {
		pod.Status.AllocatedResources = v1.ResourceList{v1.ResourceCPU: amount(v1.ResourceCPU, 8+m.IntN(16)), v1.ResourceMemory: amount(v1.ResourceMemory, 8+m.IntN(16))}
		if m.chance(50) {
			pod.Status.Resources = &v1.ResourceRequirements{Requests: v1.ResourceList{v1.ResourceCPU: amount(v1.ResourceCPU, 8+m.IntN(16))}}
		}
	}
	if m.chance(50) {
		pod.Status.Conditions = append(pod.Status.Conditions, v1.PodCondition{Type: v1.PodResizePending, Status: v1.ConditionTrue, Reason: pick(m, v1.PodReasonDeferred, v1.PodReasonInfeasible)})
	}
}

// freePorts removes the host ports of a pod that another pod of its node has.
func (m *maker) freePorts(pod *v1.Pod) {
	for _, containers := range [][]v1.Container{pod.Spec.Containers, pod.Spec.InitContainers} {
		for _, c := range containers {
			for j := range c.Ports {
				p := &c.Ports[j]
				key := fmt.Sprint(pod.Spec.NodeName, p.HostPort, p.Protocol == v1.ProtocolUDP)
				if m.ports[key] {
					p.HostPort, p.HostIP = 0, ""
				}
				m.ports[key] = true
			}
		}
	}
}

func (m *maker) container(name string) v1.Container {
	c := v1.Container{Name: name, Image: pick(m, images...)}
	if m.chance(80) {
		c.Resources.Requests = m.amounts(50)
	}
	if m.chance(10) {
		c.Resources.Limits = v1.ResourceList{}
		for r := range c.Resources.Requests {
			c.Resources.Limits[r] = c.Resources.Requests[r]
		}
		c.Resources.Limits[v1.ResourceMemory] = amount(v1.ResourceMemory, 8)
	}
	if gpus, has := c.Resources.Requests["example.com/gpu"]; has {
		if c.Resources.Limits == nil {
			c.Resources.Limits = v1.ResourceList{}
		}
		c.Resources.Limits["example.com/gpu"] = gpus
	}
	if m.chance(10) {
		c.Ports = append(c.Ports, v1.ContainerPort{
			ContainerPort: 80, HostPort: int32(pick(m, 80, 81)), Protocol: pick(m, "", v1.ProtocolTCP, v1.ProtocolUDP), HostIP: pick(m, "", "", "127.0.0.1", "10.0.0.1"),
		})
	}
	return c
}

// amounts of some resources.
func (m *maker) amounts(percent int) v1.ResourceList {
	list := v1.ResourceList{}
	for _, r := range resources {
		likely := percent
		if r == "example.com/gpu" || r == v1.ResourceEphemeralStorage {
			likely = percent / 4
		}
		if m.chance(likely) {
			list[r] = amount(r, pick(m, 0, 1, 1, 2, 3, 4, 8))
		}
	}
	if m.chance(10) {
		list[v1.ResourceCPU] = resource.MustParse(pick(m, "1m", "10m", "333m"))
	}
	return list
}

func (m *maker) constraints(s *v1.PodSpec) {
	if m.chance(m.affinity / 3) {
		s.NodeSelector = m.someLabels("disk", v1.LabelTopologyZone)
	}
	a := &v1.Affinity{}
	if m.chance(m.affinity) {
		a.NodeAffinity = &v1.NodeAffinity{}
		if m.chance(40) {
			a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution = &v1.NodeSelector{}
			for range 1 + m.IntN(2) {
				r := a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
				term := m.nodeTerm()
				if m.chance(8) {
					term.MatchExpressions = append(term.MatchExpressions, v1.NodeSelectorRequirement{Key: "size", Operator: v1.NodeSelectorOpGt, Values: []string{"abc"}})
				}
				r.NodeSelectorTerms = append(r.NodeSelectorTerms, term)
			}
		}
		for range m.IntN(3) {
			a.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution = append(a.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution,
				v1.PreferredSchedulingTerm{Weight: int32(1 + m.IntN(100)), Preference: m.nodeTerm()})
		}
	}
	if m.chance(m.podAffinity) {
		a.PodAffinity = &v1.PodAffinity{}
		a.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution, a.PodAffinity.PreferredDuringSchedulingIgnoredDuringExecution = m.podTerms(15)
	}
	if m.chance(m.podAffinity) {
		a.PodAntiAffinity = &v1.PodAntiAffinity{}
		a.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution, a.PodAntiAffinity.PreferredDuringSchedulingIgnoredDuringExecution = m.podTerms(30)
	}
	if *a != (v1.Affinity{}) {
		s.Affinity = a
	}
	m.spreadConstraints(s)
	for _, key := range some(m, m.tolerations, "dedicated", "other", "soft", v1.TaintNodeUnschedulable) {
		t := v1.Toleration{Key: key, Effect: pick(m, "", v1.TaintEffectNoSchedule, v1.TaintEffectPreferNoSchedule, v1.TaintEffectNoExecute)}
		if t.Operator = pick(m, v1.TolerationOpExists, v1.TolerationOpEqual); t.Operator == v1.TolerationOpEqual {
			t.Value = pick(m, "", "a", "b")
		}
		s.Tolerations = append(s.Tolerations, t)
	}
}

func (m *maker) nodeTerm() (term v1.NodeSelectorTerm) {
	for range 1 + m.IntN(2) {
		r := v1.NodeSelectorRequirement{Key: pick(m, "disk", v1.LabelTopologyZone, "size")}
		switch r.Operator = pick(m, v1.NodeSelectorOpIn, v1.NodeSelectorOpIn, v1.NodeSelectorOpNotIn, v1.NodeSelectorOpExists, v1.NodeSelectorOpDoesNotExist, v1.NodeSelectorOpGt, v1.NodeSelectorOpLt); r.Operator {
		case v1.NodeSelectorOpIn, v1.NodeSelectorOpNotIn:
			r.Values = append(some(m, 50, "a", "b"), "c")
		case v1.NodeSelectorOpGt, v1.NodeSelectorOpLt:
			r.Values = []string{pick(m, "0", "1", "2")}
		}
		term.MatchExpressions = append(term.MatchExpressions, r)
	}
	if m.chance(10) {
		term.MatchFields = []v1.NodeSelectorRequirement{{Key: metav1.ObjectNameField, Operator: pick(m, v1.NodeSelectorOpIn, v1.NodeSelectorOpNotIn), Values: []string{pick(m, append(m.nodes, "none")...)}}}
		if m.chance(50) {
			term.MatchExpressions = nil
		}
	}
	return term
}

var topologies = []string{v1.LabelHostname, v1.LabelTopologyZone, "disk"}

func (m *maker) podTerms(required int) (hard []v1.PodAffinityTerm, soft []v1.WeightedPodAffinityTerm) {
	term := func() v1.PodAffinityTerm {
		t := v1.PodAffinityTerm{LabelSelector: m.selector(), TopologyKey: pick(m, topologies...)}
		if m.chance(10) {
			t.LabelSelector = pick(m, nil, &metav1.LabelSelector{})
		}
		if m.chance(20) {
			t.Namespaces = some(m, 50, m.namespaces...)
		}
		if m.chance(20) {
			t.NamespaceSelector = pick(m, &metav1.LabelSelector{}, &metav1.LabelSelector{MatchLabels: m.labels(70, "team")})
		}
		if m.chance(10) && t.LabelSelector != nil {
			t.MatchLabelKeys = []string{"rev"}
		}
		if m.chance(10) && t.LabelSelector != nil && t.MatchLabelKeys == nil {
			t.MismatchLabelKeys = []string{"rev"}
		}
		return t
	}
	for range 2 {
		if m.chance(required) {
			hard = append(hard, term())
		}
		if m.chance(50) {
			soft = append(soft, v1.WeightedPodAffinityTerm{Weight: int32(1 + m.IntN(100)), PodAffinityTerm: term()})
		}
	}
	return hard, soft
}

func (m *maker) spreadConstraints(s *v1.PodSpec) {
	used := map[string]bool{}
	for range 2 {
		if !m.chance(m.spread) {
			continue
		}
		c := v1.TopologySpreadConstraint{
			MaxSkew: int32(1 + m.IntN(2)), TopologyKey: pick(m, topologies...), WhenUnsatisfiable: pick(m, v1.DoNotSchedule, v1.ScheduleAnyway), LabelSelector: m.selector(),
		}
		if key := c.TopologyKey + string(c.WhenUnsatisfiable); used[key] {
			continue
		} else {
			used[key] = true
		}
		if c.WhenUnsatisfiable == v1.DoNotSchedule && m.chance(20) {
			c.MinDomains = new(int32(1 + m.IntN(4)))
		}
		if m.chance(20) {
			c.NodeAffinityPolicy = new(pick(m, v1.NodeInclusionPolicyHonor, v1.NodeInclusionPolicyIgnore))
		}
		if m.chance(20) {
			c.NodeTaintsPolicy = new(pick(m, v1.NodeInclusionPolicyHonor, v1.NodeInclusionPolicyIgnore))
		}
		if m.chance(15) {
			c.MatchLabelKeys = []string{"rev"}
		}
		s.TopologySpreadConstraints = append(s.TopologySpreadConstraints, c)
	}
}
