package nodetable

import (
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Table is the cluster. Its exported columns and versions must not be changed; they
// are indexed by row and have the length Rows.
type Table struct {
	CPU, Memory, Ephemeral, Pods Column
	// NonZeroCPU and NonZeroMemory are the requested sums with defaults for
	// containers without requests.
	NonZeroCPU, NonZeroMemory []int64
	Versions                  Versions

	nonZeroCPU, nonZeroMemory carries

	extended map[Symbol]*SparseColumn
	shares   map[Symbol]int // by namespace, see Refuses

	nodes          []*Node // by row; nil: no node
	rowOf          map[Symbol]Row
	free           []Row
	alive          Bits
	unschedulable  Bits
	byLabel        map[Symbol]map[Symbol][]Row
	byTaint        map[Taint][]Row
	images         map[Symbol]*ImageUse
	zones          []zone
	order          []Row // empty: invalid
	topologies     map[Symbol]*Topology
	topologyLimit  int                        // see sweepTopologies
	topologySerial int64                      // of the last topology
	preferring     int                        // distinct taints of the effect PreferNoSchedule
	nowhere        []int32                    // NoDomain for each row
	unlabelled     Bits                       // no row
	selected       *Recent[Symbol, selection] // by node selector
	tainted        *Recent[Symbol, selection] // by tolerations

	pods       [][]*Pod // by row
	where      map[types.UID]spot
	orphans    orphans
	podGroups  podGroups
	namespaces map[Symbol]Labels
	ports      map[portNumber][]portUse
	users      map[Symbol]*Tally // by claim or disk
	sets       labelSets
	counters   counters
	terms      [termKinds]termIndex
	groups     groups
	budgets    map[Symbol]*budgets // by namespace
	headroom   map[Symbol]*Headroom
	evictions  map[Symbol][]Eviction // by node

	trail trail
	tries tries

	// matched counts the selectors of budgets that were matched, which tests bound.
	matched int
}

// Versions count changes of nodes, for caches. Pods do not change them.
type Versions struct {
	// Nodes changes when a node is added or removed, the others also when that part
	// of a node changes.
	Nodes, Labels, Taints, Images uint64
	// Namespaces changes with the labels of a namespace.
	Namespaces uint64
	// Pressure changes with conditions and headroom.
	Pressure uint64
}

// spot is the place of a pod: its row and index.
type spot struct {
	row   Row
	index int32
}

// keptSelections bounds the cached node selectors, and the cached tolerations.
const keptSelections = 512

func New() *Table {
	t := &Table{
		extended: map[Symbol]*SparseColumn{}, shares: map[Symbol]int{}, rowOf: map[Symbol]Row{}, byLabel: map[Symbol]map[Symbol][]Row{}, byTaint: map[Taint][]Row{},
		images: map[Symbol]*ImageUse{}, topologies: map[Symbol]*Topology{}, selected: NewRecent[Symbol, selection](keptSelections), tainted: NewRecent[Symbol, selection](keptSelections),
		where: map[types.UID]spot{}, orphans: orphans{map[types.UID]Symbol{}, map[Symbol][]*Pod{}}, podGroups: podGroups{}, namespaces: map[Symbol]Labels{}, ports: map[portNumber][]portUse{}, users: map[Symbol]*Tally{},
		budgets: map[Symbol]*budgets{}, headroom: map[Symbol]*Headroom{}, evictions: map[Symbol][]Eviction{},
		sets:     labelSets{byKey: map[Symbol]*labelSet{}, in: map[Symbol]*namespaceSets{}},
		counters: counters{byKey: map[Symbol]*Counter{}},
		groups:   groups{in: map[Symbol]*grouping{}, siblings: NewRecent[family, siblings](keptFamilies)},
	}
	for kind := range t.terms {
		t.terms[kind].byKey = map[Symbol]*CarriedTerm{}
	}
	return t
}

// Rows is the length of the columns; some rows have no node.
func (t *Table) Rows() int { return len(t.nodes) }

// Len is the number of nodes.
func (t *Table) Len() int { return len(t.rowOf) }

// Alive is the set of rows with a node. It must not be changed.
func (t *Table) Alive() Bits { return t.alive }

// Row finds a node by name; NoRow: there is none.
func (t *Table) Row(name Symbol) Row {
	if row, found := t.rowOf[name]; found {
		return row
	}
	return NoRow
}

// Node is the node of a row.
func (t *Table) Node(row Row) *Node { return t.nodes[row] }

// Unschedulable is the set of cordoned nodes. It must not be changed.
func (t *Table) Unschedulable() Bits { return t.unschedulable }

// Extended is the column of an extended resource; nil: no node has it and no placed
// pod has requested it.
func (t *Table) Extended(name Symbol) *SparseColumn { return t.extended[name] }

// Taints yields the distinct taints with their nodes, in no order.
func (t *Table) Taints(yield func(Taint, []Row) bool) {
	for taint, rows := range t.byTaint {
		if !yield(taint, rows) {
			return
		}
	}
}

// ImageUse has the nodes of an image. Its size is that of the first node that
// reported it, as in kube-scheduler.
type ImageUse struct {
	Size int64
	Rows []Row
}

// Images yields the images by name with tag, in no order.
func (t *Table) Images(yield func(Symbol, *ImageUse) bool) {
	for name, use := range t.images {
		if !yield(name, use) {
			return
		}
	}
}

// Image finds an image by name with tag; nil: no node has it.
func (t *Table) Image(name Symbol) *ImageUse { return t.images[name] }

// SetNode adds or updates a node. Pods that wait for it are placed.
func (t *Table) SetNode(n *Node) Change {
	t.tries.settled()
	row, found := t.rowOf[n.Name]
	if found {
		changed := Changes(t.nodes[row], n)
		t.exchange(row, t.nodes[row], n, changed)
		return changed
	}
	row = t.newRow()
	t.rowOf[n.Name] = row
	t.alive.Set(row)
	t.exchange(row, &Node{}, n, everything)
	t.adopt(n.Name, row)
	return ChangedPresence
}

// RemoveNode removes a node; false: it is unknown. Its pods wait until it is added
// again.
func (t *Table) RemoveNode(name Symbol) bool {
	t.tries.settled()
	row, found := t.rowOf[name]
	if !found {
		return false
	}
	for len(t.pods[row]) > 0 {
		p := t.pods[row][len(t.pods[row])-1]
		t.take(spot{row, int32(len(t.pods[row]) - 1)})
		t.orphans.add(p, name)
	}
	t.exchange(row, t.nodes[row], &Node{}, everything)
	t.nodes[row] = nil
	t.alive.Clear(row)
	delete(t.rowOf, name)
	t.free = append(t.free, row)
	return true
}

const everything = ^Change(0)

// exchange replaces a node in the columns. An empty digest is no node.
func (t *Table) exchange(row Row, was, is *Node, changed Change) {
	t.nodes[row] = is
	t.Touch(row)
	for _, part := range []struct {
		of      Change
		version *uint64
		update  func(Row, *Node, *Node)
	}{
		{ChangedPresence, &t.Versions.Nodes, nil},
		{ChangedAllocatable, nil, t.setAllocatable},
		{ChangedLabels, &t.Versions.Labels, t.setLabels},
		{ChangedTaints, &t.Versions.Taints, t.setTaints},
		{ChangedConditions, &t.Versions.Pressure, nil},
		{ChangedImages, &t.Versions.Images, t.setImages},
		{ChangedZone, nil, t.setZone},
	} {
		if changed&part.of == 0 {
			continue
		}
		if part.version != nil {
			*part.version++
		}
		if part.update != nil {
			part.update(row, was, is)
		}
	}
}

func (t *Table) setAllocatable(row Row, was, is *Node) {
	t.CPU.allow(row, is.CPU)
	t.Memory.allow(row, is.Memory)
	t.Ephemeral.allow(row, is.Ephemeral)
	t.Pods.allow(row, is.Pods)
	for _, a := range is.Extended {
		t.use(a.Name, 1, Symbol{})
	}
	for _, a := range was.Extended {
		t.extended[a.Name].allow(row, 0)
		t.use(a.Name, -1, Symbol{})
	}
	for _, a := range is.Extended {
		t.extended[a.Name].allow(row, a.Value)
	}
}

// use finds or makes the column of an extended resource and counts a node or pod that
// uses it, n times. A column without users is dropped; inside a try it is kept for Undo.
// owner is the namespace of the pod; zero: a node uses it.
func (t *Table) use(name Symbol, n int, owner Symbol) *SparseColumn {
	c := t.extended[name]
	if c == nil {
		c = &SparseColumn{owner: owner}
		t.extended[name] = c
		t.share(owner, 1)
	}
	if c.users += n; c.users == 0 {
		if t.tries.open() {
			t.tries.unused = append(t.tries.unused, name)
		} else {
			t.unuse(name)
		}
	}
	return c
}

func (t *Table) unuse(name Symbol) {
	t.share(t.extended[name].owner, -1)
	delete(t.extended, name)
}

func (t *Table) setLabels(row Row, was, is *Node) {
	for _, l := range was.Labels {
		values := t.byLabel[l.Key]
		if left := without(values[l.Value], row); len(left) > 0 {
			values[l.Value] = left
		} else if delete(values, l.Value); len(values) == 0 {
			delete(t.byLabel, l.Key)
		}
	}
	for _, l := range is.Labels {
		values := t.byLabel[l.Key]
		if values == nil {
			values = map[Symbol][]Row{}
			t.byLabel[l.Key] = values
		}
		values[l.Value] = with(values[l.Value], row)
	}
	for _, topology := range t.topologies {
		t.move(topology, row, is.Labels)
	}
}

func (t *Table) setTaints(row Row, was, is *Node) {
	for _, taint := range was.Taints {
		rows := t.byTaint[taint]
		if len(rows) == 0 {
			continue // a node has the taint twice
		}
		if t.byTaint[taint] = without(rows, row); len(t.byTaint[taint]) == 0 {
			delete(t.byTaint, taint)
			t.prefer(taint, -1)
		}
	}
	for _, taint := range is.Taints {
		if len(t.byTaint[taint]) == 0 {
			t.prefer(taint, 1)
		}
		t.byTaint[taint] = with(t.byTaint[taint], row)
	}
	t.unschedulable.Clear(row)
	if is.Unschedulable {
		t.unschedulable.Set(row)
	}
}

func (t *Table) prefer(taint Taint, n int) {
	if taint.Effect == v1.TaintEffectPreferNoSchedule {
		t.preferring += n
	}
}

// PrefersNoSchedule reports whether any node has a taint of the effect PreferNoSchedule.
func (t *Table) PrefersNoSchedule() bool { return t.preferring > 0 }

func (t *Table) setImages(row Row, was, is *Node) {
	for _, image := range was.Images {
		use := t.images[image.Name]
		if use.Rows = without(use.Rows, row); len(use.Rows) == 0 {
			delete(t.images, image.Name)
		}
	}
	for _, image := range is.Images {
		use := t.images[image.Name]
		if use == nil {
			use = &ImageUse{Size: image.Size}
			t.images[image.Name] = use
		}
		use.Rows = with(use.Rows, row)
	}
}

// with adds a row to a sorted list.
func with(rows []Row, row Row) []Row {
	i, found := slices.BinarySearch(rows, row)
	if found {
		return rows
	}
	return slices.Insert(rows, i, row)
}

// without removes a row from a sorted list.
func without(rows []Row, row Row) []Row {
	if i, found := slices.BinarySearch(rows, row); found {
		return slices.Delete(rows, i, i+1)
	}
	return rows
}

// newRow takes a free row or extends the columns.
func (t *Table) newRow() Row {
	if len(t.free) == 0 {
		t.grow()
	}
	row := t.free[len(t.free)-1]
	t.free = t.free[:len(t.free)-1]
	return row
}

// grow doubles the columns, at least to 64 rows.
func (t *Table) grow() {
	was := t.Rows()
	rows := max(64, 2*was)
	for _, c := range []*Column{&t.CPU, &t.Memory, &t.Ephemeral, &t.Pods} {
		c.grow(rows)
	}
	t.NonZeroCPU, t.NonZeroMemory = longer(t.NonZeroCPU, rows), longer(t.NonZeroMemory, rows)
	t.nodes, t.pods = longer(t.nodes, rows), longer(t.pods, rows)
	t.alive, t.unschedulable = longer(t.alive, words(rows)), longer(t.unschedulable, words(rows))
	t.nowhere, t.trail.last = longer(t.nowhere, rows), longer(t.trail.last, rows)
	for row := was; row < rows; row++ {
		t.nowhere[row] = NoDomain
	}
	t.unlabelled = longer(t.unlabelled, words(rows))
	for _, topology := range t.topologies {
		topology.grow(t)
	}
	for row := rows - 1; row >= was; row-- {
		t.free = append(t.free, Row(row))
	}
}

// longer extends a slice with zero values to n elements.
func longer[T any](s []T, n int) []T { return append(s, make([]T, n-len(s))...) }
