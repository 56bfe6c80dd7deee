package nodetable

import (
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// NodeSelector is a compiled node selector: all of `all`, and any of the terms if
// there are terms.
type NodeSelector struct {
	// Key is equal for equal selectors.
	Key   Symbol
	all   []requirement
	terms []nodeTerm
	// limited: terms were given, even if none can match.
	limited bool
}

// nodeTerm matches nothing if it has no requirements or if a requirement does not
// parse.
type nodeTerm struct {
	nothing bool
	labels  []requirement
	names   []requirement // of metadata.name
}

// NewNodeSelector compiles spec.nodeSelector and required node affinity; nil:
// neither is given.
func NewNodeSelector(labels map[string]string, required *v1.NodeSelector) *NodeSelector {
	if len(labels) == 0 && required == nil {
		return nil
	}
	var s NodeSelector
	for _, l := range NewLabels(labels) {
		s.all = append(s.all, requirement{key: l.Key, op: in, values: []Symbol{l.Value}})
	}
	if required != nil {
		s.limited = true
		for i := range required.NodeSelectorTerms {
			s.terms = append(s.terms, newNodeTerm(&required.NodeSelectorTerms[i]))
		}
	}
	s.Key = Intern(s.text())
	return &s
}

// NewNodeSelectorTerm compiles a preferred term.
func NewNodeSelectorTerm(term *v1.NodeSelectorTerm) *NodeSelector {
	return NewNodeSelector(nil, &v1.NodeSelector{NodeSelectorTerms: []v1.NodeSelectorTerm{*term}})
}

func newNodeTerm(term *v1.NodeSelectorTerm) nodeTerm {
	t := nodeTerm{nothing: len(term.MatchExpressions) == 0 && len(term.MatchFields) == 0}
	for _, e := range term.MatchExpressions {
		r, valid := newRequirement(e.Key, string(e.Operator), e.Values)
		t.nothing = t.nothing || !valid
		t.labels = append(t.labels, r)
	}
	for _, e := range term.MatchFields {
		o, known := operators[string(e.Operator)]
		if !known || e.Key != metav1.ObjectNameField || len(e.Values) != 1 || o.op != in && o.op != notIn {
			t.nothing = true
			continue
		}
		t.names = append(t.names, requirement{key: Intern(e.Key), op: o.op, values: symbols(e.Values)})
	}
	if t.nothing {
		t.labels = nil
	}
	return t
}

func (s *NodeSelector) text() string {
	texts := make([]string, len(s.terms))
	for i, t := range s.terms {
		texts[i] = strconv.FormatBool(t.nothing) + canonical(t.labels) + "@" + canonical(t.names)
	}
	slices.Sort(texts)
	return canonical(s.all) + strconv.FormatBool(s.limited) + strings.Join(slices.Compact(texts), "|")
}

// handle is a label that all matching nodes have, for an Index.
func (s *NodeSelector) handle() (label Label, found bool) {
	if s == nil {
		return Label{}, false
	}
	if label, found = handle(s.all); !found && len(s.terms) == 1 {
		label, found = handle(s.terms[0].labels)
	}
	return label, found
}

// Matches matches a node that is not in the table, for queueing hints. Select is
// for rows.
func (s *NodeSelector) Matches(n *Node) bool {
	matches := func(labels Labels) func(requirement) bool {
		return func(r requirement) bool { return !r.matches(labels) }
	}
	if slices.ContainsFunc(s.all, matches(n.Labels)) {
		return false
	}
	if !s.limited {
		return true
	}
	name := Labels{{Intern(metav1.ObjectNameField), n.Name}}
	return slices.ContainsFunc(s.terms, func(t nodeTerm) bool {
		return !t.nothing && !slices.ContainsFunc(t.labels, matches(n.Labels)) && !slices.ContainsFunc(t.names, matches(name))
	})
}

// Names are the nodes that metadata.name requirements allow, if each term has one;
// otherwise narrowed is false.
func (s *NodeSelector) Names() (names []Symbol, narrowed bool) {
	if !s.limited || len(s.terms) == 0 {
		return nil, false
	}
	for _, t := range s.terms {
		var common []Symbol
		named := false
		for _, r := range t.names {
			switch {
			case r.op != in:
			case !named:
				common, named = r.values, true
			case len(common) > 0 && r.values[0] != common[0]:
				common = nil
			}
		}
		if !named {
			return nil, false
		}
		names = append(names, common...)
	}
	return names, true
}

// Select is the set of matching nodes; all nodes for nil. The set is cached and
// must not be changed.
func (t *Table) Select(s *NodeSelector) Bits {
	if s == nil {
		return t.alive
	}
	kept, known := t.selected.At(s.Key)
	if !known || kept.version != t.Versions.Labels {
		kept.rows = t.evaluate(s, kept.rows.Copied(t.alive))
		kept.version = t.Versions.Labels
	}
	return kept.rows
}

// selection is a cached set of nodes for a version.
type selection struct {
	version uint64
	rows    Bits
}

func (t *Table) evaluate(s *NodeSelector, rows Bits) Bits {
	scratch := make(Bits, len(rows))
	for i := range s.all {
		t.restrict(rows, &s.all[i], scratch)
	}
	if !s.limited {
		return rows
	}
	any, one := make(Bits, len(rows)), make(Bits, len(rows))
	for _, term := range s.terms {
		if term.nothing {
			continue
		}
		copy(one, rows)
		for i := range term.labels {
			t.restrict(one, &term.labels[i], scratch)
		}
		for i := range term.names {
			t.restrictNames(one, &term.names[i], scratch)
		}
		any.Or(one)
	}
	return any
}

// restrict keeps the rows that meet a requirement.
func (t *Table) restrict(rows Bits, r *requirement, scratch Bits) {
	clear(scratch)
	values := t.byLabel[r.key]
	switch r.op {
	case in, notIn:
		for _, v := range r.values {
			scratch.SetAll(values[v])
		}
	default:
		for v, having := range values {
			if r.op == exists || r.op == doesNotExist || r.within(v) {
				scratch.SetAll(having)
			}
		}
	}
	if r.op == notIn || r.op == doesNotExist {
		rows.AndNot(scratch)
	} else {
		rows.And(scratch)
	}
}

func (t *Table) restrictNames(rows Bits, r *requirement, scratch Bits) {
	clear(scratch)
	for _, v := range r.values {
		if row, found := t.rowOf[v]; found {
			scratch.Set(row)
		}
	}
	if r.op == notIn {
		rows.AndNot(scratch)
	} else {
		rows.And(scratch)
	}
}
