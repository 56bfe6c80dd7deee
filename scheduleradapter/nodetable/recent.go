package nodetable

// Recent is a cache. A new key reuses the memory of the least recently used value.
type Recent[K comparable, V any] struct {
	limit int
	at    map[K]*recentEntry[K, V]
	ring  recentEntry[K, V] // ring.next is the most recently used entry, ring.previous the least
}

type recentEntry[K comparable, V any] struct {
	next, previous *recentEntry[K, V]
	key            K
	value          V
}

// NewRecent makes a cache of at most limit values, at least one.
func NewRecent[K comparable, V any](limit int) *Recent[K, V] {
	c := &Recent[K, V]{limit: limit, at: map[K]*recentEntry[K, V]{}}
	c.ring.next, c.ring.previous = &c.ring, &c.ring
	return c
}

// Bound changes the limit. The values beyond it are dropped.
func (c *Recent[K, V]) Bound(limit int) {
	c.limit = max(1, limit)
	for len(c.at) > c.limit {
		c.drop()
	}
}

// At returns the value of a key. For a new key it is the dropped value, or zero. It
// is valid until the next call.
func (c *Recent[K, V]) At(key K) (value *V, known bool) {
	e, known := c.at[key]
	switch {
	case known:
		e.leave()
	case len(c.at) < c.limit:
		e = &recentEntry[K, V]{}
	default:
		e = c.drop()
	}
	if !known {
		e.key, c.at[key] = key, e
	}
	e.next, e.previous = c.ring.next, &c.ring
	e.next.previous, c.ring.next = e, e
	return &e.value, known
}

// drop removes the least recently used value.
func (c *Recent[K, V]) drop() *recentEntry[K, V] {
	e := c.ring.previous
	e.leave()
	delete(c.at, e.key)
	return e
}

func (e *recentEntry[K, V]) leave() { e.previous.next, e.next.previous = e.next, e.previous }

// Memory of the memos of a plugin: of each row, and of all.
const (
	memoBytesPerRow = 256
	mostMemoBytes   = 64 << 20
)

// KeptMemos is how many memos a plugin keeps that take so many bytes of each row.
func (t *Table) KeptMemos(bytesPerRow int) int {
	return min(memoBytesPerRow, mostMemoBytes/max(1, t.Rows())) / bytesPerRow
}
