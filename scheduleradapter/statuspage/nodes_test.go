package statuspage

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/evictd/evictd/internal/page"
	"github.com/evictd/evictd/internal/require"
	"github.com/evictd/evictd/scheduleradapter/cycle"
)

// browser has what a page shows after the events.
type browser map[string]cycle.NodeSummary

// receive takes an event as app.js does, and returns how many nodes it has.
func (b *browser) receive(t *testing.T, e page.Event) (sent int) {
	t.Helper()
	set := func(text json.RawMessage) {
		var n cycle.NodeSummary
		require.NoError(t, json.Unmarshal(text, &n))
		(*b)[n.Name] = n
		sent++
	}
	switch changes := e.Changes.(type) {
	case nil:
		*b = browser{}
		for _, text := range e.Data.([]json.RawMessage) {
			set(text)
		}
	case nodeChanges:
		if changes.Changed == nil || changes.Gone == nil {
			t.Fatalf("%+v: the page expects lists", changes)
		}
		for _, name := range changes.Gone {
			delete(*b, name)
		}
		for _, text := range changes.Changed {
			set(text)
		}
	default:
		if e.Changes != page.Unchanged {
			t.Fatalf("changes are %v", e.Changes)
		}
	}
	return sent
}

func update(t *testing.T, n *nodes, row int, name string, kind cycle.NodeKind, pods int64) {
	t.Helper()
	u := cycle.NodeUpdate{Row: row}
	if name != "" {
		u.Node = &cycle.NodeSummary{Name: name, Kind: kind, Given: cycle.Given{Pods: [2]int64{pods, 110}}}
	}
	require.NoError(t, n.update(u))
}

func TestOnlyChangedNodesAreSent(t *testing.T) {
	n, b := newNodes(), browser{}
	for row := range 100 {
		update(t, n, row, fmt.Sprint("node-", row), cycle.NodeOK, 0)
	}
	if sent := b.receive(t, n.event()); sent != 100 {
		t.Errorf("%d nodes are sent at first", sent)
	}
	for row := range 100 {
		update(t, n, row, fmt.Sprint("node-", row), cycle.NodeOK, 0)
	}
	if e := n.event(); e.Changes != page.Unchanged {
		t.Errorf("nodes that are visited without a change are sent: %v", e.Changes)
	}
	update(t, n, 3, "node-3", cycle.NodeTight, 7)
	update(t, n, 4, "", "", 0)
	update(t, n, 5, "other", cycle.NodeUnready, 0) // a new node in the row of one that was removed
	update(t, n, 6, "", "", 0)
	update(t, n, 101, "node-6", cycle.NodeOK, 9) // removed and added again
	if sent := b.receive(t, n.event()); sent != 3 {
		t.Errorf("%d changed nodes are sent, expected 3", sent)
	}
	if len(b) != 99 || b["node-3"].Given.Pods[0] != 7 || b["other"].Kind != cycle.NodeUnready || b["node-6"].Given.Pods[0] != 9 {
		t.Errorf("the page shows %d nodes, among them %v, %v and %v", len(b), b["node-3"], b["other"], b["node-6"])
	}
	if want := (map[cycle.NodeKind]int{cycle.NodeOK: 97, cycle.NodeTight: 1, cycle.NodeUnready: 1}); !maps.Equal(n.counts, want) {
		t.Errorf("counted %v, expected %v", n.counts, want)
	}
}

func TestNodesThatAreNotOKAreShownOfMoreThanAPageShows(t *testing.T) {
	n, b := newNodes(), browser{}
	const all = 2 * shownNodes
	for row := range all {
		kind := cycle.NodeOK
		if row >= all-10 {
			kind = cycle.NodeHard
		}
		update(t, n, row, fmt.Sprint("node-", row), kind, 0)
	}
	b.receive(t, n.event())
	hard := 0
	for _, node := range b {
		if node.Kind == cycle.NodeHard {
			hard++
		}
	}
	if len(b) != shownNodes || hard != 10 || n.counts[cycle.NodeOK] != all-10 {
		t.Errorf("the page shows %d nodes, %d beyond a threshold; %v are counted", len(b), hard, n.counts)
	}
}

func TestPageShowsTheSameByChangesAsAWhole(t *testing.T) {
	dice := rand.New(rand.NewPCG(7, 8))
	n, b := newNodes(), browser{}
	is := map[int]string{}
	names := 0
	for range 100 {
		for range dice.IntN(60) {
			row, kind := dice.IntN(200), []cycle.NodeKind{cycle.NodeOK, cycle.NodeSoft, cycle.NodeUnready}[dice.IntN(3)]
			switch dice.IntN(4) {
			case 0:
				delete(is, row)
			case 1:
				names++
				is[row] = fmt.Sprint("node-", names)
			}
			update(t, n, row, is[row], kind, dice.Int64N(3))
		}
		e := n.event()
		b.receive(t, e)
		whole := browser{}
		e.Changes = nil
		whole.receive(t, e)
		if !slices.Equal(slices.Sorted(maps.Keys(b)), slices.Sorted(maps.Values(is))) {
			t.Fatalf("the page shows %v, expected %v", slices.Sorted(maps.Keys(b)), slices.Sorted(maps.Values(is)))
		}
		for name := range whole {
			if fmt.Sprint(b[name]) != fmt.Sprint(whole[name]) {
				t.Fatalf("%s is shown as %v, expected %v", name, b[name], whole[name])
			}
		}
	}
}
