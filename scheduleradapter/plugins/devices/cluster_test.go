package devices

import (
	"fmt"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	config "k8s.io/kube-scheduler/config/v1"

	"github.com/evictd/evictd/scheduleradapter/framework"
	"github.com/evictd/evictd/scheduleradapter/nodetable"
	"github.com/evictd/evictd/scheduleradapter/plugins/plugintest"
)

// cluster is a table with devices.
type cluster struct {
	*plugintest.Cluster
	*Store
	plugin *Plugin
}

// newCluster makes nodes a, b, c, ... and the class gpu.
func newCluster(t testing.TB, nodes int) *cluster {
	c := &cluster{Cluster: plugintest.New(t)}
	for i := range nodes {
		name := string(rune('a' + i))
		c.Table.SetNode(nodetable.NewNode(&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{v1.LabelHostname: name}}}))
	}
	c.Store = NewSimulatedStore(c.Table)
	c.SetClass(&resourceapi.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: "gpu"}})
	c.plugin = c.Make(c.New, &config.DynamicResourcesArgs{FilterTimeout: &metav1.Duration{Duration: 10 * time.Second}, BindingTimeout: &metav1.Duration{Duration: time.Minute}}).(*Plugin)
	return c
}

// slice has devices of a node, 0 and so on.
func slice(node string, devices int, change ...func(*resourceapi.ResourceSlice)) *resourceapi.ResourceSlice {
	s := &resourceapi.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: "of-" + node}, Spec: resourceapi.ResourceSliceSpec{
		NodeName: &node, Driver: "driver", Pool: resourceapi.ResourcePool{Name: node, Generation: 1, ResourceSliceCount: 1},
	}}
	for i := range devices {
		s.Spec.Devices = append(s.Spec.Devices, resourceapi.Device{Name: fmt.Sprint(i)})
	}
	for _, f := range change {
		f(s)
	}
	return s
}

// newClaim requests a number of devices.
func newClaim(name string, count int64, change ...func(*resourceapi.ResourceClaim)) *resourceapi.ResourceClaim {
	c := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID("uid-" + name)}}
	c.Spec.Devices.Requests = []resourceapi.DeviceRequest{{Name: "r", Exactly: &resourceapi.ExactDeviceRequest{
		DeviceClassName: "gpu", AllocationMode: resourceapi.DeviceAllocationModeExactCount, Count: count,
	}}}
	for _, f := range change {
		f(c)
	}
	return c
}

// on allocates a device of a node to a claim.
func on(node, device string) func(*resourceapi.ResourceClaim) {
	return func(c *resourceapi.ResourceClaim) {
		c.Status.Allocation = &resourceapi.AllocationResult{NodeSelector: &v1.NodeSelector{NodeSelectorTerms: []v1.NodeSelectorTerm{
			{MatchFields: []v1.NodeSelectorRequirement{{Key: metav1.ObjectNameField, Operator: v1.NodeSelectorOpIn, Values: []string{node}}}},
		}}}
		c.Status.Allocation.Devices.Results = []resourceapi.DeviceRequestAllocationResult{{Request: "r", Driver: "driver", Pool: node, Device: device}}
	}
}

// pod uses claims by name.
func pod(name string, claims ...string) *v1.Pod {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name)}}
	for _, claim := range claims {
		p.Spec.ResourceClaims = append(p.Spec.ResourceClaims, v1.PodResourceClaim{Name: claim, ResourceClaimName: &claim})
	}
	return p
}

// try evaluates a pod and prints the status, or the rejected nodes.
func (c *cluster) try(p *v1.Pod) string {
	c.Helper()
	v := c.Evaluate(c.plugin, c.Digest(p))
	if !v.Status.OK() {
		return v.Status.Message()
	}
	return strings.TrimSuffix(strings.TrimPrefix(fmt.Sprint(v.Rejected), "map["), "]")
}

func (c *cluster) assignment(p *v1.Pod, node string) framework.Assignment {
	c.Helper()
	return framework.Assignment{Pod: c.Digest(p), Node: c.Table.Node(c.Table.Row(nodetable.Intern(node)))}
}

func (c *cluster) holds(what, got, want string) {
	c.Helper()
	if got != want {
		c.Errorf("%s: %q, want %q", what, got, want)
	}
}
