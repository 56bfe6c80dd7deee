package nodetable

// Recent is a cache of fixed size. A new key reuses the memory of the least
// recently used value.
type Recent[K comparable, V any] struct {
	limit   int
	clock   uint64
	at      map[K]int
	entries []recentEntry[K, V]
}

type recentEntry[K comparable, V any] struct {
	key   K
	asked uint64
	value V
}

// NewRecent makes a cache of a size.
func NewRecent[K comparable, V any](limit int) *Recent[K, V] {
	return &Recent[K, V]{limit: limit, at: make(map[K]int, limit)}
}

// At returns the value of a key. For a new key it is the evicted value, or zero. It
// is valid until the next call.
func (c *Recent[K, V]) At(key K) (value *V, known bool) {
	c.clock++
	i, known := c.at[key]
	if !known {
		i = c.place()
		c.entries[i].key, c.at[key] = key, i
	}
	c.entries[i].asked = c.clock
	return &c.entries[i].value, known
}

// place is the index of a new entry, or of the least recently used one.
func (c *Recent[K, V]) place() int {
	if len(c.entries) < c.limit {
		c.entries = append(c.entries, recentEntry[K, V]{})
		return len(c.entries) - 1
	}
	oldest := 0
	for i := range c.entries {
		if c.entries[i].asked < c.entries[oldest].asked {
			oldest = i
		}
	}
	delete(c.at, c.entries[oldest].key)
	return oldest
}
