package scheduler_test

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
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
	for i := range m.IntN(4) {
		claim := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("d%d", i), Namespace: pick(m, m.namespaces...)}, Spec: m.claimSpec()}
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
	for i := range 1 + m.IntN(3) {
		d := resourceapi.Device{Name: fmt.Sprintf("d%d", i), Attributes: map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{"size": {IntValue: new(int64(m.IntN(4)))}, "kind": {StringValue: new(pick(m, "x", "y"))}}}
		if m.chance(12) {
			d.Taints = []resourceapi.DeviceTaint{{Key: "broken", Effect: pick(m, resourceapi.DeviceTaintEffectNoSchedule, resourceapi.DeviceTaintEffectNoExecute)}}
		}
		if m.chance(15) {
			d.AllowMultipleAllocations = new(true)
			d.Capacity = map[resourceapi.QualifiedName]resourceapi.DeviceCapacity{"memory": {Value: gib(4)}}
		}
		s.Spec.Devices = append(s.Spec.Devices, d)
	}
	m.add(s)
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
			if m.chance(20) {
				r.Exactly.Tolerations = []resourceapi.DeviceToleration{{Key: "broken", Operator: resourceapi.DeviceTolerationOpExists}}
			}
		}
		spec.Devices.Requests = append(spec.Devices.Requests, r)
	}
	if m.chance(15) {
		attribute := resourceapi.FullyQualifiedName(deviceDriver + "/kind")
		spec.Devices.Constraints = []resourceapi.DeviceConstraint{{MatchAttribute: &attribute}}
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
