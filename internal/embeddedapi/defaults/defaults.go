// Package defaults sets the fields of Kubernetes' objects that an API server sets where a
// client leaves them empty. The defaults are a table by Go type, so that a container has the
// same ones in a pod and in every template. The package validates nothing.
package defaults

import (
	"reflect"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/runtime"
)

// Setter sets the defaults of objects. Any number of goroutines may use it.
type Setter struct {
	set     map[reflect.Type][]func(any)
	mu      sync.Mutex
	reaches map[reflect.Type][]int // fields of a struct below which there are types with defaults
}

// New returns a setter of the defaults of Kubernetes 1.37.
func New() *Setter {
	s := &Setter{set: map[reflect.Type][]func(any){}, reaches: map[reflect.Type][]int{}}
	for _, add := range tables {
		add(s)
	}
	return s
}

// add registers the defaults of a type. Those of a struct are set before those of its fields.
func add[T any](s *Setter, set func(*T)) {
	t := reflect.TypeFor[T]()
	s.set[t] = append(s.set[t], func(v any) { set(v.(*T)) })
}

// Set sets the defaults of an object, a pointer to a struct, in place.
func (s *Setter) Set(object any) { s.visit(reflect.ValueOf(object).Elem()) }

// Default is Set.
func (s *Setter) Default(object runtime.Object) { s.Set(object) }

// visit is called for what matters.
func (s *Setter) visit(v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			s.visit(v.Elem())
		}
	case reflect.Slice:
		for i := range v.Len() {
			s.visit(v.Index(i))
		}
	case reflect.Struct:
		for _, set := range s.set[v.Type()] {
			set(v.Addr().Interface())
		}
		for _, i := range s.fields(v.Type()) {
			s.visit(v.Field(i))
		}
	}
}

func (s *Setter) fields(t reflect.Type) []int {
	s.mu.Lock()
	fields, known := s.reaches[t]
	s.mu.Unlock()
	if known {
		return fields
	}
	for i := range t.NumField() {
		if s.matters(t.Field(i).Type, nil) {
			fields = append(fields, i)
		}
	}
	s.mu.Lock()
	s.reaches[t] = fields
	s.mu.Unlock()
	return fields
}

// matters says that a type has defaults, or holds one that has. above are the types that hold it.
func (s *Setter) matters(t reflect.Type, above []reflect.Type) bool {
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice:
		return s.matters(t.Elem(), above)
	case reflect.Struct:
		if s.set[t] != nil {
			return true
		}
		if slices.Contains(above, t) {
			return false
		}
		for field := range t.Fields() {
			if field.IsExported() && s.matters(field.Type, append(above, t)) {
				return true
			}
		}
	}
	return false
}

// zero sets a field that has its zero value.
func zero[T comparable](field *T, value T) {
	if *field == *new(T) {
		*field = value
	}
}

// unset sets a field that is nil.
func unset[T any](field **T, value T) {
	if *field == nil {
		*field = &value
	}
}
