package nodetable

// tries is the undo log of moves.
type tries struct {
	moves   []Move
	started []try
	serial  uint64
	emptied []emptiedTerm
	unused  []Symbol // extended resources
	lone    []*labelSet
}

// try is the start of an open try.
type try struct {
	serial uint64
	start  int
}

// Move of a pod to a row or from it.
type Move struct {
	Pod    *Pod
	Row    Row
	index  int32 // in the row's list
	Placed bool
}

type emptiedTerm struct {
	kind TermKind
	term *CarriedTerm
}

// Try starts a try: Undo reverts the pods placed and displaced since. Tries nest.
// Nodes and namespaces must not change inside a try.
func (t *Table) Try() {
	t.tries.serial++
	t.tries.started = append(t.tries.started, try{t.tries.serial, len(t.tries.moves)})
}

// Tries is the number of open tries.
func (t *Table) Tries() int { return len(t.tries.started) }

// Tried lists the moves of the open try of a depth, from 0 for the outermost,
// before the next one started. Serials are unique. The list is valid until the next
// change.
func (t *Table) Tried(depth int) (serial uint64, moves []Move) {
	end := len(t.tries.moves)
	if depth+1 < len(t.tries.started) {
		end = t.tries.started[depth+1].start
	}
	own := t.tries.started[depth]
	return own.serial, t.tries.moves[own.start:end]
}

// Undo ends the innermost try and restores each column, counter and list, including
// its order. Marks are not restored.
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
	for _, name := range t.tries.unused {
		if c := t.extended[name]; c != nil && c.users == 0 {
			t.unuse(name)
		}
	}
	t.tries.unused = t.tries.unused[:0]
	for _, s := range t.tries.lone {
		if s.empty() && t.sets.byKey[s.key] == s {
			t.sets.remove(s)
		}
	}
	clear(t.tries.lone)
	t.tries.lone = t.tries.lone[:0]
}

// restore puts a pod back at its index.
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

// settled panics inside a try.
func (s *tries) settled() {
	if s.open() {
		panic("nodetable: changed inside a try, which undoes the moves of pods only")
	}
}
