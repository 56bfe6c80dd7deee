package scheduler_test

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const deviceDriver = "gpu.example.com"

// deviceObjects makes classes, slices, claims and templates.
func (m *maker) deviceObjects() {
	if m.devices == 0 {
		return
	}
	any := &resourceapi.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: "any"}}
	any.Spec.Selectors = []resourceapi.DeviceSelector{{CEL: &resourceapi.CELDeviceSelector{Expression: `device.driver == "` + deviceDriver + `"`}}}
	if m.chance(30) {
		any.Spec.ExtendedResourceName = new("example.com/device")
	}
	m.add(any)
	big := &resourceapi.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: "big"}}
	big.Spec.Selectors = []resourceapi.DeviceSelector{{CEL: &resourceapi.CELDeviceSelector{Expression: `device.attributes["` + deviceDriver + `"].size > 1`}}}
	m.add(big)
	for _, node := range some(m, 70, m.nodes...) {
		m.slice(node)
	}
	m.sharedSlice()
	if m.chance(15) {
		rule := &resourceapi.DeviceTaintRule{ObjectMeta: metav1.ObjectMeta{Name: "rule"}}
		rule.Spec.DeviceSelector = &resourceapi.DeviceTaintSelector{Driver: new(deviceDriver), Pool: pick(m, nil, new(pick(m, m.nodes...))), Device: pick(m, nil, new("d0"))}
		rule.Spec.Taint = resourceapi.DeviceTaint{Key: "broken", Effect: pick(m, resourceapi.DeviceTaintEffectNoSchedule, resourceapi.DeviceTaintEffectNoExecute)}
		m.add(rule)
	}
	for i := range m.IntN(4) {
		claim := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("d%d", i), Namespace: pick(m, m.namespaces...)}, Spec: m.claimSpec()}
		m.allocate(claim)
		m.deviceClaims = append(m.deviceClaims, claim)
		m.add(claim)
	}
	for _, namespace := range m.namespaces {
		m.add(&resourceapi.ResourceClaimTemplate{ObjectMeta: metav1.ObjectMeta{Name: "t", Namespace: namespace}, Spec: resourceapi.ResourceClaimTemplateSpec{Spec: m.claimSpec()}})
	}
}

func (m *maker) slice(node string) {
	s := &resourceapi.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: "s-" + node}}
	s.Spec.Driver, s.Spec.Pool, s.Spec.NodeName = deviceDriver, resourceapi.ResourcePool{Name: node, ResourceSliceCount: 1}, &node
	partitions := m.chance(25)
	if partitions {
		s.Spec.Pool.ResourceSliceCount = 2
		counters := &resourceapi.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: "c-" + node}}
		counters.Spec.Driver, counters.Spec.Pool, counters.Spec.NodeName = deviceDriver, s.Spec.Pool, &node
		counters.Spec.SharedCounters = []resourceapi.CounterSet{{Name: "all", Counters: map[string]resourceapi.Counter{"memory": {Value: gib(1 + m.IntN(6))}}}}
		m.add(counters)
	}
	for i := range 1 + m.IntN(3) {
		d := resourceapi.Device{Name: fmt.Sprintf("d%d", i), Attributes: map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{"size": {IntValue: new(int64(m.IntN(4)))}, "kind": {StringValue: new(pick(m, "x", "y"))}}}
		if m.chance(12) {
			d.Taints = []resourceapi.DeviceTaint{{Key: "broken", Effect: pick(m, resourceapi.DeviceTaintEffectNoSchedule, resourceapi.DeviceTaintEffectNoExecute)}}
		}
		if m.chance(15) {
			d.AllowMultipleAllocations = new(true)
			memory := resourceapi.DeviceCapacity{Value: gib(4)}
			if m.chance(50) {
				memory.RequestPolicy = &resourceapi.CapacityRequestPolicy{Default: new(gib(1)), ValidRange: &resourceapi.CapacityRequestPolicyRange{Min: new(gib(1)), Step: new(gib(pick(m, 1, 2)))}}
			}
			d.Capacity = map[resourceapi.QualifiedName]resourceapi.DeviceCapacity{"memory": memory}
		}
		if partitions {
			d.ConsumesCounters = []resourceapi.DeviceCounterConsumption{{CounterSet: "all", Counters: map[string]resourceapi.Counter{"memory": {Value: gib(1 + m.IntN(3))}}}}
		}
		if m.chance(10) {
			d.BindingConditions, d.BindingFailureConditions, d.BindsToNode = []string{"example.com/ready"}, []string{"example.com/broken"}, new(m.chance(50))
		}
		s.Spec.Devices = append(s.Spec.Devices, d)
	}
	m.devicesOf = append(m.devicesOf, s)
	m.add(s)
}

// sharedSlice has devices that several nodes reach.
func (m *maker) sharedSlice() {
	if !m.chance(25) {
		return
	}
	s := &resourceapi.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: "s-shared"}}
	s.Spec.Driver, s.Spec.Pool = deviceDriver, resourceapi.ResourcePool{Name: "shared", ResourceSliceCount: int64(pick(m, 1, 1, 1, 2))} // incomplete with 2
	zone := &v1.NodeSelector{NodeSelectorTerms: []v1.NodeSelectorTerm{{MatchExpressions: []v1.NodeSelectorRequirement{{Key: v1.LabelTopologyZone, Operator: v1.NodeSelectorOpIn, Values: []string{"a", "b"}}}}}}
	byDevice := false
	switch m.IntN(3) {
	case 0:
		s.Spec.AllNodes = new(true)
	case 1:
		s.Spec.NodeSelector = zone
	default:
		s.Spec.PerDeviceNodeSelection, byDevice = new(true), true
	}
	for i := range 1 + m.IntN(2) {
		d := resourceapi.Device{Name: fmt.Sprintf("d%d", i), Attributes: map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{"size": {IntValue: new(int64(m.IntN(4)))}, "kind": {StringValue: new(pick(m, "x", "y"))}}}
		if byDevice {
			switch m.IntN(3) {
			case 0:
				d.AllNodes = new(true)
			case 1:
				d.NodeSelector = zone
			default:
				d.NodeName = new(pick(m, m.nodes...))
			}
		}
		s.Spec.Devices = append(s.Spec.Devices, d)
	}
	m.add(s)
}

// allocate gives a claim a device, which a pod that is not in the world may have reserved.
func (m *maker) allocate(claim *resourceapi.ResourceClaim) {
	first := claim.Spec.Devices.Requests[0]
	if len(m.devicesOf) == 0 || len(claim.Spec.Devices.Requests) > 1 || first.Exactly == nil || !m.chance(35) {
		return
	}
	slice := pick(m, m.devicesOf...)
	device := pick(m, slice.Spec.Devices...)
	if m.taken[slice.Name+device.Name] || device.AllowMultipleAllocations != nil {
		return
	}
	m.taken[slice.Name+device.Name] = true
	claim.Status.Allocation = &resourceapi.AllocationResult{
		Devices:      resourceapi.DeviceAllocationResult{Results: []resourceapi.DeviceRequestAllocationResult{{Request: first.Name, Driver: deviceDriver, Pool: slice.Spec.Pool.Name, Device: device.Name}}},
		NodeSelector: &v1.NodeSelector{NodeSelectorTerms: []v1.NodeSelectorTerm{{MatchFields: []v1.NodeSelectorRequirement{{Key: metav1.ObjectNameField, Operator: v1.NodeSelectorOpIn, Values: []string{*slice.Spec.NodeName}}}}}},
	}
	if m.chance(60) {
		claim.Status.ReservedFor = []resourceapi.ResourceClaimConsumerReference{{Resource: "pods", Name: "gone", UID: "gone"}}
	}
}

func (m *maker) claimSpec() (spec resourceapi.ResourceClaimSpec) {
	for i := range pick(m, 1, 1, 2) {
		r := resourceapi.DeviceRequest{Name: fmt.Sprintf("r%d", i)}
		if m.chance(20) {
			for j, class := range some(m, 70, "big", "any") {
				r.FirstAvailable = append(r.FirstAvailable, resourceapi.DeviceSubRequest{Name: fmt.Sprintf("s%d", j), DeviceClassName: class, AllocationMode: resourceapi.DeviceAllocationModeExactCount, Count: int64(1 + m.IntN(2))})
			}
		}
		if r.FirstAvailable == nil {
			r.Exactly = &resourceapi.ExactDeviceRequest{DeviceClassName: pick(m, "any", "any", "big", "none"), AllocationMode: resourceapi.DeviceAllocationModeExactCount, Count: int64(1 + m.IntN(2))}
			if m.chance(15) {
				r.Exactly.AllocationMode, r.Exactly.Count = resourceapi.DeviceAllocationModeAll, 0
			}
			if m.chance(20) {
				r.Exactly.Selectors = []resourceapi.DeviceSelector{{CEL: &resourceapi.CELDeviceSelector{Expression: `device.attributes["` + deviceDriver + `"].kind == "x"`}}}
			}
			if m.chance(15) {
				r.Exactly.Capacity = &resourceapi.CapacityRequirements{Requests: map[resourceapi.QualifiedName]resource.Quantity{"memory": gib(1 + m.IntN(3))}}
			}
			if m.chance(8) {
				r.Exactly.AdminAccess = new(true)
			}
			if m.chance(20) {
				r.Exactly.Tolerations = []resourceapi.DeviceToleration{{Key: "broken", Operator: resourceapi.DeviceTolerationOpExists}}
			}
		}
		spec.Devices.Requests = append(spec.Devices.Requests, r)
	}
	if m.chance(15) {
		attribute := resourceapi.FullyQualifiedName(deviceDriver + "/kind")
		spec.Devices.Constraints = []resourceapi.DeviceConstraint{pick(m, resourceapi.DeviceConstraint{MatchAttribute: &attribute}, resourceapi.DeviceConstraint{DistinctAttribute: &attribute})}
	}
	return spec
}

// uses gives a pending pod claims of devices.
func (m *maker) uses(pod *v1.Pod) {
	add := func(name string, c v1.PodResourceClaim) {
		c.Name = name
		pod.Spec.ResourceClaims = append(pod.Spec.ResourceClaims, c)
		pod.Spec.Containers[0].Resources.Claims = append(pod.Spec.Containers[0].Resources.Claims, v1.ResourceClaim{Name: name})
	}
	for _, claim := range m.deviceClaims {
		if claim.Namespace == pod.Namespace && m.chance(m.devices/3) {
			add(claim.Name, v1.PodResourceClaim{ResourceClaimName: &claim.Name})
		}
	}
	if m.chance(m.devices / 2) {
		add("own", v1.PodResourceClaim{ResourceClaimTemplateName: new("t")})
	}
	if m.chance(m.devices / 5) {
		r := &pod.Spec.Containers[0].Resources
		if r.Requests == nil {
			r.Requests = v1.ResourceList{}
		}
		if r.Limits == nil {
			r.Limits = v1.ResourceList{}
		}
		r.Requests["example.com/device"], r.Limits["example.com/device"] = amount("example.com/device", 1), amount("example.com/device", 1)
	}
}
