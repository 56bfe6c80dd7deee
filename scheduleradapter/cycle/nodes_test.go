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
