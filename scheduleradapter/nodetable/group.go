package nodetable

import (
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Group is a Service, ReplicationController, ReplicaSet or StatefulSet, whose pods
// are spread by default.
type Group struct{ APIVersion, Kind, Name string }

// grouping has the groups of a namespace with their selectors.
type grouping struct {
	version     uint64
	services    map[Group]*Selector
	controllers map[Group]*Selector
}

type groups struct {
	version  uint64
	in       map[Symbol]*grouping
	siblings *Recent[family, siblings]
}

// family is the pods of a namespace with the same controller.
type family struct {
	namespace Symbol
	owner     types.UID
}

// siblings are cached for a version of the groups.
type siblings struct {
	version uint64
	labels  Labels
	matcher *Matcher
}

// keptFamilies bounds the cached families.
const keptFamilies = 512

// SetGroup sets the selector of a group; nil: it was deleted or has none.
func (t *Table) SetGroup(namespace string, g Group, selector *metav1.LabelSelector) {
	compiled := NewSelector(selector)
	in := t.groups.of(Intern(namespace))
	list := in.controllers
	if g.Kind == "Service" {
		list = in.services
	}
	switch was := list[g]; {
	case compiled.nothing:
		delete(list, g)
	case was == nil || was.key != compiled.key:
		list[g] = compiled
	default:
		return
	}
	t.groups.version++
	in.version = t.groups.version
	if len(in.services)+len(in.controllers) == 0 {
		delete(t.groups.in, Intern(namespace))
	}
}

func (s *groups) of(namespace Symbol) *grouping {
	in := s.in[namespace]
	if in == nil {
		in = &grouping{services: map[Group]*Selector{}, controllers: map[Group]*Selector{}}
		s.in[namespace] = in
	}
	return in
}

// Siblings matches the pods that each Service that selects the pod, and its
// controller, select, without terminating pods; nil: there are none of these, or
// their selectors are empty. Source: kube-scheduler's default spreading.
func (t *Table) Siblings(p *Pod) *Matcher {
	in := t.groups.in[p.Namespace]
	if in == nil {
		return nil
	}
	owner := metav1.GetControllerOfNoCopy(p.Object)
	name := family{namespace: p.Namespace}
	if owner != nil {
		name.owner = owner.UID
	}
	kept, known := t.groups.siblings.At(name)
	if !known || kept.version != in.version || !slices.Equal(kept.labels, p.Labels) {
		*kept = siblings{in.version, p.Labels, in.matcher(p, owner)}
	}
	return kept.matcher
}

// Service matches the pods of the first Service by name that selects the pod,
// without terminating pods; nil: there is none.
func (t *Table) Service(p *Pod) *Matcher {
	in := t.groups.in[p.Namespace]
	if in == nil {
		return nil
	}
	var name string
	var first *Selector
	for group, selector := range in.services {
		if selector.Matches(p.Labels) && (first == nil || group.Name < name) {
			name, first = group.Name, selector
		}
	}
	if first == nil {
		return nil
	}
	return NewMatcher([]string{p.Object.Namespace}, nil, first, true)
}

func (s *grouping) matcher(p *Pod, owner *metav1.OwnerReference) *Matcher {
	var selectors []*Selector
	for _, service := range s.services {
		if service.Matches(p.Labels) {
			selectors = append(selectors, service)
		}
	}
	slices.SortFunc(selectors, func(a, b *Selector) int { return strings.Compare(a.key, b.key) })
	if owner != nil {
		if c := s.controllers[Group{owner.APIVersion, owner.Kind, owner.Name}]; c != nil {
			selectors = append(selectors, c)
		}
	}
	var all Selector
	for _, selector := range selectors {
		all.requirements = append(all.requirements, selector.requirements...)
	}
	if all.Empty() {
		return nil
	}
	all.key = canonical(all.requirements)
	return NewMatcher([]string{p.Object.Namespace}, nil, &all, true)
}
