package nodetable

// tries is the journal of moves that can be undone.
type tries struct {
	moves   []Move
	started []try
	serial  uint64
	emptied []emptiedTerm
}

// try is where an open one begins.
type try struct {
	serial uint64
	start  int
}

// Move of a pod onto a row or off it.
type Move struct {
	Pod    *Pod
	Row    Row
	index  int32 // among the row's pods
	Placed bool
}

type emptiedTerm struct {
	kind TermKind
	term *CarriedTerm
}

// Try begins to ask what if: pods placed and displaced from here on are put back
// by Undo. Tries nest. Nodes and namespaces do not change inside one.
func (t *Table) Try() {
	t.tries.serial++
	t.tries.started = append(t.tries.started, try{t.tries.serial, len(t.tries.moves)})
}

// Tries is how many are open.
func (t *Table) Tries() int { return len(t.tries.started) }

// Tried is what has been moved in the open try of that depth, from 0 for the
// outermost, before the next one began. No two tries have the same serial. The
// list is good until the next change.
func (t *Table) Tried(depth int) (serial uint64, moves []Move) {
	end := len(t.tries.moves)
	if depth+1 < len(t.tries.started) {
		end = t.tries.started[depth+1].start
	}
	own := t.tries.started[depth]
	return own.serial, t.tries.moves[own.start:end]
}

// Undo ends the innermost try: every column, counter and list is again what it
// was at its beginning, in the same order. Marks go on.
func (t *Table) Undo() {
	last := len(t.tries.started) - 1
	start := t.tries.started[last].start
	for len(t.tries.moves) > start {
		n := len(t.tries.moves) - 1
		m := t.tries.moves[n]
		if m.Placed {
			t.take(spot{m.Row, m.index})
		} else {
			t.restore(m)
		}
		clear(t.tries.moves[n:])
		t.tries.moves = t.tries.moves[:n]
	}
	t.tries.started = t.tries.started[:last]
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
func (t *Table) restore(m Move) {
	t.put(m.Pod, m.Row)
	pods := t.pods[m.Row]
	last := int32(len(pods) - 1)
	pods[m.index], pods[last] = pods[last], pods[m.index]
	t.where[pods[last].UID] = spot{m.Row, last}
	t.where[pods[m.index].UID] = spot{m.Row, m.index}
}

func (s *tries) open() bool { return len(s.started) > 0 }

func (s *tries) note(m Move) {
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
