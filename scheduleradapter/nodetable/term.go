package nodetable

// TermKind is one of the four lists of inter-pod terms.
type TermKind uint8

const (
	RequiredAffinity TermKind = iota
	RequiredAntiAffinity
	PreferredAffinity
	PreferredAntiAffinity
	termKinds
)

// Terms are the pod's terms of a kind.
func (p *PodTemplate) Terms(kind TermKind) []*Term {
	return [termKinds][]*Term{p.Affinity, p.AntiAffinity, p.PreferredAffinity, p.PreferredAntiAffinity}[kind]
}

// CarriedTerm is a term with the tally of the pods that have it. owner is the namespace
// of the first one.
type CarriedTerm struct {
	*Term
	Tally
	owner Symbol
}

type termIndex struct {
	byKey map[Symbol]*CarriedTerm
	index Index[*CarriedTerm]
}

// CarriedMatching appends the distinct terms of a kind of placed pods that match
// the pod, in no order.
func (t *Table) CarriedMatching(kind TermKind, p *Pod, into []*CarriedTerm) []*CarriedTerm {
	namespace := t.namespaces[p.Namespace]
	t.terms[kind].index.Candidates(p.Labels, func(c *CarriedTerm) {
		if c.total > 0 && c.Pods.Matches(p, namespace) {
			into = append(into, c)
		}
	})
	return into
}

// carry counts a pod's terms on a row, n times.
func (t *Table) carry(p *Pod, row Row, n int32) {
	for kind := range termKinds {
		index := &t.terms[kind]
		for _, term := range p.Terms(kind) {
			c := index.byKey[term.Key]
			if c == nil {
				c = &CarriedTerm{Term: term, owner: p.Namespace}
				t.Topology(term.Topology)
				t.share(p.Namespace, 1)
				index.byKey[term.Key] = c
				index.index.Add(term.Pods.selector, c)
			}
			c.add(row, n)
			if c.total == 0 {
				t.drop(kind, c)
			}
		}
	}
}

// drop removes a term that no pod has. Inside a try it is kept for Undo.
func (t *Table) drop(kind TermKind, c *CarriedTerm) {
	if t.tries.open() {
		t.tries.emptied = append(t.tries.emptied, emptiedTerm{kind, c})
		return
	}
	t.share(c.owner, -1)
	delete(t.terms[kind].byKey, c.Key)
	t.terms[kind].index.Remove(c.Pods.selector, c)
}
