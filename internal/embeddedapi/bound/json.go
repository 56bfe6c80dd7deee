package bound

import (
	"bytes"
	"encoding/json"
	"reflect"
)

// deepest is how deep values nest that are read; the decoder refuses deeper ones.
const deepest = 10_000

// JSON returns the error for a text that is too costly to be decoded into a value of a type.
func JSON(text []byte, into reflect.Type) error {
	w := newWalk(text)
	w.value(into, 0)
	return w.fault
}

// value reads a value of a type, nil for one that the decoder does not know.
func (w *walk) value(t reflect.Type, depth int) {
	w.space()
	if w.fault != nil || len(w.in) == 0 || depth > deepest {
		w.in = nil
		return
	}
	t = w.made(t)
	switch w.in[0] {
	case '{':
		entries := 0
		w.members('}', func() {
			entries++
			w.member(t, entries, depth)
		})
	case '[':
		element, n := reflect.Type(nil), 0
		if t != nil && t.Kind() == reflect.Slice {
			element = t.Elem()
		}
		w.members(']', func() {
			n++
			w.element(element, n)
			w.value(element, depth+1)
		})
	case '"':
		if text := w.string(); t == quantity {
			w.quantity(text)
		}
	default:
		end := bytes.IndexAny(w.in, ",]} \t\r\n")
		if end < 0 {
			end = len(w.in)
		}
		text := w.in[:max(end, 1)]
		if w.in = w.in[len(text):]; t == quantity {
			w.quantity(string(text))
		}
	}
}

// members reads what is between brackets.
func (w *walk) members(closing byte, member func()) {
	for w.in = w.in[1:]; ; {
		w.space()
		if len(w.in) == 0 {
			return
		}
		if w.in[0] == closing {
			w.in = w.in[1:]
			return
		}
		if w.in[0] == ',' {
			w.in = w.in[1:]
			continue
		}
		member()
	}
}

// member reads a key and its value, which is entry number entries of a map or field of a struct.
func (w *walk) member(t reflect.Type, entries, depth int) {
	if w.in[0] != '"' {
		w.in = nil
		return
	}
	name := w.string()
	w.space()
	if len(w.in) == 0 || w.in[0] != ':' {
		w.in = nil
		return
	}
	w.in = w.in[1:]
	var of reflect.Type
	switch {
	case t == nil:
	case t.Kind() == reflect.Map:
		of = t.Elem()
		w.take(t.Key())
		w.element(of, entries)
	case t.Kind() == reflect.Struct:
		of = byName.of(t)[name]
	}
	w.value(of, depth+1)
}

// string reads a string and returns its text.
func (w *walk) string() string {
	escaped := false
	for end := 1; end < len(w.in); end++ {
		switch w.in[end] {
		case '\\':
			end, escaped = end+1, true
		case '"':
			quoted := w.in[:end+1]
			w.in = w.in[end+1:]
			if !escaped {
				return string(quoted[1:end])
			}
			var text string
			_ = json.Unmarshal(quoted, &text) // the decoder refuses what is wrong
			return text
		}
	}
	w.in = nil
	return ""
}

func (w *walk) space() {
	for len(w.in) > 0 && (w.in[0] == ' ' || w.in[0] == '\n' || w.in[0] == '\t' || w.in[0] == '\r') {
		w.in = w.in[1:]
	}
}
