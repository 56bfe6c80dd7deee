package jsonsize

import "testing"

func TestCount(t *testing.T) {
	for text, want := range map[string][2]int{
		`{"a":[{},{}]}`: {4, 1}, `[1,{"a":2,"b":3},"4,[,"]`: {2, 3}, `{"{[\"{":"[{\\"}`: {1, 1}, ``: {0, 1}, `"[`: {0, 1}, `"\`: {0, 1},
	} {
		if objects, elements := Count([]byte(text)); objects != want[0] || elements != want[1] {
			t.Errorf("%s: %d objects, %d elements, expected %v", text, objects, elements, want)
		}
	}
}

func TestValues(t *testing.T) {
	for text, want := range map[string]int{`{}`: 1, `{"a":[1,2,"3,{"],"b\",":{}}`: 6, ``: 0, `"`: 0} {
		if n := Values([]byte(text)); n != want {
			t.Errorf("%s: %d values, expected %d", text, n, want)
		}
	}
}
