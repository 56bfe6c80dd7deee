package nodetable

import (
	"cmp"
	"iter"
	"slices"

	"k8s.io/apimachinery/pkg/types"
)

// Place adds a pod to a row. A pod of the same uid is removed first.
func (t *Table) Place(p *Pod, row Row) {
	t.Displace(p.UID)
	t.put(p, row)
}

// PlaceOn adds a pod to a node by name, outside a try. If the node is unknown, the
// pod is added when the node arrives.
func (t *Table) PlaceOn(p *Pod, node Symbol) {
	t.tries.settled()
	if row := t.Row(node); row != NoRow {
		t.Place(p, row)
		return
	}
	t.Displace(p.UID)
	t.orphans.add(p, node)
}

// Displace removes a pod from its node and returns it; nil: it has none. Outside a
// try, a pod that waits for an unknown node is removed too.
func (t *Table) Displace(uid types.UID) *Pod {
	if s, found := t.where[uid]; found {
		return t.take(s)
	}
	if !t.tries.open() {
		t.orphans.remove(uid)
	}
	return nil
}

// Find returns a pod and its row; nil and NoRow: it is on no node.
func (t *Table) Find(uid types.UID) (*Pod, Row) {
	s, found := t.where[uid]
	if !found {
		return nil, NoRow
	}
	return t.pods[s.row][s.index], s.row
}

// PodsOn lists the pods of a row in no order. The list is valid until the next
// change and must not be changed.
func (t *Table) PodsOn(row Row) []*Pod { return t.pods[row] }

// AllPods yields all pods by row.
func (t *Table) AllPods() iter.Seq2[Row, *Pod] {
	return func(yield func(Row, *Pod) bool) {
		for row := range t.alive.All() {
			for _, p := range t.pods[row] {
				if !yield(row, p) {
					return
				}
			}
		}
	}
}

// PodCount is the number of placed pods.
func (t *Table) PodCount() int { return len(t.where) }

// adopt places the pods that wait for a node, by uid.
func (t *Table) adopt(node Symbol, row Row) {
	waiting := t.orphans.on[node]
	slices.SortFunc(waiting, func(a, b *Pod) int { return cmp.Compare(a.UID, b.UID) })
	delete(t.orphans.on, node)
	for _, p := range waiting {
		delete(t.orphans.of, p.UID)
		t.put(p, row)
	}
}

// orphans are pods whose node is unknown, by node name.
type orphans struct {
	of map[types.UID]Symbol
	on map[Symbol][]*Pod
}

func (o *orphans) add(p *Pod, node Symbol) {
	o.of[p.UID] = node
	o.on[node] = append(o.on[node], p)
}

func (o *orphans) remove(uid types.UID) {
	node, found := o.of[uid]
	if !found {
		return
	}
	delete(o.of, uid)
	if left := slices.DeleteFunc(o.on[node], func(p *Pod) bool { return p.UID == uid }); len(left) > 0 {
		o.on[node] = left
	} else {
		delete(o.on, node)
	}
}

// put appends a pod to a row.
func (t *Table) put(p *Pod, row Row) {
	t.where[p.UID] = spot{row, int32(len(t.pods[row]))}
	t.pods[row] = append(t.pods[row], p)
	t.tries.note(Move{p, row, int32(len(t.pods[row]) - 1), true})
	t.count(p, row, 1)
}

// take removes a pod from its row; the last pod takes its index.
func (t *Table) take(s spot) *Pod {
	pods := t.pods[s.row]
	p, last := pods[s.index], len(pods)-1
	pods[s.index] = pods[last]
	t.where[pods[s.index].UID] = s
	pods[last] = nil
	t.pods[s.row] = pods[:last]
	delete(t.where, p.UID)
	t.tries.note(Move{p, s.row, s.index, false})
	t.count(p, s.row, -1)
	return p
}

// count adds a pod n times to all columns and counters.
func (t *Table) count(p *Pod, row Row, n int64) {
	t.Touch(row)
	t.podGroups.count(p, n)
	r := &p.Requests
	t.Pods.request(row, n)
	t.CPU.request(row, n*r.CPU)
	t.Memory.request(row, n*r.Memory)
	t.Ephemeral.request(row, n*r.Ephemeral)
	t.nonZeroCPU.add(&t.NonZeroCPU[row], row, n*r.NonZeroCPU)
	t.nonZeroMemory.add(&t.NonZeroMemory[row], row, n*r.NonZeroMemory)
	for _, a := range r.Extended {
		t.use(a.Name, int(n), p.Namespace).request(row, n*a.Value)
	}
	for _, port := range p.Ports {
		t.usePort(port, row, int32(n))
	}
	t.useVolumes(p, row, int32(n))
	t.tally(p, row, int32(n))
	if len(t.counters.byKey) > 0 {
		namespace := t.namespaces[p.Namespace]
		t.counters.index.Candidates(p.Labels, func(c *Counter) {
			if c.matcher.Matches(p, namespace) {
				c.add(row, int32(n))
			}
		})
	}
	t.carry(p, row, int32(n))
}
