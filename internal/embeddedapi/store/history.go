package store

import "k8s.io/apimachinery/pkg/watch"

// depth is how many changes a table keeps for watches. A watch that is further behind
// lists again.
const depth = 4096

// Change is one step of an object's life. New is what it became; of a Deleted
// one, what it was, with the resource version of its removal.
type Change struct {
	Type     watch.EventType
	Old, New Object
	Revision uint64
}

// history is a ring of the latest changes. Change number n is at n modulo depth;
// first is the oldest that is still there.
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

// Cursor is a place in a table's changes. One goroutine uses it.
type Cursor struct {
	table *Table
	next  uint64
}

// Since returns the cursor behind a revision. The error is ErrExpired where
// changes after it are forgotten, or lie in the future: they were another
// store's.
func (t *Table) Since(revision uint64) (*Cursor, error) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	h := &t.history
	if revision < max(t.store.revision.first, h.forgotten) || revision > t.store.revision.current() {
		return nil, ErrExpired
	}
	return &Cursor{t, h.after(revision)}, nil
}

// From returns all objects of a namespace in no order, the cursor behind them,
// and the revision up to which they are complete.
func (t *Table) From(namespace string) ([]Object, *Cursor, uint64) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	objects, revision := t.within(namespace)
	return objects, &Cursor{t, t.history.next}, revision
}

// Next returns the changes that the cursor has not passed and passes them, up to
// which revision they are complete, and a channel that is closed when there are
// more. The error is ErrExpired where it fell back too far.
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
