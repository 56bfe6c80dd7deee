package preempt

import (
	"fmt"
	"iter"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/evictd/evictd/internal/campaign"
	"github.com/evictd/evictd/scheduleradapter/framework"
	"github.com/evictd/evictd/scheduleradapter/nodetable"
)

// podReader is a filter that accepts all nodes but may read pods, so that sums do
// not decide.
type podReader struct{}

func (podReader) Name() string                             { return "Onlooker" }
func (podReader) Filter(*framework.Cycle) framework.Status { return framework.Status{} }
func (podReader) Reasons(*nodetable.Pod, uint32) []string  { return nil }

// outcome is the result of an attempt as text.
func (c *cluster) outcome(pod *nodetable.Pod, nominated iter.Seq2[*nodetable.Pod, nodetable.Symbol]) string {
	if s := c.runner.Begin(&c.cycle, c.table, pod, nominated); !s.OK() {
		c.Fatal(s)
	}
	if _, s := c.runner.Filter(&c.cycle, 0, c.table.Len()); !s.OK() {
		c.Fatal(s)
	}
	if n := c.cycle.Feasible.Count(); n > 0 {
		return fmt.Sprint(n, " feasible")
	}
	nomination, status := c.runner.PostFilter(&c.cycle)
	var b strings.Builder
	if nomination.Node != nil {
		fmt.Fprintf(&b, "%s:", nomination.Node.Name.Value())
	}
	for _, v := range nomination.Victims {
		fmt.Fprintf(&b, " %s", v.UID)
	}
	return b.String() + " " + c.cycle.Message(status)
}

func TestSumsAgreeWithTryingOut(t *testing.T) {
	compareWithTrial(t, 400)
}

func TestCampaignSumsAgreeWithTryingOut(t *testing.T) {
	campaign.Only(t)
	compareWithTrial(t, campaign.Size(20_000, 400))
}

func compareWithTrial(t *testing.T, rounds int) {
	dice := rand.New(rand.NewPCG(3, 4))
	seen := map[string]int{}
	for round := range rounds {
		start := at(dice.IntN(8))
		sums, trial := newCluster(t, 100, 100, start), newCluster(t, 100, 100, start, podReader{})
		nominated := map[*nodetable.Pod]nodetable.Symbol{}
		var order []*nodetable.Pod
		nodes := 1 + dice.IntN(5)
		var running []*nodetable.Pod
		for i := range nodes {
			name := fmt.Sprint("node-", i)
			sums.node(name, 8)
			trial.node(name, 8)
			for left := int64(8); left > 0; {
				cpu := min(1+dice.Int64N(4), left)
				left -= cpu
				pod := sums.pod(fmt.Sprintf("pod-%d-%d", i, left), dice.Int32N(4), cpu, []string{"a", "b", "c"}[:dice.IntN(4)]...)
				sums.run(name, pod)
				trial.run(name, pod)
				running = append(running, pod)
			}
			for j := range dice.IntN(3) {
				pod := sums.pod(fmt.Sprintf("nominated-%d-%d", i, j), dice.Int32N(6), 1+dice.Int64N(4))
				nominated[pod] = nodetable.Intern(name)
				order = append(order, pod)
			}
		}
		for _, app := range []string{"a", "b"} {
			allowed := dice.Int32N(3)
			sums.budget(app, allowed)
			trial.budget(app, allowed)
		}
		for range dice.IntN(3) { // the ledger has to follow
			gone := running[dice.IntN(len(running))]
			sums.outcome(sums.pod("before", 5, 9), nil)
			sums.table.Displace(gone.UID)
			trial.table.Displace(gone.UID)
		}
		all := func(yield func(*nodetable.Pod, nodetable.Symbol) bool) {
			for _, pod := range order {
				if !yield(pod, nominated[pod]) {
					return
				}
			}
		}
		p := sums.pod("p", dice.Int32N(6), 1+dice.Int64N(9))
		got, want := sums.outcome(p, all), trial.outcome(p, all)
		if got != want {
			t.Fatalf("round %d:\nsums  %s\ntrial %s", round, got, want)
		}
		seen[got[:min(len(got), 4)]]++
	}
	if len(seen) < 4 || seen["node"] < rounds/7 {
		t.Errorf("too little happened: %v", seen)
	}
}
