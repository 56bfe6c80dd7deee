package nodetable

// tries is the journal of moves that can be undone.
type tries struct {
	moves   []move
	starts  []int // where each open try begins
	emptied []emptiedTerm
}

// move of a pod onto a row or off it, with its index among the row's pods.
type move struct {
	pod    *Pod
	row    Row
	index  int32
	placed bool
}

type emptiedTerm struct {
	kind TermKind
	term *CarriedTerm
}

// Try begins to ask what if: pods placed and displaced from here on are put back
// by Undo. Tries nest. Nodes and namespaces do not change inside one.
func (t *Table) Try() { t.tries.starts = append(t.tries.starts, len(t.tries.moves)) }

// Undo ends the innermost try: every column, counter and list is again what it
// was at its beginning, in the same order. Marks go on.
func (t *Table) Undo() {
	last := len(t.tries.starts) - 1
	start := t.tries.starts[last]
	for len(t.tries.moves) > start {
		n := len(t.tries.moves) - 1
		m := t.tries.moves[n]
		if m.placed {
			t.take(spot{m.row, m.index})
		} else {
			t.restore(m)
		}
		clear(t.tries.moves[n:])
		t.tries.moves = t.tries.moves[:n]
	}
	t.tries.starts = t.tries.starts[:last]
	if last > 0 {
		return
	}
	for _, e := range t.tries.emptied {
		if e.term.total == 0 && t.terms[e.kind].byKey[e.term.Key] == e.term {
			t.drop(e.kind, e.term)
		}
	}
	clear(t.tries.emptied)
	t.tries.emptied = t.tries.emptied[:0]
}

// restore puts a pod back to the index it was taken from.
func (t *Table) restore(m move) {
	t.put(m.pod, m.row)
	pods := t.pods[m.row]
	last := int32(len(pods) - 1)
	pods[m.index], pods[last] = pods[last], pods[m.index]
	t.where[pods[last].UID] = spot{m.row, last}
	t.where[pods[m.index].UID] = spot{m.row, m.index}
}

func (s *tries) open() bool { return len(s.starts) > 0 }

func (s *tries) note(m move) {
	if s.open() {
		s.moves = append(s.moves, m)
	}
}

// settled guards what a try cannot undo.
func (s *tries) settled() {
	if s.open() {
		panic("nodetable: changed inside a try, which undoes the moves of pods only")
	}
}
