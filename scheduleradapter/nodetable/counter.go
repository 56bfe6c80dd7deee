package nodetable

import "slices"

// Counter counts the pods that a matcher matches. Call Table.Counter in each cycle:
// unused counters are dropped.
type Counter struct {
	Tally
	matcher *Matcher
	used    bool
}

type counters struct {
	byKey map[Symbol]*Counter
	index Index[*Counter]
	limit int
}

// keptPerCycle is how many topologies and counters are added between two sweeps at
// least, and more than a pod may refer to: a cycle does not lose those that it uses.
const keptPerCycle = 2 * (MaxTerms + MaxSpread)

// nextSweep is the number at which the next sweep is due, after one that kept some.
func nextSweep(kept int) int { return kept + max(kept, keptPerCycle) }

// Counter finds or makes the counter of a matcher. A new counter looks at the
// label sets with a label that its selector requires.
func (t *Table) Counter(m *Matcher) *Counter {
	c := t.counters.byKey[m.Key]
	if c == nil {
		t.counters.sweep()
		c = &Counter{matcher: m}
		t.fill(c)
		t.counters.byKey[m.Key] = c
		t.counters.index.Add(m.selector, c)
	}
	c.used = true
	return c
}

// sweep drops the counters that were not used since the last sweep, when their
// number has doubled.
func (s *counters) sweep() {
	if len(s.byKey) < max(keptPerCycle, s.limit) {
		return
	}
	for key, c := range s.byKey {
		if !c.used {
			delete(s.byKey, key)
			s.index.Remove(c.matcher.selector, c)
		}
		c.used = false
	}
	s.limit = nextSweep(len(s.byKey))
}

// fill counts the pods of the namespaces that the matcher names, and of those whose
// labels it selects.
func (t *Table) fill(c *Counter) {
	t.sets.begin(t.Rows())
	for _, namespace := range c.matcher.namespaces {
		t.sets.sum(c.matcher, namespace, t.namespaces[namespace])
	}
	if c.matcher.byLabels != nil {
		for namespace := range t.sets.in {
			if !slices.Contains(c.matcher.namespaces, namespace) {
				t.sets.sum(c.matcher, namespace, t.namespaces[namespace])
			}
		}
	}
	t.sets.end(&c.Tally, 1)
}

// SetNamespace sets the labels of a namespace; nil: it was deleted. Counters that select
// namespaces by labels count its pods again.
func (t *Table) SetNamespace(name string, labels Labels) {
	t.tries.settled()
	symbol := Intern(name)
	was := t.namespaces[symbol]
	if slices.Equal(was, labels) {
		return
	}
	t.Versions.Namespaces++
	t.namespaces[symbol] = labels
	if labels == nil {
		delete(t.namespaces, symbol)
	}
	if t.sets.in[symbol] == nil {
		return
	}
	for _, c := range t.counters.byKey {
		if !c.matcher.distinguishes(was, labels) {
			continue
		}
		t.sets.begin(t.Rows())
		t.sets.sum(c.matcher, symbol, was)
		t.sets.end(&c.Tally, -1)
		t.sets.begin(t.Rows())
		t.sets.sum(c.matcher, symbol, labels)
		t.sets.end(&c.Tally, 1)
	}
}

// Matches matches a pod with the current namespaces.
func (t *Table) Matches(m *Matcher, p *Pod) bool { return m.Matches(p, t.namespaces[p.Namespace]) }

// Selects is Matches including terminating pods.
func (t *Table) Selects(m *Matcher, p *Pod) bool { return m.Selects(p, t.namespaces[p.Namespace]) }
