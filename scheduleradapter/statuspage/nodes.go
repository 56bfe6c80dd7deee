package statuspage

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"time"

	"github.com/evictd/evictd/internal/page"
	"github.com/evictd/evictd/scheduleradapter/cycle"
)

const (
	// shownNodes bounds the nodes of a page. Beyond it, a node that is not ok takes the
	// place of one that is; the numbers by kind are those of all nodes.
	shownNodes = 5_000
	// visitedAtOnce bounds the nodes that are described at a time in the loop's goroutine,
	// for which it takes 4 ms.
	visitedAtOnce = 20_000
)

// nodes follows the nodes of a loop for all open pages: only what has changed is read,
// encoded and sent. The page's goroutine owns it.
type nodes struct {
	cursor *cycle.NodeCursor // of the loop's goroutine while it is asked
	kinds  map[int]cycle.NodeKind
	counts map[cycle.NodeKind]int
	shown  map[int]shownNode
	ok     map[int]bool // those of shown that are ok

	begun   bool         // there was an event
	changed map[int]bool // since the last event
	gone    map[string]bool
}

type shownNode struct {
	name string
	text json.RawMessage
}

// nodeChanges is what has changed since the last event. No list is nil.
type nodeChanges struct {
	Changed []json.RawMessage `json:"changed"`
	Gone    []string          `json:"gone"` // no longer shown
}

func newNodes() *nodes {
	return &nodes{
		cursor: &cycle.NodeCursor{}, kinds: map[int]cycle.NodeKind{}, counts: map[cycle.NodeKind]int{},
		shown: map[int]shownNode{}, ok: map[int]bool{}, changed: map[int]bool{}, gone: map[string]bool{},
	}
}

// follow reads a round of changes. After an error the receiver must not be used again.
func (n *nodes) follow(ctx context.Context, l *cycle.Loop, now time.Time) error {
	type visits struct {
		updates []cycle.NodeUpdate
		more    bool
	}
	for first, more := true, true; more; first = false {
		v, err := cycle.Ask(ctx, l, func() (v visits) {
			if first {
				l.Next(n.cursor)
			}
			v.updates, v.more = l.Visit(n.cursor, now, visitedAtOnce)
			return v
		})
		if err != nil {
			return err
		}
		for _, u := range v.updates {
			if err := n.update(u); err != nil {
				return err
			}
		}
		more = v.more
	}
	return nil
}

func (n *nodes) update(u cycle.NodeUpdate) error {
	if was, known := n.kinds[u.Row]; known {
		n.counts[was]--
		delete(n.kinds, u.Row)
	}
	was, isShown := n.shown[u.Row]
	if isShown && (u.Node == nil || u.Node.Name != was.name) {
		n.hide(u.Row)
		isShown = false
	}
	if u.Node == nil {
		return nil
	}
	n.kinds[u.Row] = u.Node.Kind
	n.counts[u.Node.Kind]++
	if !isShown && !n.makeRoom(u.Node.Kind) {
		return nil
	}
	delete(n.ok, u.Row)
	if u.Node.Kind == cycle.NodeOK {
		n.ok[u.Row] = true
	}
	text, err := json.Marshal(u.Node)
	if err != nil || isShown && string(text) == string(was.text) {
		return err
	}
	n.shown[u.Row] = shownNode{u.Node.Name, text}
	n.changed[u.Row] = true
	delete(n.gone, u.Node.Name)
	return nil
}

// makeRoom reports whether a further node of a kind is shown.
func (n *nodes) makeRoom(kind cycle.NodeKind) bool {
	if len(n.shown) < shownNodes {
		return true
	}
	if kind == cycle.NodeOK {
		return false
	}
	for row := range n.ok {
		n.hide(row)
		return true
	}
	return false
}

func (n *nodes) hide(row int) {
	n.gone[n.shown[row].name] = true
	delete(n.shown, row)
	delete(n.ok, row)
	delete(n.changed, row)
}

// event has all shown nodes, and what has changed since the last event.
func (n *nodes) event() page.Event {
	all := make([]json.RawMessage, 0, len(n.shown))
	changes := nodeChanges{Changed: []json.RawMessage{}, Gone: slices.AppendSeq([]string{}, maps.Keys(n.gone))}
	for _, row := range slices.Sorted(maps.Keys(n.shown)) {
		text := n.shown[row].text
		all = append(all, text)
		if n.changed[row] {
			changes.Changed = append(changes.Changed, text)
		}
	}
	e := page.Event{Name: "nodes", Data: all}
	switch sent := len(changes.Changed) + len(changes.Gone); {
	case !n.begun:
		n.begun = true
	case sent == 0:
		e.Changes = page.Unchanged
	case sent < len(all):
		e.Changes = changes
	}
	clear(n.changed)
	clear(n.gone)
	return e
}
