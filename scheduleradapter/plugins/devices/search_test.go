package devices

import (
	"context"
	"fmt"
	"testing"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/evictd/evictd/internal/require"
	"github.com/evictd/evictd/scheduleradapter/framework"
	"github.com/evictd/evictd/scheduleradapter/nodetable"
)

func TestClaimsThatDifferInTheirConfigurationShareResults(t *testing.T) {
	c := newCluster(t, 1)
	c.SetSlice(slice("a", 2))
	for _, name := range []string{"one", "two"} {
		c.SetClaim(newClaim(name, 1, func(claim *resourceapi.ResourceClaim) {
			claim.Spec.Devices.Config = []resourceapi.DeviceClaimConfiguration{{DeviceConfiguration: resourceapi.DeviceConfiguration{
				Opaque: &resourceapi.OpaqueDeviceConfiguration{Driver: "driver", Parameters: runtime.RawExtension{Raw: []byte(name)}},
			}}}
		}))
		c.holds("a free device", c.try(pod(name, name)), "")
		a := c.assignment(pod(name, name), "a")
		if s := c.plugin.Reserve(a); !s.OK() {
			t.Fatal(s.Message())
		}
		config := c.plugin.plans[a.Pod.UID].parts[0].allocation.Devices.Config
		if len(config) != 1 || string(config[0].Opaque.Parameters.Raw) != name {
			t.Errorf("claim %s is allocated with %+v", name, config)
		}
	}
	if len(c.memos.byShape) != 1 {
		t.Errorf("%d memos", len(c.memos.byShape))
	}
}

// TestEnoughNodesEndTheSearch counts the nodes for which the allocator runs.
func TestEnoughNodesEndTheSearch(t *testing.T) {
	c := newCluster(t, 0)
	const nodes = 300
	for i := range nodes {
		name := fmt.Sprint("node-", i)
		c.Table.SetNode(nodetable.NewNode(&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{v1.LabelHostname: name}}}))
		c.SetSlice(slice(name, i%3)) // none on each third
	}
	evaluated := func() (n int) {
		for _, m := range c.memos.byShape {
			n += m.known.Count()
		}
		return n
	}
	search := func(claim string, enough int, reject ...framework.Enabled) (feasible, visited int) {
		t.Helper()
		plan := framework.Plan{
			framework.QueueSort: {{Plugin: filler{}}}, framework.Bind: {{Plugin: filler{}}},
			framework.PreFilter: {{Plugin: c.plugin}}, framework.Filter: append([]framework.Enabled{{Plugin: c.plugin}}, reject...),
		}
		runner, err := framework.New("", &plan)
		require.NoError(t, err)
		var cycle framework.Cycle
		if s := runner.Begin(&cycle, c.Table, c.Digest(pod("p", claim)), nil); !s.OK() {
			t.Fatal(s.Message())
		}
		visited, s := runner.Filter(&cycle, 100, enough)
		if !s.OK() {
			t.Fatal(s.Message())
		}
		if cycle.Evaluated.Count() != visited {
			t.Errorf("%d visited, %d evaluated", visited, cycle.Evaluated.Count())
		}
		return cycle.Feasible.Count(), visited
	}
	c.SetClaim(newClaim("one", 1))
	if feasible, visited := search("one", 20); feasible != 20 || visited >= nodes/2 || evaluated() != visited {
		t.Errorf("%d feasible, %d visited, %d evaluated", feasible, visited, evaluated())
	}
	if feasible, visited := search("one", nodes+1); feasible != 200 || visited != nodes || evaluated() != nodes {
		t.Errorf("%d feasible, %d visited, %d evaluated", feasible, visited, evaluated())
	}
	c.SetClaim(newClaim("two", 2))
	last := nodetable.Intern("node-98") // the last that fits, in the order of the search
	if feasible, visited := search("two", 20, framework.Enabled{Plugin: only{last}}); feasible != 1 || visited != nodes {
		t.Errorf("%d feasible, %d visited, if a further filter rejects all others", feasible, visited)
	}
}

// filler is the required QueueSort and Bind plugin.
type filler struct{}

func (filler) Name() string                                                    { return "filler" }
func (filler) Less(framework.Queued, framework.Queued) bool                    { return false }
func (filler) Bind(context.Context, framework.Assignment) (s framework.Status) { return s }

// only is a filter that rejects all nodes but one.
type only struct{ node nodetable.Symbol }

func (only) Name() string                            { return "only" }
func (only) Reasons(*nodetable.Pod, uint32) []string { return []string{"another node"} }
func (o only) Filter(c *framework.Cycle) framework.Status {
	for row := range c.Feasible.All() {
		if c.Table.Node(row).Name != o.node {
			c.Reject(row, 1, true)
		}
	}
	return framework.Status{}
}
