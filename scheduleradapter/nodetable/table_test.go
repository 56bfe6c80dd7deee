package nodetable

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evictd/evictd/internal/campaign"
)

func milli(n int64) *resource.Quantity { return resource.NewMilliQuantity(n, resource.DecimalSI) }
func bytes(n int64) *resource.Quantity { return resource.NewQuantity(n, resource.BinarySI) }

func add(to, list v1.ResourceList) {
	for name, q := range list {
		total := to[name]
		total.Add(q)
		to[name] = total
	}
}

// walk makes random changes of a table and the reference.
type walk struct {
	*testing.T
	generator
	table     *Table
	reference *reference
	nodes     []string // all node names
	uids      []types.UID
}

func newWalk(t *testing.T, seed uint64) *walk {
	w := &walk{T: t, generator: generator{rand.New(rand.NewPCG(seed, 0))}, table: New(), reference: newReference()}
	for i := range 80 {
		w.nodes = append(w.nodes, fmt.Sprintf("n%02d", i))
	}
	for i := range 120 {
		w.uids = append(w.uids, types.UID(fmt.Sprintf("u%03d", i)))
	}
	return w
}

func (w *walk) digest(p *v1.Pod) *Pod {
	w.Helper()
	return NewPod(p)
}

// known returns the name of a node in the table.
func (w *walk) known() (string, bool) {
	order := w.reference.order()
	if len(order) == 0 {
		return "", false
	}
	return pick(w.generator, order), true
}

func (w *walk) step() {
	switch roll := w.IntN(100); {
	case roll < 10:
		n := w.node(pick(w.generator, w.nodes))
		w.table.SetNode(NewNode(n))
		w.reference.setNode(n)
	case roll < 20:
		if name, ok := w.known(); ok {
			n := w.reference.nodes[name].DeepCopy()
			change := w.node(name)
			if w.chance(50) {
				n.Labels = change.Labels
			} else {
				n.Status, n.Spec = change.Status, change.Spec
			}
			w.table.SetNode(NewNode(n))
			w.reference.setNode(n)
		}
	case roll < 24:
		name := pick(w.generator, w.nodes)
		w.table.RemoveNode(Intern(name))
		w.reference.removeNode(name)
	case roll < 27:
		name, labels := pick(w.generator, namespaceNames), w.labels()
		w.table.SetNamespace(name, NewLabels(labels))
		w.reference.namespaces[name] = labels
	case roll < 32:
		p := w.pod(string(pick(w.generator, w.uids)), w.nodes)
		p.Spec.NodeName = pick(w.generator, w.nodes)
		w.table.PlaceOn(w.digest(p), Intern(p.Spec.NodeName))
		w.reference.pods[p.UID] = p
	case roll < 70:
		w.place()
	case roll < 90:
		w.displace()
	default:
		w.what(2)
	}
}

func (w *walk) place() {
	if name, ok := w.known(); ok {
		p := w.pod(string(pick(w.generator, w.uids)), w.nodes)
		p.Spec.NodeName = name
		w.table.Place(w.digest(p), w.table.Row(Intern(name)))
		w.reference.pods[p.UID] = p
	}
}

func (w *walk) displace() {
	uid := pick(w.generator, w.uids)
	w.table.Displace(uid)
	delete(w.reference.pods, uid)
}

// what makes changes inside nested tries and undoes them.
func (w *walk) what(depth int) {
	was := w.reference
	w.reference = was.clone()
	before := w.dump()
	w.table.Try()
	for range w.IntN(8) {
		switch roll := w.IntN(10); {
		case roll < 5:
			w.place()
		case roll < 9 || depth == 0:
			w.displaceKnown()
		default:
			w.what(depth - 1)
		}
	}
	if w.chance(30) {
		w.reference.check(w.T, w.table, w.pod("probe", w.nodes))
	}
	w.table.Undo()
	w.reference = was
	if after := w.dump(); after != before {
		lines := strings.Split(after, "\n")
		for i, line := range strings.Split(before, "\n") {
			if i >= len(lines) || lines[i] != line {
				w.Fatalf("undo left a trace:\nbefore %s\nafter  %s", line, lines[min(i, len(lines)-1)])
			}
		}
		w.Fatalf("undo left %q", lines[len(lines)-1])
	}
}

// displaceKnown removes a placed pod.
func (w *walk) displaceKnown() {
	uid := pick(w.generator, w.uids)
	if _, row := w.table.Find(uid); row != NoRow {
		w.table.Displace(uid)
		delete(w.reference.pods, uid)
	}
}

// dump has everything that pods can change, in order, except for new counters.
func (w *walk) dump() string {
	var b strings.Builder
	t := w.table
	for _, c := range []Column{t.CPU, t.Memory, t.Ephemeral, t.Pods} {
		fmt.Fprintln(&b, c.Allocatable, c.Requested)
	}
	fmt.Fprintln(&b, t.NonZeroCPU, t.NonZeroMemory)
	for row, pods := range t.pods {
		for i, p := range pods {
			fmt.Fprint(&b, row, p.UID, t.where[p.UID] == spot{Row(row), int32(i)}, " ")
		}
	}
	fmt.Fprintln(&b, len(t.where), len(t.orphans.of))
	for kind := range t.terms {
		for _, key := range sorted(t.terms[kind].byKey) {
			c := t.terms[kind].byKey[key]
			if c.total == 0 && t.tries.open() {
				continue // kept until the outermost try ends
			}
			fmt.Fprintln(&b, key.Value(), slices.Collect(c.Rows()), c.rows, c.total, c.In(t.Topology(c.Topology)))
		}
		if !t.tries.open() {
			fmt.Fprintln(&b, len(t.terms[kind].index.loose), len(t.terms[kind].index.byLabel))
		}
	}
	numbers := slices.SortedFunc(maps.Keys(t.ports), func(a, b portNumber) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
	for _, number := range numbers {
		uses := map[string][]RowCount{}
		for _, u := range t.ports[number] {
			uses[u.ip.Value()] = slices.Collect(u.use.Rows())
		}
		fmt.Fprintln(&b, number, uses)
	}
	return b.String()
}

func sorted[V any](m map[Symbol]V) []Symbol {
	return slices.SortedFunc(maps.Keys(m), func(a, b Symbol) int { return strings.Compare(a.Value(), b.Value()) })
}

func TestTableSaysWhatTheReferenceCounts(t *testing.T) {
	compareWithReference(t, 2, 1000)
}

func TestCampaignTableSaysWhatTheReferenceCounts(t *testing.T) {
	campaign.Only(t)
	compareWithReference(t, 8, campaign.Size(10_000, 100))
}

// compareWithReference makes changes from each seed.
func compareWithReference(t *testing.T, seeds uint64, steps int) {
	for seed := range seeds {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			w := newWalk(t, seed)
			for i := range steps {
				w.step()
				if i%10 == 0 {
					w.reference.check(t, w.table, w.pod("probe", w.nodes))
				}
			}
		})
	}
}
