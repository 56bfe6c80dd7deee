package nodetable

import "slices"

// NoDomain is the domain of a row without the topology's label.
const NoDomain int32 = -1

// Topology divides the nodes into domains by a label. It must not be changed.
type Topology struct {
	Key Symbol
	// Serial differs from those of all other topologies of the table.
	Serial int64
	// Of is the domain by row.
	Of []int32
	// Nodes is the number of nodes and Values the label value by domain. Empty
	// domains are reused.
	Nodes  []int32
	Values []Symbol
	// Labelled are the nodes with the label. It must not be changed.
	Labelled Bits
	// Live is the number of domains with nodes.
	Live int
	// Version changes with Of.
	Version uint64

	ids  map[Symbol]int32
	free []int32
	used bool
	// labelled is the number of rows in Labelled.
	labelled int
	// own: a node has had the label. Otherwise Of and Labelled are those that all such
	// topologies of the table share.
	own bool
}

// Topology is the division by a label key; it is tracked from the first call on. Call
// it in each cycle: unused topologies are dropped.
func (t *Table) Topology(key Symbol) *Topology {
	if found := t.topologies[key]; found != nil {
		found.used = true
		return found
	}
	t.sweepTopologies()
	t.topologySerial++
	o := &Topology{Key: key, Serial: t.topologySerial, ids: map[Symbol]int32{}, used: true}
	o.grow(t)
	t.topologies[key] = o
	for row := range t.alive.All() {
		t.move(o, row, t.nodes[row].Labels)
	}
	return o
}

// sweepTopologies drops the topologies that no placed pod has in a term and that were
// not used since the last sweep, when their number has doubled.
func (t *Table) sweepTopologies() {
	if len(t.topologies) < max(keptPerCycle, t.topologyLimit) {
		return
	}
	for kind := range t.terms {
		for _, c := range t.terms[kind].byKey {
			t.topologies[c.Topology].used = true
		}
	}
	for key, o := range t.topologies {
		if !o.used {
			delete(t.topologies, key)
		}
		o.used = false
	}
	t.tallies(func(y *Tally) {
		y.domains = slices.DeleteFunc(y.domains, func(d domainCounts) bool { return t.topologies[d.topology.Key] != d.topology })
	})
	t.topologyLimit = nextSweep(len(t.topologies))
}

// move moves a row to the domain of its labels.
func (t *Table) move(o *Topology, row Row, labels Labels) {
	from, to := o.Of[row], NoDomain
	value, found := labels.Get(o.Key)
	if found && from != NoDomain && o.Values[from] == value {
		return
	}
	if found {
		to = o.enter(value)
	}
	if from == to {
		return
	}
	t.tallies(func(y *Tally) { y.move(o, row, from, to) })
	if !o.own {
		o.own, o.Of, o.Labelled = true, slices.Clone(o.Of), slices.Clone(o.Labelled)
	}
	o.Of[row] = to
	if to == NoDomain {
		o.Labelled.Clear(row)
		o.labelled--
	} else {
		o.Labelled.Set(row)
	}
	if from == NoDomain {
		o.labelled++
	}
	o.Version++
	if from != NoDomain {
		o.leave(from)
	}
}

// tallies calls a function for each tally.
func (t *Table) tallies(visit func(*Tally)) {
	for _, c := range t.counters.byKey {
		visit(&c.Tally)
	}
	for kind := range t.terms {
		for _, c := range t.terms[kind].byKey {
			visit(&c.Tally)
		}
	}
}

// SingleNodes reports whether each domain has one node, as those of the host name.
func (o *Topology) SingleNodes() bool { return o.Live > 0 && o.Live == o.labelled }

func (o *Topology) enter(value Symbol) int32 {
	id, found := o.ids[value]
	if !found {
		if n := len(o.free); n > 0 {
			id, o.free = o.free[n-1], o.free[:n-1]
		} else {
			id = int32(len(o.Nodes))
			o.Nodes, o.Values = append(o.Nodes, 0), append(o.Values, Symbol{})
		}
		o.ids[value], o.Values[id] = id, value
		o.Live++
	}
	o.Nodes[id]++
	return id
}

func (o *Topology) leave(id int32) {
	if o.Nodes[id]--; o.Nodes[id] == 0 {
		delete(o.ids, o.Values[id])
		o.free = append(o.free, id)
		o.Live--
	}
}

func (o *Topology) grow(t *Table) {
	if !o.own {
		o.Of, o.Labelled = t.nowhere, t.unlabelled
		return
	}
	o.Of = append(o.Of, t.nowhere[len(o.Of):]...)
	o.Labelled = longer(o.Labelled, len(t.unlabelled))
}
