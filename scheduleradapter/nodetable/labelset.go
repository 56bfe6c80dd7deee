package nodetable

import (
	"maps"
	"slices"
)

// labelSet is the number of placed pods with the same namespace and labels by row. A
// selector selects all of them or none.
type labelSet struct {
	key, namespace       Symbol
	labels               Labels
	running, terminating map[Row]int32
}

// labelSets finds those that a selector may select.
type labelSets struct {
	byKey map[Symbol]*labelSet
	in    map[Symbol]*namespaceSets // by namespace
	// matched counts the label sets that were matched, which tests bound.
	matched int
	count   []int32 // by row; buffer of zeros
	rows    Bits    // buffer
}

type namespaceSets struct {
	all     map[*labelSet]struct{}
	byLabel map[Label]map[*labelSet]struct{}
}

// appendLabelSetKey appends bytes that are equal for pods with the same namespace and
// labels.
func appendLabelSetKey(b []byte, namespace string, labels map[string]string) []byte {
	b = append(b, namespace...)
	var few [16]string // keys
	keys := slices.AppendSeq(few[:0], maps.Keys(labels))
	slices.Sort(keys)
	for _, key := range keys {
		b = append(b, 0)
		b = append(b, key...)
		b = append(b, 0)
		b = append(b, labels[key]...)
	}
	return b
}

// tally counts a pod n times. A label set without pods is dropped; inside a try it is
// kept for Undo.
func (t *Table) tally(p *Pod, row Row, n int32) {
	s := t.sets.byKey[p.labelSet]
	if s == nil {
		s = &labelSet{key: p.labelSet, namespace: p.Namespace, labels: p.Labels, running: map[Row]int32{}}
		t.sets.add(s)
	}
	pods := s.running
	if p.Terminating {
		if s.terminating == nil {
			s.terminating = map[Row]int32{}
		}
		pods = s.terminating
	}
	if left := pods[row] + n; left == 0 {
		delete(pods, row)
	} else {
		pods[row] = left
	}
	switch {
	case !s.empty():
	case t.tries.open():
		t.tries.lone = append(t.tries.lone, s)
	default:
		t.sets.remove(s)
	}
}

func (s *labelSet) empty() bool { return len(s.running)+len(s.terminating) == 0 }

func (s *labelSets) add(set *labelSet) {
	s.byKey[set.key] = set
	in := s.in[set.namespace]
	if in == nil {
		in = &namespaceSets{map[*labelSet]struct{}{}, map[Label]map[*labelSet]struct{}{}}
		s.in[set.namespace] = in
	}
	in.all[set] = struct{}{}
	for _, l := range set.labels {
		if in.byLabel[l] == nil {
			in.byLabel[l] = map[*labelSet]struct{}{}
		}
		in.byLabel[l][set] = struct{}{}
	}
}

func (s *labelSets) remove(set *labelSet) {
	delete(s.byKey, set.key)
	in := s.in[set.namespace]
	for _, l := range set.labels {
		if delete(in.byLabel[l], set); len(in.byLabel[l]) == 0 {
			delete(in.byLabel, l)
		}
	}
	if delete(in.all, set); len(in.all) == 0 {
		delete(s.in, set.namespace)
	}
}

// sum adds the pods that a matcher matches in a namespace with the given labels to the
// buffer.
func (s *labelSets) sum(m *Matcher, namespace Symbol, labels Labels) {
	in := s.in[namespace]
	if in == nil {
		return
	}
	sets := in.all
	if label, found := m.selector.handle(); found {
		sets = in.byLabel[label]
	}
	for set := range sets {
		if s.matched++; !m.selects(namespace, set.labels, labels) {
			continue
		}
		s.addPods(set.running)
		if !m.running {
			s.addPods(set.terminating)
		}
	}
}

func (s *labelSets) addPods(pods map[Row]int32) {
	for row, n := range pods {
		s.count[row] += n
		s.rows.Set(row)
	}
}

// begin makes the buffer for a number of rows.
func (s *labelSets) begin(rows int) {
	s.rows = s.rows.Emptied(rows)
	s.count = longer(s.count, max(rows, len(s.count)))
}

// end adds the buffer to a tally n times and empties it.
func (s *labelSets) end(y *Tally, n int32) {
	for row := range s.rows.All() {
		y.add(row, n*s.count[row])
		s.count[row] = 0
	}
}
