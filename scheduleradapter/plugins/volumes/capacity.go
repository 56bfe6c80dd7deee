package volumes

import (
	"cmp"
	"slices"

	storagev1 "k8s.io/api/storage/v1"

	"github.com/evictd/evictd/scheduleradapter/nodetable"
)

// capacity is the digest of a CSIStorageCapacity.
type capacity struct {
	key, class string
	// total capacity and largest volume in bytes; -1: unknown.
	total, most int64
	topology    *nodetable.NodeSelector // nil: all nodes
}

func newCapacity(object *storagev1.CSIStorageCapacity) *capacity {
	c := &capacity{key: capacityKey(object.Namespace, object.Name), class: object.StorageClassName, topology: fromLabelSelector(object.NodeTopology)}
	c.total, c.most = amounts(object)
	return c
}

func capacityKey(namespace, name string) string { return namespace + "/" + name }

func (c *capacity) has(node *nodetable.Node) bool {
	return c.topology == nil || c.topology.Matches(node)
}

func (c *capacity) topologyKey() nodetable.Symbol {
	if c.topology == nil {
		return nodetable.Symbol{}
	}
	return c.topology.Key
}

// capacities are those of a storage class, by row. They follow the labels of nodes.
type capacities struct {
	count int
	index nodetable.Index[*capacity]
	rows  [][]*capacity     // by key
	nodes []*nodetable.Node // to which rows belong; nil: none
	mark  uint64
	// matched counts the topologies that were matched with a node, which tests bound.
	matched int
	some    nodetable.Bits // buffer
}

// SetCapacity adds or updates a CSIStorageCapacity. New amounts of the same topology
// change nothing else.
func (s *Storage) SetCapacity(object *storagev1.CSIStorageCapacity) {
	c := newCapacity(object)
	if was := s.capacityOf[c.key]; was != nil && was.class == c.class && was.topologyKey() == c.topologyKey() {
		was.total, was.most = c.total, c.most
		return
	}
	s.RemoveCapacity(object.Namespace, object.Name)
	s.capacityOf[c.key] = c
	of := s.capacities[c.class]
	if of == nil {
		of = &capacities{}
		s.capacities[c.class] = of
	}
	of.follow(s.table)
	of.count++
	of.index.Add(c.topology, c)
	of.some = s.table.Nodes(c.topology, of.some)
	for row := range of.some.All() {
		of.enter(row, c)
	}
}

func (s *Storage) RemoveCapacity(namespace, name string) {
	c := s.capacityOf[capacityKey(namespace, name)]
	if c == nil {
		return
	}
	delete(s.capacityOf, c.key)
	of := s.capacities[c.class]
	if of.count--; of.count == 0 {
		delete(s.capacities, c.class)
		return
	}
	of.follow(s.table)
	of.index.Remove(c.topology, c)
	of.some = s.table.Nodes(c.topology, of.some)
	for row := range of.some.All() {
		of.rows[row] = slices.DeleteFunc(of.rows[row], func(other *capacity) bool { return other == c })
	}
}

// follow applies the changes of the table.
func (of *capacities) follow(t *nodetable.Table) {
	of.rows = append(of.rows, make([][]*capacity, t.Rows()-len(of.rows))...)
	of.nodes = append(of.nodes, make([]*nodetable.Node, t.Rows()-len(of.nodes))...)
	for _, row := range t.ChangedRows(of.mark) {
		of.update(row, t.Node(row))
	}
	of.mark = t.Mark()
}

func (of *capacities) update(row nodetable.Row, node *nodetable.Node) {
	was := of.nodes[row]
	of.nodes[row] = node
	if was == node || was != nil && node != nil && was.Name == node.Name && slices.Equal(was.Labels, node.Labels) {
		return
	}
	if of.rows[row] = of.rows[row][:0]; node == nil {
		return
	}
	of.index.Candidates(node.Labels, func(c *capacity) {
		if of.matched++; c.has(node) {
			of.enter(row, c)
		}
	})
}

func (of *capacities) enter(row nodetable.Row, c *capacity) {
	at, _ := slices.BinarySearchFunc(of.rows[row], c, func(a, b *capacity) int { return cmp.Compare(a.key, b.key) })
	of.rows[row] = slices.Insert(of.rows[row], at, c)
}

// first is the first capacity by key on a row that has room for a volume; nil: none.
func (of *capacities) first(row nodetable.Row, size int64) *capacity {
	for _, c := range of.rows[row] {
		if c.most >= size {
			return c
		}
	}
	return nil
}
