package store

import "k8s.io/apimachinery/pkg/watch"

// depth is how many changes a table keeps for watches. A watch that is further behind
// lists again.
const depth = 4096

// Change is one change of an object. New is its new state; of a Deleted one the last
// state, with the resource version of its removal.
type Change struct {
	Type     watch.EventType
	Old, New Object
	Revision uint64
}

// history is a ring of the latest changes. Change number n is at n modulo depth; first
// is the oldest one kept.
type history struct {
	ring        []*Change
	first, next uint64
	forgotten   uint64        // revision of the latest change that is no longer there
	more        chan struct{} // closed by the next change
}

func newHistory() history { return history{more: make(chan struct{})} }

func (h *history) add(change *Change) {
	if len(h.ring) < depth {
		h.ring = append(h.ring, change)
	} else {
		h.forgotten = h.ring[h.first%depth].Revision
		h.ring[h.next%depth] = change
		h.first++
	}
	h.next++
	close(h.more)
	h.more = make(chan struct{})
}

// after is the number of the first change later than a revision.
func (h *history) after(revision uint64) uint64 {
	n := h.next
	for n > h.first && h.ring[(n-1)%depth].Revision > revision {
		n--
	}
	return n
}

// Cursor is a position in a table's changes. One goroutine uses it.
type Cursor struct {
	table *Table
	next  uint64
}

// Since returns the cursor after a revision. The error is ErrExpired where later
// changes are no longer kept, or the revision is in the future.
func (t *Table) Since(revision uint64) (*Cursor, error) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	h := &t.history
	if revision < max(t.store.revision.first, h.forgotten) || revision > t.store.revision.current() {
		return nil, ErrExpired
	}
	return &Cursor{t, h.after(revision)}, nil
}

// From returns all objects of a namespace in no order, the cursor after them, and their
// revision.
func (t *Table) From(namespace string) ([]Object, *Cursor, uint64) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	objects, revision := t.within(namespace)
	return objects, &Cursor{t, t.history.next}, revision
}

// Next returns the changes after the cursor and moves it, the revision of the last one,
// and a channel that is closed by the next change. The error is ErrExpired where the
// cursor is too far behind.
func (c *Cursor) Next() (changes []*Change, revision uint64, more <-chan struct{}, err error) {
	t := c.table
	t.mu.RLock()
	defer t.mu.RUnlock()
	h := &t.history
	if c.next < h.first {
		return nil, 0, nil, ErrExpired
	}
	for ; c.next < h.next; c.next++ {
		changes = append(changes, h.ring[c.next%depth])
	}
	return changes, t.revision, h.more, nil
}

// More is a channel that the table's next change closes.
func (t *Table) More() <-chan struct{} {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.history.more
}
