// Package shrink makes the input of a failing comparison smaller. Tests use it.
package shrink

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
)

// JSON deletes any part of a JSON text, outer parts before inner ones, as long as the
// smaller text is still wrong.
func JSON(text []byte, wrong func([]byte) bool) []byte {
	for before := 0; before != len(text); {
		before = len(text)
		for n := 0; ; {
			less, deleted := without(text, n)
			if !deleted {
				break
			}
			if wrong(less) {
				text = less
			} else {
				n++
			}
		}
	}
	return text
}

// without deletes the nth element of all lists and maps, counted from outside, and from the last
// element of a list; there may be less.
func without(text []byte, n int) (less []byte, deleted bool) {
	less = Edit(text, func(v any) any {
		switch v := v.(type) {
		case map[string]any:
			keys := slices.Sorted(maps.Keys(v))
			if n >= 0 && n < len(keys) {
				delete(v, keys[n])
				deleted = true
			}
			n -= len(keys)
		case []any:
			at := len(v) - 1 - n
			n -= len(v)
			if at >= 0 && n < 0 && !deleted {
				deleted = true
				return slices.Delete(v, at, at+1)
			}
		}
		return v
	})
	return less, deleted
}

// Edit changes each list and map of a JSON text, outer ones before inner ones.
func Edit(text []byte, change func(any) any) []byte {
	var tree any
	in := json.NewDecoder(bytes.NewReader(text))
	in.UseNumber()
	if err := in.Decode(&tree); err != nil {
		panic(err)
	}
	var walk func(any) any
	walk = func(v any) any {
		v = change(v)
		switch v := v.(type) {
		case map[string]any:
			for _, key := range slices.Sorted(maps.Keys(v)) {
				v[key] = walk(v[key])
			}
		case []any:
			for i := range v {
				v[i] = walk(v[i])
			}
		}
		return v
	}
	edited, err := json.Marshal(walk(tree))
	if err != nil {
		panic(err)
	}
	return edited
}
