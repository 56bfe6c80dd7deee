package main

import (
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// claiming is the kind of pods that have a ResourceClaim each, of the pod's name, for
// one device.
const claiming = "claims"

const (
	driver         = "devices.bench"
	class          = "device"
	request        = "one"
	devicesPerNode = 10 // as in scheduler_perf
)

func deviceName(i int) string { return fmt.Sprintf("device-%d", i) }

// createDevices makes a DeviceClass, a ResourceSlice for every node, and n claims.
func createDevices(ctx context.Context, client kubernetes.Interface, nodes, n int) error {
	if n > nodes*devicesPerNode {
		return fmt.Errorf("-pods=%d: expected at most %d for -nodes=%d", n, nodes*devicesPerNode, nodes)
	}
	all := client.ResourceV1()
	_, err := all.DeviceClasses().Create(ctx, &resourceapi.DeviceClass{
		ObjectMeta: metav1.ObjectMeta{Name: class},
		Spec: resourceapi.DeviceClassSpec{Selectors: []resourceapi.DeviceSelector{
			{CEL: &resourceapi.CELDeviceSelector{Expression: fmt.Sprintf("device.driver == %q", driver)}},
		}},
	}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	devices := make([]resourceapi.Device, devicesPerNode)
	for i := range devices {
		devices[i] = resourceapi.Device{Name: deviceName(i), Attributes: map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{
			"model": {StringValue: new("B60")}, "index": {IntValue: new(int64(i))},
		}}
	}
	err = parallel(ctx, nodes, func(i int) error {
		_, err := all.ResourceSlices().Create(ctx, &resourceapi.ResourceSlice{
			ObjectMeta: metav1.ObjectMeta{Name: nodeName(i)},
			Spec: resourceapi.ResourceSliceSpec{
				Driver: driver, NodeName: new(nodeName(i)), Devices: devices,
				Pool: resourceapi.ResourcePool{Name: nodeName(i), Generation: 1, ResourceSliceCount: 1},
			},
		}, metav1.CreateOptions{})
		return err
	})
	if err != nil {
		return err
	}
	return parallel(ctx, n, func(i int) error {
		_, err := all.ResourceClaims("default").Create(ctx, &resourceapi.ResourceClaim{
			ObjectMeta: metav1.ObjectMeta{Name: podName(i)},
			Spec: resourceapi.ResourceClaimSpec{Devices: resourceapi.DeviceClaim{Requests: []resourceapi.DeviceRequest{
				{Name: request, Exactly: &resourceapi.ExactDeviceRequest{DeviceClassName: class}},
			}}},
		}, metav1.CreateOptions{})
		return err
	})
}

func useClaim(pod *v1.Pod) {
	pod.Spec.ResourceClaims = []v1.PodResourceClaim{{Name: class, ResourceClaimName: new(pod.Name)}}
	pod.Spec.Containers[0].Resources.Claims = []v1.ResourceClaim{{Name: class}}
}

// listClaims returns the claims by their name.
func listClaims(ctx context.Context, client kubernetes.Interface) (map[string]*resourceapi.ResourceClaim, error) {
	list, err := client.ResourceV1().ResourceClaims("default").List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	claims := map[string]*resourceapi.ResourceClaim{}
	for i := range list.Items {
		claims[list.Items[i].Name] = &list.Items[i]
	}
	return claims, nil
}

// allocate writes what a scheduler writes before it binds a pod to a node: the
// finalizer, then the allocation and the reservation.
func allocate(ctx context.Context, client kubernetes.Interface, claim *resourceapi.ResourceClaim, pod *v1.Pod, node string, device int) error {
	claims := client.ResourceV1().ResourceClaims(claim.Namespace)
	claim.Finalizers = append(claim.Finalizers, resourceapi.Finalizer)
	claim, err := claims.Update(ctx, claim, metav1.UpdateOptions{})
	if err != nil {
		return err
	}
	claim.Status.Allocation = &resourceapi.AllocationResult{
		AllocationTimestamp: new(metav1.Now()),
		Devices: resourceapi.DeviceAllocationResult{Results: []resourceapi.DeviceRequestAllocationResult{
			{Request: request, Driver: driver, Pool: node, Device: deviceName(device)},
		}},
		NodeSelector: &v1.NodeSelector{NodeSelectorTerms: []v1.NodeSelectorTerm{
			{MatchFields: []v1.NodeSelectorRequirement{{Key: metav1.ObjectNameField, Operator: v1.NodeSelectorOpIn, Values: []string{node}}}},
		}},
	}
	claim.Status.ReservedFor = []resourceapi.ResourceClaimConsumerReference{{APIGroup: v1.GroupName, Resource: "pods", Name: pod.Name, UID: pod.UID}}
	_, err = claims.UpdateStatus(ctx, claim, metav1.UpdateOptions{})
	return err
}
