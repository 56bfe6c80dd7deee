package kubelet_test

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"

	"github.com/evictd/evictd/eviction/simulate"
)

// shrink deletes pods, then any part of a scenario, as long as something is wrong with it.
func shrink(f *simulate.File, wrong func(*simulate.File) bool) *simulate.File {
	try := func(text []byte) bool {
		f := &simulate.File{}
		return json.Unmarshal(text, f) == nil && wrong(f)
	}
	text := encode(f)
	for n := range mostPods {
		if less := withoutPod(text, podName(n)); try(less) {
			text = less
		}
	}
	for before := 0; before != len(text); {
		before = len(text)
		for n := 0; ; {
			less, deleted := without(text, n)
			if !deleted {
				break
			}
			if try(less) {
				text = less
			} else {
				n++
			}
		}
	}
	f = &simulate.File{}
	if err := json.Unmarshal(text, f); err != nil {
		panic(err)
	}
	return f
}

// withoutPod deletes a pod and all that names it.
func withoutPod(text []byte, name string) []byte {
	return edit(text, func(v any) any {
		switch v := v.(type) {
		case map[string]any:
			delete(v, name)
		case []any:
			return slices.DeleteFunc(v, func(v any) bool {
				pod, _ := v.(map[string]any)
				meta, _ := pod["metadata"].(map[string]any)
				return v == name || meta["name"] != nil && "default/"+meta["name"].(string) == name
			})
		}
		return v
	})
}

// without deletes the nth element of all lists and maps, counted from outside, and from the last
// element of a list; there may be less.
func without(text []byte, n int) (less []byte, deleted bool) {
	less = edit(text, func(v any) any {
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

// edit changes each list and map of a JSON text, outer ones before inner ones.
func edit(text []byte, change func(any) any) []byte {
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
	return encode(walk(tree))
}

func encode(v any) []byte {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return text
}
