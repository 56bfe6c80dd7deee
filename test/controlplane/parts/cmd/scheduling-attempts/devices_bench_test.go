package main

import (
	"fmt"
	"runtime"
	"syscall"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1 "k8s.io/kubernetes/pkg/apis/core/v1"
	"k8s.io/kubernetes/pkg/scheduler/framework"
)

const testDriver = "test-driver.cdi.k8s.io"

// devicesOf is the cluster of BenchmarkDevices of scheduleradapter/profile: each node has 10
// devices, of which some are allocated, by the numbers of the node and the device.
func devicesOf(nodes int, allocated func(i, j int) bool) *cluster {
	class := &resourceapi.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: "test-class"}}
	class.Spec.Selectors = []resourceapi.DeviceSelector{{CEL: &resourceapi.CELDeviceSelector{Expression: `device.driver == "` + testDriver + `"`}}}
	c := &cluster{}
	c.objects = append(c.objects, class)
	for i := range nodes {
		name := fmt.Sprint("node-", i)
		node := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{v1.LabelHostname: name}}, Status: v1.NodeStatus{Allocatable: v1.ResourceList{
			v1.ResourceCPU: resource.MustParse("4"), v1.ResourceMemory: resource.MustParse("32Gi"), v1.ResourcePods: resource.MustParse("110"),
		}}}
		slice := &resourceapi.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: resourceapi.ResourceSliceSpec{
			NodeName: &node.Name, Driver: testDriver, Pool: resourceapi.ResourcePool{Name: name, Generation: 1, ResourceSliceCount: 1},
		}}
		c.objects = append(c.objects, node, slice)
		for j := range 10 {
			slice.Spec.Devices = append(slice.Spec.Devices, resourceapi.Device{Name: fmt.Sprint("device-", j), Attributes: map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{
				"model": {StringValue: new("B60")}, "family": {StringValue: new("Arc Pro B-Series")}, "driverVersion": {VersionValue: new("1.2.3")},
			}})
			if allocated(i, j) {
				claim := claimOf(fmt.Sprint("claim-", i, "-", j))
				claim.Status.Allocation = &resourceapi.AllocationResult{Devices: resourceapi.DeviceAllocationResult{Results: []resourceapi.DeviceRequestAllocationResult{
					{Request: "req-0", Driver: testDriver, Pool: name, Device: slice.Spec.Devices[j].Name},
				}}}
				claim.Status.ReservedFor = []resourceapi.ResourceClaimConsumerReference{{Resource: "pods", Name: claim.Name, UID: claim.UID}}
				c.objects = append(c.objects, claim)
			}
		}
	}
	claim := claimOf("pod")
	c.pod = &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "pod", Namespace: "test", UID: "pod"}}
	c.pod.Spec.Containers = []v1.Container{{Name: "main", Image: "app"}}
	c.pod.Spec.ResourceClaims = []v1.PodResourceClaim{{Name: "resource", ResourceClaimTemplateName: new("test-claim-template")}}
	c.pod.Status.ResourceClaimStatuses = []v1.PodResourceClaimStatus{{Name: "resource", ResourceClaimName: &claim.Name}}
	corev1.SetObjectDefaults_Pod(c.pod)
	c.objects = append(c.objects, claim, c.pod)
	return c
}

func claimOf(name string) *resourceapi.ResourceClaim {
	claim := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{
		Name: name, Namespace: "test", UID: types.UID(name),
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: name, UID: types.UID(name), Controller: new(true)}},
	}}
	claim.Spec.Devices.Requests = []resourceapi.DeviceRequest{{Name: "req-0", Exactly: &resourceapi.ExactDeviceRequest{
		DeviceClassName: "test-class", AllocationMode: resourceapi.DeviceAllocationModeExactCount, Count: 1,
	}}}
	return claim
}

// BenchmarkDevices is what kube-scheduler computes for such a pod until it has a node: without
// Reserve, the binding cycle and the events.
func BenchmarkDevices(b *testing.B) {
	for name, allocated := range map[string]func(i, j int) bool{
		"empty": func(int, int) bool { return false },
		"half":  func(_, j int) bool { return j < 5 },
		"full":  func(i, j int) bool { return j < 9 || i%50 != 0 }, // 10 devices are free
	} {
		b.Run(name+"_500nodes", func(b *testing.B) {
			c := devicesOf(500, allocated)
			s, _, err := c.scheduler(b.Context(), &deletions{})
			if err != nil {
				b.Fatal(err)
			}
			info, err := framework.NewPodInfo(c.pod)
			if err != nil {
				b.Fatal(err)
			}
			runtime.GC() // of the setup
			b.ReportAllocs()
			before := processorTime(b)
			for b.Loop() {
				if _, err := s.SchedulePod(b.Context(), s.Profiles[c.pod.Spec.SchedulerName], framework.NewCycleState(), &framework.QueuedPodInfo{PodInfo: info}); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(processorTime(b)-before)/float64(b.N), "cpu-ns/op")
		})
	}
}

func processorTime(b *testing.B) time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		b.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
