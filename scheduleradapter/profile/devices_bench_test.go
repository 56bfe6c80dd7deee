package profile

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"runtime"
	"slices"
	"syscall"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/dynamic-resource-allocation/structured"

	"github.com/evictd/evictd/internal/require"
	"github.com/evictd/evictd/scheduleradapter/config"
	"github.com/evictd/evictd/scheduleradapter/cycle"
	"github.com/evictd/evictd/scheduleradapter/framework"
	"github.com/evictd/evictd/scheduleradapter/nodetable"
)

const testDriver = "test-driver.cdi.k8s.io"

// deviceCluster is the cluster of scheduler_perf's SchedulingWithResourceClaimTemplate:
// each node has 10 devices, some of them allocated, and each pod requests one.
type deviceCluster struct {
	*cycle.Scheduler
	stores  Stores
	nodes   []*v1.Node
	slices  []*resourceapi.ResourceSlice
	class   *resourceapi.DeviceClass
	running []*resourceapi.ResourceClaim // oldest first
	made    int
}

type acceptAll struct{}

func (acceptAll) Bind(context.Context, *nodetable.Pod, *nodetable.Node) error { return nil }

func newDeviceCluster(b testing.TB, nodes, allocated int) *deviceCluster {
	cfg, err := config.Compile(&config.File{}, BuiltIn())
	require.NoError(b, err)
	env, stores := environment()
	env.Binder = acceptAll{}
	c := &deviceCluster{stores: stores}
	c.Scheduler, err = cycle.New(time.Time{}, cycle.Config{Table: env.Table, Env: env, Profiles: func(env framework.Env) ([]cycle.Profile, error) {
		return New(&cfg, env, stores, nil, slog.New(slog.DiscardHandler))
	}}, nil)
	require.NoError(b, err)
	c.class = &resourceapi.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: "test-class"}}
	c.class.Spec.Selectors = []resourceapi.DeviceSelector{{CEL: &resourceapi.CELDeviceSelector{Expression: `device.driver == "` + testDriver + `"`}}}
	stores.Devices.SetClass(c.class)
	for i := range nodes {
		name := fmt.Sprint("node-", i)
		node := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{v1.LabelHostname: name}}, Status: v1.NodeStatus{Allocatable: v1.ResourceList{
			v1.ResourceCPU: resource.MustParse("4"), v1.ResourceMemory: resource.MustParse("32Gi"), v1.ResourcePods: resource.MustParse("110"),
		}}}
		slice := &resourceapi.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: resourceapi.ResourceSliceSpec{
			NodeName: &node.Name, Driver: testDriver, Pool: resourceapi.ResourcePool{Name: name, Generation: 1, ResourceSliceCount: 1},
		}}
		for j := range 10 {
			slice.Spec.Devices = append(slice.Spec.Devices, resourceapi.Device{Name: fmt.Sprint("device-", j), Attributes: map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{
				"model": {StringValue: new("B60")}, "family": {StringValue: new("Arc Pro B-Series")}, "driverVersion": {VersionValue: new("1.2.3")},
			}})
		}
		c.Table.SetNode(nodetable.NewNode(node))
		stores.Devices.SetSlice(slice)
		c.nodes, c.slices = append(c.nodes, node), append(c.slices, slice)
	}
	for range allocated {
		c.schedule(b)
	}
	return c
}

// add adds a pod with its claim.
func (c *deviceCluster) add(b testing.TB) (*nodetable.Pod, *resourceapi.ResourceClaim) {
	name := fmt.Sprint("pod-", c.made)
	c.made++
	claim := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{
		Name: name, Namespace: "test", UID: types.UID(name),
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: name, UID: types.UID(name), Controller: new(true)}},
	}}
	claim.Spec.Devices.Requests = []resourceapi.DeviceRequest{{Name: "req-0", Exactly: &resourceapi.ExactDeviceRequest{
		DeviceClassName: c.class.Name, AllocationMode: resourceapi.DeviceAllocationModeExactCount, Count: 1,
	}}}
	c.stores.Devices.SetClaim(claim)
	pod := crowded(b, name, 0, func(p *v1.Pod) {
		p.Namespace = "test"
		p.Spec.Containers[0].Resources.Requests = nil
		p.Spec.ResourceClaims = []v1.PodResourceClaim{{Name: "resource", ResourceClaimTemplateName: new("test-claim-template")}}
		p.Status.ResourceClaimStatuses = []v1.PodResourceClaimStatus{{Name: "resource", ResourceClaimName: &name}}
	})
	return pod, claim
}

// schedule schedules one pod.
func (c *deviceCluster) schedule(b testing.TB) {
	pod, claim := c.add(b)
	r := c.SchedulingCycle(pod, time.Time{})
	if !r.Status.OK() {
		b.Fatal(r.Message)
	}
	if s := r.Binding.Run(context.Background()); !s.OK() {
		b.Fatal(s.Message())
	}
	c.running = append(c.running, claim)
}

// end ends the oldest pod.
func (c *deviceCluster) end() {
	claim := c.running[0]
	c.running = c.running[1:]
	c.Table.Displace(claim.UID)
	c.stores.Devices.RemoveClaim(claim)
}

// BenchmarkDevices is a scheduling cycle and a binding cycle without an API server.
// "allocator" is what kube-scheduler's plugin computes for such a pod: it copies the
// allocated devices, makes an allocator over all slices, and allocates on each node
// of a sample. test/controlplane/parts/cmd/scheduling-attempts has kube-scheduler's own attempt.
func BenchmarkDevices(b *testing.B) {
	for name, allocated := range map[string]int{"empty": 0, "full": 4_990} {
		b.Run(name+"_500nodes/attempt", newDeviceCluster(b, 500, allocated).attempts)
	}
	for _, nodes := range []int{500, 5_000} {
		c := newDeviceCluster(b, nodes, nodes*5)
		b.Run(fmt.Sprintf("half_%dnodes/attempt", nodes), c.attempts)
		b.Run(fmt.Sprintf("half_%dnodes/allocator", nodes), func(b *testing.B) {
			allocated := structured.AllocatedState{AllocatedDevices: sets.New[structured.DeviceID](), AllocatedSharedDeviceIDs: sets.New[structured.SharedDeviceID](), AggregatedCapacity: structured.NewConsumedCapacityCollection()}
			for _, slice := range c.slices {
				for i := range 5 {
					allocated.AllocatedDevices.Insert(structured.MakeDeviceID(testDriver, slice.Spec.Pool.Name, fmt.Sprint("device-", i)))
				}
			}
			sample := config.NumFeasibleNodesToFind(nodes, 0)
			selectors := cel.NewCache(10, cel.Features{EnableConsumableCapacity: true})
			claims := []*resourceapi.ResourceClaim{c.running[0]}
			features := structured.Features{AdminAccess: true, ConsumableCapacity: true, DeviceBindingAndStatus: true, DeviceTaints: true, FractionalCapacityRange: true, PartitionableDevices: true, PrioritizedList: true}
			runtime.GC()
			b.ReportAllocs()
			before := processorTime(b)
			for b.Loop() {
				state := allocated
				state.AllocatedDevices = maps.Clone(allocated.AllocatedDevices)
				allocator, err := structured.NewAllocator(b.Context(), features, state, classes{c.class}, slices.Clone(c.slices), selectors)
				require.NoError(b, err)
				for _, node := range c.nodes[:sample] {
					if found, err := allocator.Allocate(b.Context(), node, claims); err != nil || len(found) != 1 {
						b.Fatal(found, err)
					}
				}
			}
			b.ReportMetric(float64(processorTime(b)-before)/float64(b.N), "cpu-ns/op")
		})
	}
}

func (c *deviceCluster) attempts(b *testing.B) {
	runtime.GC() // of the setup
	b.ReportAllocs()
	before := processorTime(b)
	for b.Loop() {
		c.schedule(b)
		c.end()
	}
	b.ReportMetric(float64(processorTime(b)-before)/float64(b.N), "cpu-ns/op")
}

type classes struct{ only *resourceapi.DeviceClass }

func (c classes) Get(string) (*resourceapi.DeviceClass, error) { return c.only, nil }
func (c classes) List() ([]*resourceapi.DeviceClass, error) {
	return []*resourceapi.DeviceClass{c.only}, nil
}

func processorTime(b *testing.B) time.Duration {
	var usage syscall.Rusage
	require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &usage))
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
