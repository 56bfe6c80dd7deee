package nodetable

// trail is the log of changed rows. Its oldest part is dropped.
type trail struct {
	rows   []Row
	start  uint64   // mark of rows[0]
	last   []uint64 // by row: the mark after its last change; 0: it has not changed
	listed []Row    // by ChangedRows
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
	l.last[row] = l.end()
}

func (l *trail) end() uint64 { return l.start + uint64(len(l.rows)) }

// Touch adds a row to those that changed: what a plugin knows of its node changed.
func (t *Table) Touch(row Row) { t.trail.add(row, len(t.nodes)) }

// Mark is the end of the log. The mark 0 is before all changes.
func (t *Table) Mark() uint64 { return t.trail.end() }

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

// ChangedRows is ChangedSince for readers that evaluate row by row. If the log does not
// reach back, it compares the last change of every row and lists each changed row once,
// those without a node included.
func (t *Table) ChangedRows(mark uint64) []Row {
	if rows, ok := t.ChangedSince(mark); ok {
		return rows
	}
	l := &t.trail
	l.listed = l.listed[:0]
	for row, last := range l.last {
		if last > mark {
			l.listed = append(l.listed, Row(row))
		}
	}
	return l.listed
}
