package nodetable

// trail is the log of changed rows. Its oldest part is dropped.
type trail struct {
	rows  []Row
	start uint64 // mark of rows[0]
}

// keptTrail is the least length of the log, and trailShare its length as a part of the
// rows: to evaluate more rows one by one takes as long as to evaluate all.
const keptTrail, trailShare = 4096, 16

func (l *trail) add(row Row, rows int) {
	if kept := max(keptTrail, rows/trailShare); len(l.rows) >= 2*kept {
		dropped := len(l.rows) - kept
		l.rows = append(l.rows[:0], l.rows[dropped:]...)
		l.start += uint64(dropped)
	}
	l.rows = append(l.rows, row)
}

// Touch adds a row to those that changed: what a plugin knows of its node changed.
func (t *Table) Touch(row Row) { t.trail.add(row, len(t.nodes)) }

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
