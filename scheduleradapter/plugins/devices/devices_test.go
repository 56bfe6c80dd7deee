package devices

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evictd/evictd/scheduleradapter/framework"
	"github.com/evictd/evictd/scheduleradapter/nodetable"
)

const nothing = "never: cannot allocate all claims"

func TestReservedDevicesAreHeldUntilTheyAreReportedOrReleased(t *testing.T) {
	c := newCluster(t, 1)
	c.SetSlice(slice("a", 1))
	c.SetClaim(newClaim("one", 1))
	c.SetClaim(newClaim("two", 1))
	reserve := func() framework.Assignment {
		t.Helper()
		c.holds("a free device", c.try(pod("p", "one")), "")
		a := c.assignment(pod("p", "one"), "a")
		if s := c.plugin.Reserve(a); !s.OK() {
			t.Fatal(s.Message())
		}
		c.holds("a held device", c.try(pod("q", "two")), "a:"+nothing)
		c.holds("a claim that is being allocated", c.try(pod("q", "one")), "resource claim ns/one is in the process of being allocated")
		return a
	}
	c.plugin.Unreserve(reserve())
	a := reserve()
	if s := c.plugin.PreBind(t.Context(), a); !s.OK() {
		t.Fatal(s.Message())
	}
	c.plugin.PostBind(t.Context(), a)
	stored := c.claims[nodetable.ClaimKey("ns", "one")]
	if stored.Status.Allocation == nil || len(stored.Status.ReservedFor) != 1 || len(c.pending) != 0 || len(c.plugin.plans) != 0 {
		t.Errorf("claim %+v, %d pending, %d plans", stored.Status, len(c.pending), len(c.plugin.plans))
	}
	c.holds("an allocated device", c.try(pod("q", "two")), "a:"+nothing)
	c.RemoveClaim(stored.ResourceClaim)
	c.holds("a device of a deleted claim", c.try(pod("q", "two")), "")
}

func TestAFailedBindingReleasesTheClaim(t *testing.T) {
	c := newCluster(t, 1)
	c.SetSlice(slice("a", 1))
	c.SetClaim(newClaim("one", 1))
	c.try(pod("p", "one"))
	a := c.assignment(pod("p", "one"), "a")
	c.plugin.Reserve(a)
	if s := c.plugin.PreBind(t.Context(), a); !s.OK() {
		t.Fatal(s.Message())
	}
	c.try(pod("p", "one"))
	c.plugin.Reserve(a)
	retried := a
	retried.Retried = true
	c.plugin.Unreserve(retried)
	if s := c.claims[nodetable.ClaimKey("ns", "one")].Status; len(s.ReservedFor) != 1 {
		t.Errorf("before the pod is retried the claim is %+v", s)
	}
	c.plugin.Reserve(a)
	c.plugin.Unreserve(a)
	if s := c.claims[nodetable.ClaimKey("ns", "one")].Status; s.Allocation == nil || len(s.ReservedFor) != 0 {
		t.Errorf("after the binding failed the claim is %+v", s)
	}
	c.holds("the claim that stays allocated", c.try(pod("p", "one")), "")
}

// delayed is an API server whose allocations take longer than the timeout.
type delayed struct{ *Controller }

func (delayed) WithTimeout(ctx context.Context, _ time.Duration) (context.Context, context.CancelFunc) {
	return context.WithDeadline(ctx, time.Time{})
}

func TestAnAllocationThatTakesTooLongFailsTheAttempt(t *testing.T) {
	c := newCluster(t, 1)
	c.SetSlice(slice("a", 1))
	c.SetClaim(newClaim("one", 1))
	c.Store.api = delayed{c.Controller()}
	v := c.Evaluate(c.plugin, c.Digest(pod("p", "one")))
	if v.Status.Code != framework.Error || v.Status.Message() != `running "DynamicResources" filter plugin: node a: timed out trying to allocate devices` {
		t.Errorf("%+v", v.Status)
	}
}

func TestADeviceThatDoesNotBecomeReadyIsDeallocated(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	c := newCluster(t, 2)
	c.SetSlice(slice("a", 1))
	conditions := func(since time.Duration, conditions ...string) func(*resourceapi.ResourceClaim) {
		return func(claim *resourceapi.ResourceClaim) {
			on("a", "0")(claim)
			claim.Status.Allocation.AllocationTimestamp = &metav1.Time{Time: now.Add(-since)}
			r := &claim.Status.Allocation.Devices.Results[0]
			r.BindingConditions, r.BindingFailureConditions = []string{"ready"}, []string{"broken"}
			status := resourceapi.AllocatedDeviceStatus{Driver: r.Driver, Pool: r.Pool, Device: r.Device}
			for _, name := range conditions {
				status.Conditions = append(status.Conditions, metav1.Condition{Type: name, Status: metav1.ConditionTrue})
			}
			claim.Status.Devices = []resourceapi.AllocatedDeviceStatus{status}
		}
	}
	const elsewhere = "b:never: resourceclaim not available on the node"
	for _, w := range []struct {
		name       string
		conditions func(*resourceapi.ResourceClaim)
		want       string
	}{
		{"ready", conditions(time.Hour, "ready"), elsewhere},
		{"not yet", conditions(time.Second), elsewhere},
		{"late", conditions(2 * time.Minute), "a:never: resourceclaim not available on the node " + elsewhere},
		{"broken", conditions(time.Second, "broken"), "a:never: resourceclaim not available on the node " + elsewhere},
	} {
		c.SetClaim(newClaim("one", 1, w.conditions))
		v := c.EvaluateAt(c.plugin, c.Digest(pod("p", "one")), now)
		c.holds(w.name, strings.Trim(strings.TrimPrefix(fmt.Sprint(v.Rejected), "map"), "[]"), w.want)
	}
	v := c.EvaluateAt(c.plugin, c.Digest(pod("p", "one")), now)
	if _, s := c.plugin.PostFilter(v.Cycle); s.Code != framework.Unschedulable || s.Reason != "deallocation of ResourceClaim completed" {
		t.Errorf("PostFilter: %+v", s)
	}
	if s := c.claims[nodetable.ClaimKey("ns", "one")].Status; s.Allocation != nil || len(s.Devices) > 0 {
		t.Errorf("the claim is %+v", s)
	}
}

// unreported sends what is removed to an API server that has not answered.
type unreported struct {
	*Controller
	sent int
}

func (u *unreported) Deallocate(*resourceapi.ResourceClaim, *v1.Pod) { u.sent++ }

// rule: S8.51
func TestAFurtherRunOfAnAttemptDoesNotDeallocateAgain(t *testing.T) {
	c := newCluster(t, 1)
	c.SetClaim(newClaim("one", 1, on("gone", "0")))
	api := &unreported{Controller: c.Controller()}
	c.Store.api = api
	v := c.Evaluate(c.plugin, c.Digest(pod("p", "one")))
	attempt := func(want int) {
		t.Helper()
		v.Cycle.BeginPodGroup()
		for range 2 { // the attempt, and its further run after a response
			v.Cycle.Feasible = v.Cycle.Feasible.Copied(c.Table.Alive())
			c.plugin.PreFilter(v.Cycle)
			c.plugin.Filter(v.Cycle)
			if _, s := c.plugin.PostFilter(v.Cycle); s.Reason != "deallocation of ResourceClaim completed" {
				t.Errorf("PostFilter: %+v", s)
			}
			v.Cycle.Resume()
			v.Cycle.BeginPodGroup()
		}
		if api.sent != want {
			t.Errorf("%d deallocations are sent, want %d", api.sent, want)
		}
	}
	attempt(1)
	attempt(2)
}

func TestClaimsThatOthersUseAreNotDeallocated(t *testing.T) {
	c := newCluster(t, 1)
	for _, w := range []struct {
		reserved []string
		want     string
	}{
		{nil, "deallocation of ResourceClaim completed"},
		{[]string{"p"}, "deallocation of ResourceClaim completed"},
		{[]string{"q"}, ""},
		{[]string{"p", "q"}, ""},
	} {
		c.SetClaim(newClaim("one", 1, on("gone", "0"), func(claim *resourceapi.ResourceClaim) {
			for _, name := range w.reserved {
				claim.Status.ReservedFor = append(claim.Status.ReservedFor, resourceapi.ResourceClaimConsumerReference{Resource: "pods", Name: name, UID: c.Digest(pod(name)).UID})
			}
		}))
		v := c.Evaluate(c.plugin, c.Digest(pod("p", "one")))
		_, s := c.plugin.PostFilter(v.Cycle)
		c.holds(fmt.Sprint("reserved for ", w.reserved), s.Reason, w.want)
	}
}

func TestAChangeForgetsTheResultsThatItConcerns(t *testing.T) {
	c := newCluster(t, 3)
	c.SetSlice(slice("a", 1))
	c.SetClaim(newClaim("one", 1))
	p := pod("p", "one")
	c.holds("one node has devices", c.try(p), "b:"+nothing+" c:"+nothing)
	c.SetSlice(slice("b", 1))
	c.holds("a slice was added", c.try(p), "c:"+nothing)
	c.SetClaim(newClaim("other", 1, on("a", "0")))
	c.holds("a device was allocated", c.try(p), "a:"+nothing+" c:"+nothing)
	c.SetClaim(newClaim("other", 1))
	c.holds("a device was deallocated", c.try(p), "c:"+nothing)
	c.SetRule(&resourceapi.DeviceTaintRule{ObjectMeta: metav1.ObjectMeta{Name: "rule"}, Spec: resourceapi.DeviceTaintRuleSpec{
		DeviceSelector: &resourceapi.DeviceTaintSelector{Pool: new("b")}, Taint: resourceapi.DeviceTaint{Key: "k", Effect: resourceapi.DeviceTaintEffectNoSchedule},
	}})
	c.holds("a device is tainted", c.try(p), "b:"+nothing+" c:"+nothing)
	c.RemoveRule("rule")
	c.holds("a taint was removed", c.try(p), "c:"+nothing)
	c.SetSlice(slice("shared", 1, func(s *resourceapi.ResourceSlice) {
		s.Spec.NodeName, s.Spec.NodeSelector = nil, &v1.NodeSelector{NodeSelectorTerms: []v1.NodeSelectorTerm{
			{MatchExpressions: []v1.NodeSelectorRequirement{{Key: "rack", Operator: v1.NodeSelectorOpExists}}},
		}}
	}))
	c.holds("the slice of a rack without nodes", c.try(p), "c:"+nothing)
	c.Table.SetNode(nodetable.NewNode(&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "c", Labels: map[string]string{"rack": "1"}}}))
	c.holds("a node was labelled", c.try(p), "")
	c.RemoveSlice("of-shared")
	c.RemoveSlice("of-a")
	c.holds("slices were removed", c.try(p), "a:"+nothing+" c:"+nothing)
	c.RemoveClass("gpu")
	c.holds("the class was removed", c.try(p), "request r: device class gpu does not exist")
}

// TestKeptResultsAreThoseOfAFreshStore compares, over random changes, a store that
// keeps results with one that has none.
func TestKeptResultsAreThoseOfAFreshStore(t *testing.T) {
	for seed := range uint64(20) {
		random := rand.New(rand.NewPCG(seed, 0))
		c := newCluster(t, 4)
		slices, claims := map[string]*resourceapi.ResourceSlice{}, map[string]*resourceapi.ResourceClaim{}
		for step := range 60 {
			node := string(rune('a' + random.IntN(4)))
			switch random.IntN(4) {
			case 0:
				s := slice(node, random.IntN(3), func(s *resourceapi.ResourceSlice) {
					if random.IntN(5) == 0 {
						s.Spec.NodeName, s.Spec.AllNodes = nil, new(true)
					}
				})
				slices[s.Name] = s
				c.SetSlice(s)
			case 1:
				delete(slices, "of-"+node)
				c.RemoveSlice("of-" + node)
			default:
				claim := newClaim(fmt.Sprint("claim-", random.IntN(6)), 1)
				if random.IntN(2) == 0 {
					on(node, fmt.Sprint(random.IntN(2)))(claim)
					for name, other := range claims { // two claims never have the same device
						if a := other.Status.Allocation; name != claim.Name && a != nil && a.Devices.Results[0].Pool == node {
							claim.Status.Allocation = nil
						}
					}
				}
				claims[claim.Name] = claim
				c.SetClaim(claim)
			}
			fresh := newCluster(t, 4)
			for _, s := range slices {
				fresh.SetSlice(s)
			}
			for _, claim := range claims {
				fresh.SetClaim(claim)
			}
			for count := range int64(2) {
				name := fmt.Sprint("of-p-", count)
				c.SetClaim(newClaim(name, count+1))
				fresh.SetClaim(newClaim(name, count+1))
				if got, want := c.try(pod("p", name)), fresh.try(pod("p", name)); got != want {
					t.Fatalf("seed %d, step %d, %d devices: %q, a fresh store says %q", seed, step, count+1, got, want)
				}
			}
		}
	}
}

func TestExtendedResourcesOfInitContainersReuseDevices(t *testing.T) {
	limits := func(n string) v1.ResourceRequirements {
		return v1.ResourceRequirements{Requests: v1.ResourceList{"example.com/gpu": resource.MustParse(n), v1.ResourceCPU: resource.MustParse("1")}}
	}
	p := pod("p")
	always := v1.ContainerRestartPolicyAlways
	p.Spec.InitContainers = []v1.Container{
		{Name: "large", Resources: limits("5")}, {Name: "sidecar", RestartPolicy: &always, Resources: limits("1")}, {Name: "small", Resources: limits("2")},
	}
	p.Spec.Containers = []v1.Container{{Name: "main", Resources: limits("2")}, {Name: "none"}}
	requests, mappings := requestsFor(p, mappedResource{nodetable.Intern("example.com/gpu"), "gpu"})
	var got []string
	for _, r := range requests {
		got = append(got, fmt.Sprint(r.Name, "=", r.Exactly.Count))
	}
	for _, m := range mappings {
		got = append(got, m.ContainerName+" "+m.RequestName)
	}
	want := "container-1-request-1=1, container-3-request-1=2, container-0-request-1=2, " +
		"sidecar container-1-request-1, main container-3-request-1, " +
		"large container-1-request-1, large container-3-request-1, large container-0-request-1, small container-3-request-1"
	if text := strings.Join(got, ", "); text != want {
		t.Errorf("got  %s\nwant %s", text, want)
	}
}

func TestDetailsNameTheRequestThatDoesNotFit(t *testing.T) {
	c := newCluster(t, 4)
	c.SetSlice(slice("a", 1))
	c.SetSlice(slice("b", 2))
	c.SetSlice(slice("d", 2))
	c.SetClaim(newClaim("other", 1, on("b", "0")))
	c.SetClaim(newClaim("two", 2))
	c.SetClaim(newClaim("three", 2, func(claim *resourceapi.ResourceClaim) { claim.Spec.Devices.Requests[0].Name = "s" }))
	p := pod("p", "two")
	v := c.Evaluate(c.plugin, c.Digest(p))
	for node, want := range map[string]string{
		"a": "claim ns/two, request r (2 of class gpu): fewer devices match than are requested",
		"b": "claim ns/two, request r (2 of class gpu): matching devices are allocated to other claims",
		"c": "claim ns/two, request r (2 of class gpu): the node has no devices",
	} {
		c.holds(node, strings.Join(c.plugin.Details(v.Cycle, c.Table.Row(nodetable.Intern(node))), "; "), want)
	}
	v = c.Evaluate(c.plugin, c.Digest(pod("p", "two", "three")))
	c.holds("d", strings.Join(c.plugin.Details(v.Cycle, c.Table.Row(nodetable.Intern("d"))), "; "), "each request fits alone, but not all requests of the claims together")
	v = c.Evaluate(c.plugin, c.Digest(pod("p", "other")))
	c.holds("allocated", strings.Join(c.plugin.Details(v.Cycle, c.Table.Row(nodetable.Intern("a"))), "; "), "claim ns/other is allocated to devices of other nodes")
}

func TestEventsThatHelpAPodWithClaims(t *testing.T) {
	c := newCluster(t, 1)
	c.SetClaim(newClaim("one", 1))
	waiting := c.Digest(pod("p", "one"))
	lacking := c.Digest(pod("q", "one", "absent"))
	other := newClaim("other", 1)
	for _, w := range []struct {
		name     string
		old, now any
		pod      *nodetable.Pod
		want     framework.Hint
	}{
		{"its claim came", nil, newClaim("one", 1), waiting, framework.Queue},
		{"another claim came", nil, other, waiting, framework.QueueSkip},
		{"its claim came, and another is missing", nil, newClaim("one", 1), lacking, framework.QueueSkip},
		{"its claim has a finalizer", newClaim("one", 1), newClaim("one", 1, func(c *resourceapi.ResourceClaim) { c.Finalizers = []string{"x"} }), waiting, framework.QueueSkip},
		{"its claim was allocated", newClaim("one", 1), newClaim("one", 1, on("a", "0")), waiting, framework.Queue},
		{"another claim was allocated", other, newClaim("other", 1, on("a", "0")), waiting, framework.QueueSkip},
		{"another claim was deallocated", newClaim("other", 1, on("a", "0")), other, waiting, framework.Queue},
		{"another claim was deallocated, and a claim is missing", newClaim("other", 1, on("a", "0")), other, lacking, framework.QueueSkip},
		{"a claim without devices was deleted", other, nil, waiting, framework.QueueSkip},
		{"a claim with devices was deleted", newClaim("other", 1, on("a", "0")), nil, waiting, framework.Queue},
	} {
		got, err := c.plugin.claimChanged(&framework.Occurrence{Event: framework.Event{Resource: framework.ResourceClaim}, OldObject: w.old, Object: w.now}, w.pod)
		if err != nil || got != w.want {
			t.Errorf("%s: %v %v, want %v", w.name, got, err, w.want)
		}
	}
}

func TestASpecialClaimIsDeletedIfItsPodIsNotBound(t *testing.T) {
	c := newCluster(t, 1)
	c.SetClass(&resourceapi.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: "gpu"}, Spec: resourceapi.DeviceClassSpec{ExtendedResourceName: new("example.com/gpu")}})
	c.SetSlice(slice("a", 1))
	p := pod("p")
	p.Spec.Containers = []v1.Container{{Name: "main", Resources: v1.ResourceRequirements{Requests: v1.ResourceList{"example.com/gpu": resource.MustParse("1")}}}}
	c.holds("a free device", c.try(p), "")
	a := c.assignment(p, "a")
	if s := c.plugin.Reserve(a); !s.OK() {
		t.Fatal(s.Message())
	}
	if s := c.plugin.PreBind(t.Context(), a); !s.OK() {
		t.Fatal(s.Message())
	}
	if len(c.claims) != 1 || len(c.generated) != 1 || len(c.pending) != 0 {
		t.Fatalf("%d claims, %d of extended resources, %d pending", len(c.claims), len(c.generated), len(c.pending))
	}
	v := c.Evaluate(c.plugin, a.Pod)
	c.holds("a claim of an earlier attempt", fmt.Sprint(v.Rejected), "map[a:never: cannot schedule extended resource claim]")
	if _, s := c.plugin.PostFilter(v.Cycle); s.Reason != "deletion of ResourceClaim completed" {
		t.Errorf("PostFilter: %+v", s)
	}
	c.plugin.Unreserve(a)
	if len(c.claims) != 0 || len(c.generated) != 0 || c.allocated.AllocatedDevices.Len() != 0 {
		t.Errorf("%d claims, %d of extended resources, %d devices", len(c.claims), len(c.generated), c.allocated.AllocatedDevices.Len())
	}
}

// refusing is an API server that refuses reservations.
type refusing struct{ *Controller }

var errRefused = errors.New("refused")

func (refusing) Reserve(context.Context, *resourceapi.ResourceClaim, *resourceapi.AllocationResult, *v1.Pod) (*resourceapi.ResourceClaim, error) {
	return nil, errRefused
}

func TestARefusedReservationReleasesTheDevices(t *testing.T) {
	c := newCluster(t, 1)
	c.SetSlice(slice("a", 1))
	c.SetClaim(newClaim("one", 1))
	c.Store.api = refusing{c.Controller()}
	c.try(pod("p", "one"))
	a := c.assignment(pod("p", "one"), "a")
	c.plugin.Reserve(a)
	if s := c.plugin.PreBind(t.Context(), a); !errors.Is(s.Err, errRefused) {
		t.Errorf("PreBind: %+v", s)
	}
	c.plugin.Unreserve(a)
	if len(c.pending) != 0 || c.allocated.AllocatedDevices.Len() != 0 {
		t.Errorf("%d pending, %d devices", len(c.pending), c.allocated.AllocatedDevices.Len())
	}
}
