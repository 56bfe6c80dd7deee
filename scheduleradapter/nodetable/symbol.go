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

// Hash is the hash FNV-1a, of numbers by 64 bits at once. Zero is that of nothing.
type Hash uint64

const hashPrime = 1099511628211

// Numbers adds numbers.
func (h Hash) Numbers(numbers ...int64) Hash {
	for _, n := range numbers {
		h = (h ^ Hash(n)) * hashPrime
	}
	return h
}

// Symbols adds symbols, also such that Intern has not made.
func (h Hash) Symbols(symbols ...Symbol) Hash {
	for _, symbol := range symbols {
		if symbol != (Symbol{}) {
			text := symbol.Value()
			for i := range len(text) {
				h = (h ^ Hash(text[i])) * hashPrime
			}
		}
		h *= hashPrime // the end of a symbol
	}
	return h
}

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
