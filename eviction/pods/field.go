package pods

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// faultyField finds the innermost field without which the document would not
// have failed with this error. The decoder itself names no field for a bad
// quantity, and no path for an unknown field.
func faultyField(doc []byte, failure error) string {
	var root any
	if yaml.Unmarshal(doc, &root) != nil {
		return "" // the YAML is at fault, its error names the line
	}
	fails := func() bool {
		text, err := json.Marshal(root)
		if err == nil {
			err = yaml.UnmarshalStrict(text, &v1.Pod{})
		}
		return err != nil && err.Error() == failure.Error()
	}
	if !fails() {
		return "" // the round trip through JSON changed the fault
	}
	return strings.TrimPrefix(narrow(root, fails), ".")
}

// narrow returns the path below node of the innermost value whose absence makes
// fails untrue, or "". It leaves the node as it was.
func narrow(node any, fails func() bool) string {
	guilty := func(some []child) bool {
		for _, c := range some {
			c.hide()
		}
		untrue := !fails()
		for _, c := range some {
			c.show()
		}
		return untrue
	}
	suspects := children(node)
	if !guilty(suspects) {
		return ""
	}
	for len(suspects) > 1 {
		half := len(suspects) / 2
		switch {
		case guilty(suspects[:half]):
			suspects = suspects[:half]
		case guilty(suspects[half:]):
			suspects = suspects[half:]
		default:
			return "" // the same fault in both
		}
	}
	return suspects[0].label + narrow(suspects[0].value, fails)
}

// child is a value in a JSON object or array, which can be taken out of it.
type child struct {
	label      string
	value      any
	hide, show func()
}

func children(node any) (all []child) {
	switch node := node.(type) {
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(node)) {
			value := node[key]
			all = append(all, child{"." + key, value, func() { delete(node, key) }, func() { node[key] = value }})
		}
	case []any:
		for i, value := range node {
			label := "[" + strconv.Itoa(i) + "]"
			all = append(all, child{label, value, func() { node[i] = nil }, func() { node[i] = value }})
		}
	}
	return all
}
