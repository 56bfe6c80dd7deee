package nodetable

import "slices"

// Index has items by a label that their selectors require. It visits the items whose
// selector may match, and not all.
type Index[T comparable] struct {
	byLabel map[Label][]T
	loose   []T // their selectors require no single label
}

// Handled is a Selector or a NodeSelector.
type Handled interface {
	handle() (label Label, found bool)
}

func (x *Index[T]) Add(s Handled, item T) {
	label, found := s.handle()
	if !found {
		x.loose = append(x.loose, item)
		return
	}
	if x.byLabel == nil {
		x.byLabel = map[Label][]T{}
	}
	x.byLabel[label] = append(x.byLabel[label], item)
}

// Remove removes an item that was added with an equal selector.
func (x *Index[T]) Remove(s Handled, item T) {
	without := func(items []T) []T {
		i := slices.Index(items, item)
		return slices.Delete(items, i, i+1)
	}
	label, found := s.handle()
	if !found {
		x.loose = without(x.loose)
	} else if x.byLabel[label] = without(x.byLabel[label]); len(x.byLabel[label]) == 0 {
		delete(x.byLabel, label)
	}
}

// Candidates calls a function once for each item whose selector may match the labels.
func (x *Index[T]) Candidates(labels Labels, visit func(T)) {
	for _, item := range x.loose {
		visit(item)
	}
	if len(x.byLabel) == 0 {
		return
	}
	for _, l := range labels {
		for _, item := range x.byLabel[l] {
			visit(item)
		}
	}
}
