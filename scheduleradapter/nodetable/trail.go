package nodetable

// trail is the rows that changed, in order. It is cut from the front.
type trail struct {
	rows  []Row
	start uint64 // the mark of rows[0]
}

// A follower that has fallen more than this behind computes everything anew.
const keptTrail = 4096

func (l *trail) add(row Row) {
	if len(l.rows) == 2*keptTrail {
		l.rows = append(l.rows[:0], l.rows[keptTrail:]...)
		l.start += keptTrail
	}
	l.rows = append(l.rows, row)
}

// Mark is where the trail of changed rows ends now. The mark 0 is before every
// change.
func (t *Table) Mark() uint64 { return t.trail.start + uint64(len(t.trail.rows)) }

// ChangedSince lists the rows whose node or pods may have changed since a mark,
// some of them more than once. It is not known any more where ok is false, or
// where more rows changed than there are. The list is good until the next change.
func (t *Table) ChangedSince(mark uint64) (rows []Row, ok bool) {
	if mark < t.trail.start || mark == 0 {
		return nil, false
	}
	rows = t.trail.rows[mark-t.trail.start:]
	return rows, len(rows) <= len(t.nodes)
}
