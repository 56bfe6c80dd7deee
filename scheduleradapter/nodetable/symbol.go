package nodetable

import (
	"slices"
	"strings"
	"unique"
)

// Symbol is an interned string, compared as one word. Unused symbols are collected.
type Symbol = unique.Handle[string]

// Intern makes a symbol. Any goroutine may call it.
func Intern(s string) Symbol { return unique.Make(s) }

// Label is a key with its value.
type Label struct{ Key, Value Symbol }

// Labels are sorted by key.
type Labels []Label

// NewLabels digests an object's labels.
func NewLabels(m map[string]string) Labels {
	if len(m) == 0 {
		return nil
	}
	labels := make(Labels, 0, len(m))
	for key, value := range m {
		labels = append(labels, Label{Intern(key), Intern(value)})
	}
	slices.SortFunc(labels, func(a, b Label) int { return strings.Compare(a.Key.Value(), b.Key.Value()) })
	return labels
}

func (l Labels) Get(key Symbol) (value Symbol, found bool) {
	for i := range l {
		if l[i].Key == key {
			return l[i].Value, true
		}
	}
	return Symbol{}, false
}
