package nodetable

// Recent is a cache of two generations: what was not asked for while `limit`
// newer values came in is forgotten. It holds at most twice the limit.
type Recent[K comparable, V any] struct {
	limit      int
	young, old map[K]V
}

// NewRecent makes a cache.
func NewRecent[K comparable, V any](limit int) *Recent[K, V] {
	return &Recent[K, V]{limit: limit, young: map[K]V{}}
}

// Get finds a value and keeps it young.
func (c *Recent[K, V]) Get(key K) (value V, found bool) {
	if value, found = c.young[key]; found {
		return value, true
	}
	if value, found = c.old[key]; found {
		c.Put(key, value)
	}
	return value, found
}

// Put keeps a value. What was pushed out by it is in the old generation until
// the next time.
func (c *Recent[K, V]) Put(key K, value V) {
	if len(c.young) >= c.limit {
		c.old, c.young = c.young, make(map[K]V, c.limit)
	}
	c.young[key] = value
	delete(c.old, key)
}
