package manifest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	kjson "sigs.k8s.io/json"
)

// findFaults finds every value that prevents a JSON document from being decoded into a
// type. The decoder stops at the first and names no field for a bad quantity. It
// returns the faults, each with its field, and the document without these values; into
// is zero again.
func findFaults(raw []byte, into any) (faults []error, rest []byte) {
	target := reflect.ValueOf(into).Elem()
	target.SetZero()
	var root any
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber()
	if err := decoder.Decode(&root); err != nil {
		return []error{err}, raw
	}
	c := strictDecoder{target.Type()}
	alone := func(v any) any { return v }
	if faults = c.faultsIn("", root, alone); c.decode(root) != nil {
		root = nil
	}
	rest, err := json.Marshal(root)
	return append(faults, err), rest
}

// strictDecoder decodes parts of a document into a type.
type strictDecoder struct{ reflect.Type }

func (c strictDecoder) decode(document any) error {
	text, err := json.Marshal(document)
	if err == nil {
		_, err = kjson.UnmarshalStrict(text, reflect.New(c.Type).Interface())
	}
	return err
}

// faultsIn returns the faults at and below a value, and removes the faulty values below
// it. within returns a document that has nothing but the value, in its place.
func (c strictDecoder) faultsIn(path string, value any, within func(any) any) []error {
	err := c.decode(within(value))
	if err == nil {
		return nil
	}
	var faults []error
	examine := func(label string, child any, alone func(any) any, remove func()) {
		in := func(v any) any { return within(alone(v)) }
		found := c.faultsIn(path+label, child, in)
		if faults = append(faults, found...); len(found) > 0 && c.decode(in(child)) != nil {
			remove()
		}
	}
	switch value := value.(type) {
	case map[string]any:
		if c.decode(within(map[string]any{})) != nil {
			break // no object at all can stand here
		}
		for _, key := range slices.Sorted(maps.Keys(value)) {
			examine(label(path, key), value[key], func(v any) any { return map[string]any{key: v} }, func() { delete(value, key) })
		}
	case []any:
		if c.decode(within([]any{})) != nil {
			break
		}
		for i := range value {
			examine("["+strconv.Itoa(i)+"]", value[i], func(v any) any { return []any{v} }, func() { value[i] = nil })
		}
	}
	if len(faults) > 0 {
		return faults
	}
	return []error{describe(path, err)}
}

// label is a key as paths write it; one that could be taken for several stands
// in brackets.
func label(path, key string) string {
	switch {
	case strings.ContainsAny(key, "./[]"):
		return "[" + key + "]"
	case path == "":
		return key
	default:
		return "." + key
	}
}

// describe describes a fault without names of Go.
func describe(path string, err error) error {
	if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		err = fmt.Errorf("expected %s, found %s", kind(wrong.Type), wrong.Value)
	}
	if path == "" {
		return err
	}
	return fmt.Errorf("%s: %w", path, err)
}

// kind is how JSON calls what a type holds.
func kind(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Struct, reflect.Map:
		return "an object"
	case reflect.Slice, reflect.Array:
		return "a list"
	case reflect.Pointer:
		return kind(t.Elem())
	case reflect.Bool:
		return "true or false"
	case reflect.String:
		return "a string"
	default:
		return "a number (" + t.String() + ")"
	}
}
