package nodetable

// trail is the log of changed rows. Its oldest part is dropped.
type trail struct {
	rows  []Row
	start uint64 // mark of rows[0]
}

// keptTrail bounds the log.
const keptTrail = 4096

func (l *trail) add(row Row) {
	if len(l.rows) == 2*keptTrail {
		l.rows = append(l.rows[:0], l.rows[keptTrail:]...)
		l.start += keptTrail
	}
	l.rows = append(l.rows, row)
}

// Mark is the end of the log. The mark 0 is before all changes.
func (t *Table) Mark() uint64 { return t.trail.start + uint64(len(t.trail.rows)) }

// ChangedSince lists the rows whose node or pods may have changed since a mark;
// rows may repeat. ok is false if the log does not reach back, or has more entries
// than there are rows. The list is valid until the next change.
func (t *Table) ChangedSince(mark uint64) (rows []Row, ok bool) {
	if mark < t.trail.start || mark == 0 {
		return nil, false
	}
	rows = t.trail.rows[mark-t.trail.start:]
	return rows, len(rows) <= len(t.nodes)
}
