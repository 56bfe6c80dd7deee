package store

import (
	"sync"

	"k8s.io/apimachinery/pkg/watch"
)

// depth is how many changes a table keeps for watches, and kept how many bytes their objects have at most, as they are encoded. A
// watch that is further behind lists again.
const (
	depth = 4096
	kept  = 32 << 20
)

// fresh is how many of the latest changes keep what they were encoded to, and freshBytes how many bytes their objects have at most.
// Watches that are not behind have that in common.
const (
	fresh      = 64
	freshBytes = 4 << 20
)

// Change is one change of an object. New is its new state; of a Deleted one the last
// state, with the resource version of its removal.
type Change struct {
	Type     watch.EventType
	Old, New Object
	Revision uint64

	size int // bytes of New, as it is encoded

	mu      sync.Mutex
	fresh   bool
	object  []byte // New as in the journal, nil where it is not
	encoded []encoding
}

type encoding struct {
	form any
	text []byte
}

// Encoded is the change in a form, which is comparable. While the change is fresh encode is called once for
// a form. It is passed New as Config.Encode has encoded it, nil where that is not kept.
func (c *Change) Encoded(form any, encode func(object []byte) ([]byte, error)) ([]byte, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, e := range c.encoded {
		if e.form == form {
			return e.text, nil
		}
	}
	text, err := encode(c.object)
	if err == nil && c.fresh {
		c.encoded = append(c.encoded, encoding{form, text})
	}
	return text, err
}

func (c *Change) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fresh, c.object, c.encoded = false, nil, nil
}

// history is a ring of the latest changes. Change number n is at n modulo depth; first
// is the oldest one kept, and warm the oldest one that is fresh.
type history struct {
	ring              []*Change
	first, warm, next uint64
	bytes, warmBytes  int           // of the objects of the changes from first on, and from warm on
	forgotten         uint64        // revision of the latest change that is no longer there
	more              chan struct{} // closed by the next change
	attributes        map[string]*attribute
}

func newHistory() history {
	return history{more: make(chan struct{}), attributes: map[string]*attribute{}}
}

func (h *history) add(change *Change) {
	if h.next-h.first == depth {
		h.drop()
	}
	if len(h.ring) < depth {
		h.ring = append(h.ring, change)
	} else {
		h.ring[h.next%depth] = change
	}
	change.fresh = true
	h.next++
	h.bytes, h.warmBytes = h.bytes+change.size, h.warmBytes+change.size
	for h.next-h.warm > fresh || h.warmBytes > freshBytes && h.next-h.warm > 1 {
		h.cool()
	}
	for h.bytes > kept && h.next-h.first > 1 {
		h.drop()
	}
	h.offer(change)
	close(h.more)
	h.more = make(chan struct{})
}

// cool forgets what the oldest fresh change was encoded to.
func (h *history) cool() {
	change := h.ring[h.warm%depth]
	change.forget()
	h.warmBytes -= change.size
	h.warm++
}

// drop forgets the oldest change.
func (h *history) drop() {
	if h.warm == h.first {
		h.cool()
	}
	change := h.ring[h.first%depth]
	h.ring[h.first%depth] = nil
	h.forgotten = change.Revision
	h.bytes -= change.size
	h.first++
}

// after is the number of the first change later than a revision.
func (h *history) after(revision uint64) uint64 {
	n := h.next
	for n > h.first && h.ring[(n-1)%depth].Revision > revision {
		n--
	}
	return n
}

// Interest is what the changes of a watch have in common: the value of an attribute, in
// the object before or after the change. The zero value is every change.
type Interest struct {
	Attribute string
	Value     string
	Of        func(Object) string // the attribute's value; the same function for the same Attribute
}

// touches says whether a change has the value, before or after.
func (i Interest) touches(c *Change) bool {
	return i.Of == nil || i.Of(c.New) == i.Value || c.Old != nil && i.Of(c.Old) == i.Value
}

// attribute are the cursors with an interest in an attribute, by its value.
type attribute struct {
	of      func(Object) string
	cursors map[string]map[*Cursor]struct{}
}

// offer passes a change on to the cursors with an interest in it, and to no others.
func (h *history) offer(change *Change) {
	for _, a := range h.attributes {
		value := ""
		if a.of != nil {
			value = a.of(change.New)
		}
		for c := range a.cursors[value] {
			c.offer(change)
		}
		if a.of == nil || change.Old == nil {
			continue
		}
		if before := a.of(change.Old); before != value {
			for c := range a.cursors[before] {
				c.offer(change)
			}
		}
	}
}

// Cursor is a position in a table's changes. One goroutine uses it, and closes it.
type Cursor struct {
	table    *Table
	interest Interest
	// Under the table's lock:
	pending []*Change
	bytes   int           // of the objects of pending
	expired bool          // more changes than a table keeps were not taken
	more    chan struct{} // has an element while there are changes to be taken
}

func (c *Cursor) offer(change *Change) {
	if len(c.pending) == depth || c.bytes > kept {
		c.pending, c.expired = nil, true
	}
	if !c.expired {
		c.pending, c.bytes = append(c.pending, change), c.bytes+change.size
	}
	select {
	case c.more <- struct{}{}:
	default:
	}
}

// follow makes a cursor after all present changes. It is called under the lock.
func (t *Table) follow(interest Interest, pending []*Change) *Cursor {
	c := &Cursor{table: t, interest: interest, pending: pending, more: make(chan struct{}, 1)}
	h := &t.history
	a := h.attributes[interest.Attribute]
	if a == nil {
		a = &attribute{interest.Of, map[string]map[*Cursor]struct{}{}}
		h.attributes[interest.Attribute] = a
	}
	if a.cursors[interest.Value] == nil {
		a.cursors[interest.Value] = map[*Cursor]struct{}{}
	}
	a.cursors[interest.Value][c] = struct{}{}
	return c
}

// Close ends the cursor.
func (c *Cursor) Close() {
	t := c.table
	t.mu.Lock()
	defer t.mu.Unlock()
	a := t.history.attributes[c.interest.Attribute]
	delete(a.cursors[c.interest.Value], c)
	if len(a.cursors[c.interest.Value]) == 0 {
		delete(a.cursors, c.interest.Value)
	}
	if len(a.cursors) == 0 {
		delete(t.history.attributes, c.interest.Attribute)
	}
}

// Since returns the cursor after a revision. The error is ErrExpired where later
// changes are no longer kept, or the revision is in the future.
func (t *Table) Since(revision uint64, interest Interest) (*Cursor, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	h := &t.history
	if revision < max(t.store.revision.first, h.forgotten) || revision > t.store.revision.current() {
		return nil, ErrExpired
	}
	var pending []*Change
	for n := h.after(revision); n < h.next; n++ {
		if change := h.ring[n%depth]; interest.touches(change) {
			pending = append(pending, change)
		}
	}
	return t.follow(interest, pending), nil
}

// From returns all objects of a namespace in no order, the cursor after them, and their
// revision.
func (t *Table) From(namespace string, interest Interest) ([]Object, *Cursor, uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	objects, revision := t.within(namespace)
	return objects, t.follow(interest, nil), revision
}

// Next returns the changes of interest after the cursor and moves it, and the revision up to
// which these are all. The error is ErrExpired where the cursor is too far behind.
func (c *Cursor) Next() (changes []*Change, revision uint64, err error) {
	t := c.table
	t.mu.Lock()
	defer t.mu.Unlock()
	if c.expired {
		return nil, 0, ErrExpired
	}
	changes, c.pending, c.bytes = c.pending, nil, 0
	return changes, t.revision, nil
}

// More receives after a change of interest, and may receive after Next has returned that change.
func (c *Cursor) More() <-chan struct{} { return c.more }

// More is a channel that the table's next change closes.
func (t *Table) More() <-chan struct{} {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.history.more
}
