package nodetable

import (
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
)

// Taint is a taint without timeAdded.
type Taint struct {
	Key, Value Symbol
	Effect     v1.TaintEffect
}

func NewTaint(t *v1.Taint) Taint { return Taint{Intern(t.Key), Intern(t.Value), t.Effect} }

// toleration: a zero key, value or effect matches any.
type toleration struct {
	key, value *Symbol
	effect     v1.TaintEffect
}

// Tolerations of a pod, compiled.
type Tolerations struct {
	// Key is equal for equal tolerations.
	Key  Symbol
	list []toleration
}

// NewTolerations digests tolerations. Those that tolerate nothing are left out:
// unknown operators, and Gt and Lt, whose feature gate is off in Kubernetes 1.37.
// tolerationSeconds is ignored.
func NewTolerations(list []v1.Toleration) Tolerations {
	var t Tolerations
	var keys []string
	for i := range list {
		from := &list[i]
		c := toleration{effect: from.Effect}
		switch from.Operator {
		case v1.TolerationOpExists:
		case v1.TolerationOpEqual, "":
			value := Intern(from.Value)
			c.value = &value
		default:
			continue
		}
		if from.Key != "" {
			key := Intern(from.Key)
			c.key = &key
		}
		t.list = append(t.list, c)
		keys = append(keys, fmt.Sprintf("%q %t %q %s;", from.Key, c.value != nil, from.Value, from.Effect))
	}
	slices.Sort(keys)
	t.Key = Intern(strings.Join(slices.Compact(keys), ""))
	return t
}

// Tolerate reports whether a toleration matches the taint.
func (t *Tolerations) Tolerate(taint Taint) bool {
	return slices.ContainsFunc(t.list, func(c toleration) bool { return c.tolerates(taint) })
}

// ToleratePreferring reports whether a toleration of the effect PreferNoSchedule,
// or of all effects, matches the taint.
func (t *Tolerations) ToleratePreferring(taint Taint) bool {
	return slices.ContainsFunc(t.list, func(c toleration) bool {
		return (c.effect == "" || c.effect == v1.TaintEffectPreferNoSchedule) && c.tolerates(taint)
	})
}

func (c toleration) tolerates(taint Taint) bool {
	return (c.effect == "" || c.effect == taint.Effect) &&
		(c.key == nil || *c.key == taint.Key) &&
		(c.value == nil || *c.value == taint.Value)
}

// Admit reports whether all NoSchedule and NoExecute taints are tolerated.
func (t *Tolerations) Admit(taints []Taint) bool {
	return !slices.ContainsFunc(taints, func(taint Taint) bool { return taint.repels() && !t.Tolerate(taint) })
}

// Untolerated are the NoSchedule and NoExecute taints that are not tolerated.
func (t *Tolerations) Untolerated(taints []Taint) (repelling []Taint) {
	for _, taint := range taints {
		if taint.repels() && !t.Tolerate(taint) {
			repelling = append(repelling, taint)
		}
	}
	return repelling
}

func (t Taint) repels() bool {
	return t.Effect == v1.TaintEffectNoSchedule || t.Effect == v1.TaintEffectNoExecute
}

// Tainted is the set of nodes with untolerated taints. The set is cached and must
// not be changed.
func (t *Table) Tainted(tolerations *Tolerations) Bits {
	kept, known := t.tainted.At(tolerations.Key)
	if !known || kept.version != t.Versions.Taints {
		kept.version, kept.rows = t.Versions.Taints, kept.rows.Emptied(t.Rows())
		for taint, rows := range t.byTaint {
			if taint.repels() && !tolerations.Tolerate(taint) {
				kept.rows.SetAll(rows)
			}
		}
	}
	return kept.rows
}
