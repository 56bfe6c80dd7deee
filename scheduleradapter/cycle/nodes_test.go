package cycle

import (
	"fmt"
	"slices"
	"testing"

	"github.com/evictd/evictd/scheduleradapter/nodetable"
)

// visit makes a round in parts.
func (c *cluster) visit(of *NodeCursor) (names []string) {
	c.Next(of)
	for more := true; more; {
		var updates []NodeUpdate
		updates, more = c.Visit(of, start, 100)
		for _, u := range updates {
			name := fmt.Sprint("none in row ", u.Row)
			if u.Node != nil {
				name = u.Node.Name
			}
			names = append(names, name)
		}
	}
	return names
}

func TestANodeHasTheWorstKindThatIsKnownOfIt(t *testing.T) {
	levels := func(of ...string) map[string]string {
		all := map[string]string{"pid.available": "ok"}
		for i, level := range of {
			all[fmt.Sprint("signal-", i)] = level
		}
		return all
	}
	for want, all := range map[NodeKind][]NodeSummary{
		NodeOK:      {{Ready: true}, {Ready: true, Levels: levels()}, {Ready: true, Silent: true, Levels: levels("hard", "soft", "tight")}},
		NodeTight:   {{Ready: true, Levels: levels("tight")}},
		NodePressed: {{Ready: true, Conditions: []string{"PIDPressure"}}, {Ready: true, Conditions: []string{"PIDPressure"}, Levels: levels("tight")}},
		NodeSoft:    {{Ready: true, Levels: levels("tight", "soft")}, {Ready: true, Conditions: []string{"PIDPressure"}, Levels: levels("soft")}},
		NodeHard:    {{Ready: true, Levels: levels("tight", "soft", "hard")}},
		NodeUnready: {{}, {Levels: levels("hard")}},
	} {
		for _, s := range all {
			if got := s.kind(); got != want {
				t.Errorf("%+v is %s, expected %s", s, got, want)
			}
		}
	}
}

func TestNodesAreDescribedAgainWhenTheyChange(t *testing.T) {
	c := newCluster(t)
	const nodes = 4 * sweptRows
	for i := range nodes {
		c.node(fmt.Sprint("n", i))
	}
	var cursor NodeCursor
	if n := len(c.visit(&cursor)); n != nodes {
		t.Errorf("%d nodes are described at first, expected %d", n, nodes)
	}
	c.table.Place(c.pod("p"), nodetable.Row(nodes-1))
	gone := c.table.Node(nodes - 2).Name
	c.table.RemoveNode(gone)
	names := c.visit(&cursor)
	if len(names) != sweptRows+2 || !slices.Contains(names, c.table.Node(nodes-1).Name.Value()) || !slices.Contains(names, fmt.Sprint("none in row ", nodes-2)) {
		t.Errorf("%d rows are described after two have changed, expected those and %d", len(names), sweptRows)
	}
	seen := map[string]bool{}
	for range 4 {
		for _, name := range c.visit(&cursor) {
			seen[name] = true
		}
	}
	if len(seen) != nodes {
		t.Errorf("%d rows are described in four rounds without changes, expected %d", len(seen), nodes)
	}
}
