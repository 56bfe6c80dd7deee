package nodetable

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	labelselection "k8s.io/apimachinery/pkg/selection"
)

type operator uint8

const (
	in operator = iota
	notIn
	exists
	doesNotExist
	greater
	less
)

// operators are those of node selectors by name. Label selectors have the first
// four.
var operators = map[string]struct {
	op    operator
	label labelselection.Operator
}{
	"In": {in, labelselection.In}, "NotIn": {notIn, labelselection.NotIn}, "Exists": {exists, labelselection.Exists},
	"DoesNotExist": {doesNotExist, labelselection.DoesNotExist}, "Gt": {greater, labelselection.GreaterThan}, "Lt": {less, labelselection.LessThan},
}

// requirement is a condition on the value of a label key. Values are sorted.
type requirement struct {
	key    Symbol
	op     operator
	values []Symbol
	bound  int64 // of Gt and Lt
}

// newRequirement compiles a requirement on labels. valid is false where the parser
// of Kubernetes has an error: an unknown operator, the wrong number of values, a
// bound that is no integer, a key or value that no label can have.
func newRequirement(key, op string, values []string) (r requirement, valid bool) {
	o, known := operators[op]
	if !known {
		return requirement{}, false
	}
	if _, err := labels.NewRequirement(key, o.label, values); err != nil {
		return requirement{}, false
	}
	r = requirement{key: Intern(key), op: o.op}
	if o.op == greater || o.op == less {
		r.bound, _ = strconv.ParseInt(values[0], 10, 64)
	}
	r.values = symbols(values)
	return r, true
}

// symbols are the distinct values, sorted.
func symbols(values []string) (all []Symbol) {
	values = slices.Clone(values)
	slices.Sort(values)
	for _, v := range slices.Compact(values) {
		all = append(all, Intern(v))
	}
	return all
}

func (r *requirement) matches(labels Labels) bool {
	value, found := labels.Get(r.key)
	switch r.op {
	case in:
		return found && slices.Contains(r.values, value)
	case notIn:
		return !found || !slices.Contains(r.values, value)
	case exists:
		return found
	case doesNotExist:
		return !found
	default:
		return found && r.within(value)
	}
}

// within reports whether an integer label value meets the bound. Other values do
// not.
func (r *requirement) within(value Symbol) bool {
	n, err := strconv.ParseInt(value.Value(), 10, 64)
	return err == nil && (r.op == greater && n > r.bound || r.op == less && n < r.bound)
}

func (r *requirement) writeKey(b *strings.Builder) {
	fmt.Fprintf(b, "%q %d", r.key.Value(), r.op)
	for _, v := range r.values {
		fmt.Fprintf(b, " %q", v.Value())
	}
	b.WriteByte(';')
}

// canonical is a text that is equal for equal requirements.
func canonical(requirements []requirement) string {
	all := make([]string, 0, len(requirements))
	for i := range requirements {
		var b strings.Builder
		requirements[i].writeKey(&b)
		all = append(all, b.String())
	}
	slices.Sort(all)
	return strings.Join(slices.Compact(all), "")
}

// Selector is a compiled label selector.
type Selector struct {
	requirements []requirement
	nothing      bool
	key          string
}

// NewSelector compiles a label selector: nil, and one that does not parse, matches
// nothing, an empty one everything. Each further label adds `key in (value)`.
func NewSelector(s *metav1.LabelSelector, further ...Label) *Selector {
	nothing := &Selector{nothing: true, key: "nothing"}
	if s == nil {
		return nothing
	}
	var c Selector
	for _, l := range append(NewLabels(s.MatchLabels), further...) {
		r, valid := newRequirement(l.Key.Value(), "In", []string{l.Value.Value()})
		if !valid {
			return nothing
		}
		c.requirements = append(c.requirements, r)
	}
	for _, e := range s.MatchExpressions {
		r, valid := newRequirement(e.Key, string(e.Operator), e.Values)
		if !valid || r.op >= greater {
			return nothing
		}
		c.requirements = append(c.requirements, r)
	}
	c.key = canonical(c.requirements)
	return &c
}

// Empty reports whether the selector has no requirements.
func (s *Selector) Empty() bool { return len(s.requirements) == 0 }

// Matches reports whether the labels meet all requirements.
func (s *Selector) Matches(labels Labels) bool {
	if s.nothing {
		return false
	}
	for i := range s.requirements {
		if !s.requirements[i].matches(labels) {
			return false
		}
	}
	return true
}

// handle is a label that all matching label sets have, for an Index.
func (s *Selector) handle() (label Label, found bool) { return handle(s.requirements) }

func handle(requirements []requirement) (label Label, found bool) {
	for i := range requirements {
		if r := &requirements[i]; r.op == in && len(r.values) == 1 {
			return Label{r.key, r.values[0]}, true
		}
	}
	return Label{}, false
}

// Matcher matches the pods of namespaces by a selector.
type Matcher struct {
	// Key is equal for equal matchers.
	Key        Symbol
	namespaces []Symbol // sorted
	// byLabels selects further namespaces; nil: none.
	byLabels *Selector
	selector *Selector
	// running excludes terminating pods.
	running bool
	// others must match too.
	others []*Matcher
}

// NewMatcher matches pods of the namespaces, and of those whose labels byLabels
// matches; nil: no further ones. running excludes terminating pods.
func NewMatcher(namespaces []string, byLabels, selector *Selector, running bool) *Matcher {
	names := slices.Clone(namespaces)
	slices.Sort(names)
	names = slices.Compact(names)
	m := &Matcher{byLabels: byLabels, selector: selector, running: running}
	for _, name := range names {
		m.namespaces = append(m.namespaces, Intern(name))
	}
	where := "none"
	if byLabels != nil {
		where = byLabels.key
	}
	m.Key = Intern(fmt.Sprintf("%q|%s|%s|%t", names, where, selector.key, running))
	return m
}

// AllOf matches the pods that all of at least one matchers match; the first decides
// about terminating pods.
func AllOf(matchers []*Matcher) *Matcher {
	if len(matchers) == 1 {
		return matchers[0]
	}
	all := *matchers[0]
	all.others = matchers[1:]
	keys := make([]string, len(matchers))
	for i, m := range matchers {
		keys[i] = m.Key.Value()
	}
	slices.Sort(keys)
	all.Key = Intern(strings.Join(slices.Compact(keys), " and "))
	return &all
}

// distinguishes reports whether the matcher selects namespaces with the one labels and not
// those with the other.
func (m *Matcher) distinguishes(a, b Labels) bool {
	return m.byLabels != nil && m.byLabels.Matches(a) != m.byLabels.Matches(b) ||
		slices.ContainsFunc(m.others, func(other *Matcher) bool { return other.distinguishes(a, b) })
}

// Empty reports whether the selector has no requirements.
func (m *Matcher) Empty() bool { return m.selector.Empty() }

// Matches matches a pod in a namespace with the given labels.
func (m *Matcher) Matches(p *Pod, namespace Labels) bool {
	if m.running && p.Terminating {
		return false
	}
	return m.Selects(p, namespace)
}

// Selects is Matches including terminating pods.
func (m *Matcher) Selects(p *Pod, namespace Labels) bool {
	return m.selects(p.Namespace, p.Labels, namespace)
}

func (m *Matcher) selects(namespace Symbol, labels, namespaceLabels Labels) bool {
	if !slices.Contains(m.namespaces, namespace) && (m.byLabels == nil || !m.byLabels.Matches(namespaceLabels)) {
		return false
	}
	for _, other := range m.others {
		if !other.selects(namespace, labels, namespaceLabels) {
			return false
		}
	}
	return m.selector.Matches(labels)
}
