package suite_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	typed "k8s.io/client-go/kubernetes/typed/resource/v1"

	"github.com/evictd/evictd/internal/require"
	"github.com/evictd/evictd/internal/wait"
	"github.com/evictd/evictd/test/controlplane/apiserver"
)

const gpuDriver = "gpu.example.com"

// devices are the nodes n1 and n2 with the class gpu, and a slice of n2 with the
// devices, which the end of the test removes.
func (a *api) devices(devices ...resourceapi.Device) typed.ResourceV1Interface {
	a.t.Helper()
	all := a.admin.ResourceV1()
	a.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), wait.Limit)
		defer cancel()
		now, every := *metav1.NewDeleteOptions(0), metav1.ListOptions{}
		claims, err := all.ResourceClaims("default").List(ctx, every)
		if err != nil {
			a.t.Error(err)
			return
		}
		for i := range claims.Items {
			claim := &claims.Items[i]
			if claim.Finalizers = nil; claim.DeletionTimestamp == nil {
				claim.Status = resourceapi.ResourceClaimStatus{}
				if released, err := all.ResourceClaims("default").UpdateStatus(ctx, claim, metav1.UpdateOptions{}); err == nil {
					claim = released
					claim.Finalizers = nil
				}
			}
			if _, err := all.ResourceClaims("default").Update(ctx, claim, metav1.UpdateOptions{}); err != nil {
				a.t.Error(err)
			}
		}
		for _, err := range []error{
			all.ResourceClaims("default").DeleteCollection(ctx, now, every),
			all.ResourceSlices().DeleteCollection(ctx, now, every),
			all.DeviceClasses().DeleteCollection(ctx, now, every),
		} {
			if err != nil {
				a.t.Error(err)
			}
		}
	})
	a.createNodes(node("n1"), node("n2"))
	if _, err := all.DeviceClasses().Create(a.t.Context(), &resourceapi.DeviceClass{
		ObjectMeta: metav1.ObjectMeta{Name: "gpu"},
		Spec: resourceapi.DeviceClassSpec{
			ExtendedResourceName: new("example.com/gpu"),
			Selectors:            []resourceapi.DeviceSelector{{CEL: &resourceapi.CELDeviceSelector{Expression: `device.driver == "` + gpuDriver + `"`}}},
		},
	}, metav1.CreateOptions{}); err != nil {
		a.t.Fatal(err)
	}
	if _, err := all.ResourceSlices().Create(a.t.Context(), &resourceapi.ResourceSlice{
		ObjectMeta: metav1.ObjectMeta{Name: "n2-gpus"},
		Spec: resourceapi.ResourceSliceSpec{
			NodeName: new("n2"), Driver: gpuDriver, Pool: resourceapi.ResourcePool{Name: "n2", Generation: 1, ResourceSliceCount: 1}, Devices: devices,
		},
	}, metav1.CreateOptions{}); err != nil {
		a.t.Fatal(err)
	}
	return all
}

func (a *api) createClaim(name string) {
	a.t.Helper()
	if _, err := a.admin.ResourceV1().ResourceClaims("default").Create(a.t.Context(), &resourceapi.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: resourceapi.ResourceClaimSpec{Devices: resourceapi.DeviceClaim{
			Requests: []resourceapi.DeviceRequest{{Name: "one", Exactly: &resourceapi.ExactDeviceRequest{DeviceClassName: "gpu"}}},
		}},
	}, metav1.CreateOptions{}); err != nil {
		a.t.Fatal(err)
	}
}

func (a *api) claim(name string) *resourceapi.ResourceClaim {
	a.t.Helper()
	claim, err := a.admin.ResourceV1().ResourceClaims("default").Get(a.t.Context(), name, metav1.GetOptions{})
	if err != nil {
		a.t.Fatal(err)
	}
	return claim
}

// setStatus changes the status of a claim as a driver or a controller does.
func (a *api) setStatus(name string, change func(*resourceapi.ResourceClaimStatus)) {
	a.t.Helper()
	claim := a.claim(name)
	change(&claim.Status)
	if _, err := a.admin.ResourceV1().ResourceClaims("default").UpdateStatus(a.t.Context(), claim, metav1.UpdateOptions{}); err != nil {
		a.t.Fatal(err)
	}
}

func claiming(name string) func(*v1.Pod) {
	return func(p *v1.Pod) {
		p.Spec.ResourceClaims = []v1.PodResourceClaim{{Name: "device", ResourceClaimName: &name}}
		p.Spec.Containers[0].Resources.Claims = []v1.ResourceClaim{{Name: "device"}}
	}
}

func TestClaimsAreAllocatedAndReservedForTheirPods(t *testing.T) {
	a := onKubeAPIServer(t)
	a.devices(resourceapi.Device{Name: "gpu-0"})
	a.createClaim("first")
	a.createClaim("second")
	a.schedule()
	a.createPods(pod("early", "", claiming("late")), pod("p", "", claiming("first")))
	if node := a.awaitBound("p"); node != "n2" {
		t.Errorf("the pod is on %s, without devices", node)
	}
	claim := a.claim("first")
	if !slices.Contains(claim.Finalizers, resourceapi.Finalizer) || claim.Status.Allocation == nil || claim.Status.Allocation.AllocationTimestamp == nil ||
		len(claim.Status.Allocation.Devices.Results) != 1 || claim.Status.Allocation.Devices.Results[0].Device != "gpu-0" {
		t.Errorf("the claim has the finalizers %q and the allocation %+v", claim.Finalizers, claim.Status.Allocation)
	}
	if r := claim.Status.ReservedFor; len(r) != 1 || r[0].UID != a.pod("p").UID || r[0].Resource != "pods" {
		t.Errorf("the claim is reserved for %+v", r)
	}
	a.createPods(pod("q", "", claiming("second")))
	if message := a.awaitRefused("q"); !strings.HasPrefix(message, "0/2 nodes are available: 2 cannot allocate all claims.") {
		t.Errorf("the condition says %q", message)
	}
	a.createPods(pod("r", "", claiming("first")))
	if node := a.awaitBound("r"); node != "n2" || len(a.claim("first").Status.ReservedFor) != 2 {
		t.Errorf("a pod with an allocated claim is on %s, and the claim is reserved for %+v", node, a.claim("first").Status.ReservedFor)
	}
	a.setStatus("first", func(s *resourceapi.ResourceClaimStatus) { s.ReservedFor, s.Allocation = nil, nil })
	a.awaitBound("q")
	a.setStatus("second", func(s *resourceapi.ResourceClaimStatus) { s.ReservedFor, s.Allocation = nil, nil })
	a.createClaim("late")
	a.awaitBound("early")
}

func TestAnExtendedResourceOfADeviceClassHasAClaim(t *testing.T) {
	a := onKubeAPIServer(t)
	all := a.devices(resourceapi.Device{Name: "gpu-0"})
	a.schedule()
	wants := func(p *v1.Pod) {
		p.Spec.Containers[0].Resources.Limits = v1.ResourceList{"example.com/gpu": resource.MustParse("1")}
	}
	a.createPods(pod("p", "", wants))
	if node := a.awaitBound("p"); node != "n2" {
		t.Errorf("the pod is on %s, without devices", node)
	}
	p := a.pod("p")
	status := p.Status.ExtendedResourceClaimStatus
	if status == nil || len(status.RequestMappings) != 1 || status.RequestMappings[0] != (v1.ContainerExtendedResourceRequest{ContainerName: "main", ResourceName: "example.com/gpu", RequestName: "container-0-request-0"}) {
		t.Fatalf("the pod's claim is %+v", status)
	}
	claim, err := all.ResourceClaims("default").Get(t.Context(), status.ResourceClaimName, metav1.GetOptions{})
	require.NoError(t, err)
	if claim.Annotations[resourceapi.ExtendedResourceClaimAnnotation] != "true" || !metav1.IsControlledBy(claim, p) || claim.Status.Allocation == nil || len(claim.Status.ReservedFor) != 1 {
		t.Errorf("the claim is %+v", claim)
	}
	a.createPods(pod("q", "", wants))
	if message := a.awaitRefused("q"); !strings.Contains(message, "2 cannot allocate all claims") {
		t.Errorf("the condition says %q", message)
	}
}

// rule: S2.42
func TestAPodWithClaimsNeedsThreeWrites(t *testing.T) {
	a := onKubeAPIServer(t)
	a.devices(resourceapi.Device{Name: "gpu-0"})
	a.createClaim("c")
	p := a.between(apiserver.Admin)
	var mu sync.Mutex
	var writes []string
	p.inject(func(_ http.ResponseWriter, r *http.Request) bool {
		if path, found := strings.CutPrefix(r.URL.Path, "/api"); found && r.Method != http.MethodGet && strings.Contains(path, "/namespaces/default/") {
			mu.Lock()
			defer mu.Unlock()
			_, resource, _ := strings.Cut(path, "/namespaces/default/")
			writes = append(writes, r.Method+" "+resource)
		}
		return false
	})
	a.scheduleThrough(p)
	a.createPods(pod("p", "", claiming("c")))
	a.awaitBound("p")
	a.awaitEvent("Scheduled", "p")
	mu.Lock()
	defer mu.Unlock()
	got := slices.DeleteFunc(writes, func(write string) bool { return strings.HasSuffix(write, " events") })
	if want := []string{"PUT resourceclaims/c", "PUT resourceclaims/c/status", "POST pods/p/binding"}; !slices.Equal(got, want) {
		t.Errorf("the scheduler writes %q, want %q", got, want)
	}
}

// rule: S1.102
func TestABindingWaitsForTheConditionsOfItsDevices(t *testing.T) {
	a := onKubeAPIServer(t)
	a.devices(resourceapi.Device{Name: "gpu-0", BindingConditions: []string{"attached"}, BindingFailureConditions: []string{"failed"}, BindsToNode: new(true)})
	a.createClaim("c")
	scheduler := a.schedule()
	a.createPods(pod("p", "", claiming("c")))
	if note := a.awaitEvent("BindingConditionsPending", "p"); note != "waiting for binding conditions for device on node n2" {
		t.Errorf("the event says %q", note)
	}
	if node := a.pod("p").Spec.NodeName; node != "" {
		t.Fatalf("the pod is bound to %s before its device is attached", node)
	}
	await(t, "the pod to be nominated to the node of its device", func() bool { return a.pod("p").Status.NominatedNodeName == "n2" })
	report := func(condition string) {
		a.setStatus("c", func(s *resourceapi.ResourceClaimStatus) {
			s.Devices = []resourceapi.AllocatedDeviceStatus{{Driver: gpuDriver, Pool: "n2", Device: "gpu-0", Conditions: []metav1.Condition{
				{Type: condition, Status: metav1.ConditionTrue, Reason: "Test", LastTransitionTime: metav1.Now()},
			}}}
		})
	}
	report("failed")
	const failure = `device binding failed: claim=c, reason=Test, message=""`
	if note := a.awaitEvent("FailedScheduling", "p"); !strings.Contains(note, failure) {
		t.Errorf("the event says %q, want %q", note, failure)
	}
	await(t, "the claim to be allocated again", func() bool {
		s := a.claim("c").Status
		return s.Allocation != nil && len(s.ReservedFor) == 1 && len(s.Devices) == 0
	})
	report("attached")
	a.awaitBound("p")
	page, err := scheduler.Get("/metrics")
	require.NoError(t, err)
	for _, status := range []string{"failed", "success"} {
		if line := fmt.Sprintf("scheduler_dra_bindingconditions_allocations_total{driver=%q,profile=\"default-scheduler\",status=%q} 1\n", gpuDriver, status); !strings.Contains(string(page), line) {
			t.Errorf("the metrics have no line %s", line)
		}
	}
}

// awaitFailure waits until an attempt for the pod has failed, and returns the reason
// and the message of its condition.
func (a *api) awaitFailure(name string) (failure string) {
	a.t.Helper()
	await(a.t, "an attempt for pod "+name+" to fail", func() bool {
		for _, c := range a.pod(name).Status.Conditions {
			if c.Type == v1.PodScheduled && c.Status == v1.ConditionFalse {
				failure = c.Reason + ": " + c.Message
			}
		}
		return failure != ""
	})
	return failure
}

// TestMessagesAboutDevicesAreThoseOfKubeScheduler gives pods that fit nowhere to both
// schedulers.
func TestMessagesAboutDevicesAreThoseOfKubeScheduler(t *testing.T) {
	a := onKubeAPIServer(t)
	all := a.devices(resourceapi.Device{Name: "gpu-0"})
	for _, slice := range []struct {
		name, driver string
		slices       int64
		devices      []string
	}{
		{"incomplete", "incomplete.example.com", 2, []string{"0"}},
		{"invalid-1", "invalid.example.com", 2, []string{"0"}},
		{"invalid-2", "invalid.example.com", 2, []string{"0"}},
	} {
		s := &resourceapi.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: slice.name}, Spec: resourceapi.ResourceSliceSpec{
			NodeName: new("n1"), Driver: slice.driver, Pool: resourceapi.ResourcePool{Name: slice.driver, Generation: 1, ResourceSliceCount: slice.slices},
		}}
		for _, name := range slice.devices {
			s.Spec.Devices = append(s.Spec.Devices, resourceapi.Device{Name: name})
		}
		if _, err := all.ResourceSlices().Create(t.Context(), s, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	exactly := func(class string, change ...func(*resourceapi.ExactDeviceRequest)) resourceapi.DeviceRequest {
		r := &resourceapi.ExactDeviceRequest{DeviceClassName: class}
		for _, f := range change {
			f(r)
		}
		return resourceapi.DeviceRequest{Name: "r", Exactly: r}
	}
	selecting := func(expression string) func(*resourceapi.ExactDeviceRequest) {
		return func(r *resourceapi.ExactDeviceRequest) {
			r.Selectors = []resourceapi.DeviceSelector{{CEL: &resourceapi.CELDeviceSelector{Expression: expression}}}
		}
	}
	claims := map[string][]resourceapi.DeviceRequest{
		"no-class":    {exactly("absent")},
		"two":         {exactly("gpu", func(r *resourceapi.ExactDeviceRequest) { r.Count = 2 })},
		"no-match":    {exactly("gpu", selecting(`device.driver == "other"`))},
		"bad":         {exactly("gpu", selecting(`device.attributes["`+gpuDriver+`"].absent == 1`))},
		"elsewhere":   {exactly("gpu")},
		"lists":       {{Name: "r", FirstAvailable: []resourceapi.DeviceSubRequest{{Name: "a", DeviceClassName: "gpu", Count: 2}, {Name: "b", DeviceClassName: "absent"}}}},
		"unavailable": {{Name: "r", FirstAvailable: []resourceapi.DeviceSubRequest{{Name: "a", DeviceClassName: "gpu", Count: 2}, {Name: "b", DeviceClassName: "gpu", Count: 3}}}},
		"every":       {exactly("incomplete", func(r *resourceapi.ExactDeviceRequest) { r.AllocationMode = resourceapi.DeviceAllocationModeAll })},
		"invalid":     {exactly("invalid")},
	}
	for _, class := range []string{"incomplete", "invalid"} {
		if _, err := all.DeviceClasses().Create(t.Context(), &resourceapi.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: class}, Spec: resourceapi.DeviceClassSpec{
			Selectors: []resourceapi.DeviceSelector{{CEL: &resourceapi.CELDeviceSelector{Expression: `device.driver == "` + class + `.example.com"`}}},
		}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	worlds := map[string]func(*v1.Pod){"extended": func(p *v1.Pod) {
		p.Spec.Containers[0].Resources.Limits = v1.ResourceList{"example.com/gpu": resource.MustParse("2")}
	}}
	for name, requests := range claims {
		if _, err := all.ResourceClaims("default").Create(t.Context(), &resourceapi.ResourceClaim{
			ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: resourceapi.ResourceClaimSpec{Devices: resourceapi.DeviceClaim{Requests: requests}},
		}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		worlds[name] = claiming(name)
	}
	a.setStatus("elsewhere", func(s *resourceapi.ResourceClaimStatus) {
		s.Allocation = &resourceapi.AllocationResult{
			Devices: resourceapi.DeviceAllocationResult{Results: []resourceapi.DeviceRequestAllocationResult{{Request: "r", Driver: gpuDriver, Pool: "gone", Device: "gpu-0"}}},
			NodeSelector: &v1.NodeSelector{NodeSelectorTerms: []v1.NodeSelectorTerm{
				{MatchFields: []v1.NodeSelectorRequirement{{Key: metav1.ObjectNameField, Operator: v1.NodeSelectorOpIn, Values: []string{"gone"}}}},
			}},
		}
		s.ReservedFor = []resourceapi.ResourceClaimConsumerReference{{Resource: "pods", Name: "other", UID: "other"}}
	})
	const theirs = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nprofiles: [{schedulerName: theirs}]\n"
	a.schedule()
	a.runKubeScheduler(theirs)
	for name, wants := range worlds {
		a.createPods(pod("ours-"+name, "", wants), pod("theirs-"+name, "", wants, scheduledBy("theirs")))
	}
	for name := range worlds {
		ours, want := a.awaitFailure("ours-"+name), a.awaitFailure("theirs-"+name)
		if ours != want {
			t.Errorf("%s:\nevictd-scheduler says %s\nkube-scheduler says   %s", name, ours, want)
		}
	}
}
