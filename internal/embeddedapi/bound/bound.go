// Package bound says what the decoding of a request's body would cost, before it is decoded: how large the Go value becomes, how long
// its quantities take to parse, and what the aliases of YAML become. It decodes nothing. A text that it cannot read is left to the decoder.
package bound

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/evictd/evictd/internal/podspec"
)

// A value may take so many bytes, and so many more for each byte of its text.
const (
	free    = 512 << 10
	perByte = 4
)

// mostElements is how many structs one list may have: Kubernetes' validation compares the elements of some lists pairwise.
const mostElements = 2000

// ErrTooLarge is the error for a body that would become too large a value.
var ErrTooLarge = errors.New("the decoded object would be too large for the size of the request")

// ErrTooMany is the error for a body with a list that is too long.
var ErrTooMany = fmt.Errorf("a list has more than %d elements", mostElements)

var quantity = reflect.TypeFor[resource.Quantity]()

// walk is what the value of a text costs so far.
type walk struct {
	in    []byte // what is not read yet
	room  int    // bytes that the value may still take
	fault error
}

func newWalk(text []byte) *walk { return &walk{in: text, room: free + perByte*len(text)} }

// take counts a value of a type that the decoder makes.
func (w *walk) take(t reflect.Type) {
	if t == nil {
		return
	}
	if w.room -= int(t.Size()); w.room < 0 && w.fault == nil {
		w.fault = ErrTooLarge
	}
}

// element counts element number n of a list, from 1 on.
func (w *walk) element(t reflect.Type, n int) {
	w.take(t)
	if n > mostElements && t != nil && t.Kind() == reflect.Struct && w.fault == nil {
		w.fault = ErrTooMany
	}
}

// made is the type that a pointer is made to point to, which is counted.
func (w *walk) made(t reflect.Type) reflect.Type {
	for t != nil && t.Kind() == reflect.Pointer {
		t = t.Elem()
		w.take(t)
	}
	return t
}

// quantity checks the text of a quantity.
func (w *walk) quantity(text string) {
	if len(text) == 0 || w.fault != nil {
		return
	}
	if err := podspec.CheckQuantity(text); err != nil {
		w.fault = fmt.Errorf("quantity %.60q: %w", text, err)
	}
}

// fieldsOf are the types of the fields of a struct by their keys, which key returns for a field; false for a struct that has no
// key of its own and whose fields are in the one around it.
type fieldsOf[K comparable] struct {
	known sync.Map // of map[K]reflect.Type, by reflect.Type
	key   func(reflect.StructField) (key K, own bool)
}

func (f *fieldsOf[K]) of(t reflect.Type) map[K]reflect.Type {
	if known, is := f.known.Load(t); is {
		return known.(map[K]reflect.Type)
	}
	fields := map[K]reflect.Type{}
	f.add(fields, t)
	f.known.Store(t, fields)
	return fields
}

func (f *fieldsOf[K]) add(fields map[K]reflect.Type, t reflect.Type) {
	for field := range t.Fields() {
		key, own := f.key(field)
		switch {
		case own:
			fields[key] = field.Type
		case field.Anonymous && field.Type.Kind() == reflect.Struct:
			f.add(fields, field.Type)
		}
	}
}

var byName = &fieldsOf[string]{key: func(field reflect.StructField) (string, bool) {
	name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
	return name, name != ""
}}
