package store

import (
	"encoding/json"
	"reflect"
	"testing"

	sigsyaml "sigs.k8s.io/yaml"

	"github.com/evictd/evictd/internal/require"
)

func TestYAMLIsInBlockStyleAndInTheDocumentsOrder(t *testing.T) {
	got, err := toYAML([]byte(`{"kind":"Pod","metadata":{"name":"a","labels":{}},"spec":{"list":[{"x":1,"y":[true,null]},[],"s"],"empty":[]},"on":"off"}`))
	want := `kind: Pod
metadata:
  name: a
  labels: {}
spec:
  list:
  - x: 1
    "y":
    - true
    - null
  - []
  - s
  empty: []
"on": "off"
`
	if err != nil || string(got) != want {
		t.Errorf("got %v\n%s\nwant\n%s", err, got, want)
	}
}

func FuzzYAMLReadsBackAsTheJSONItWas(f *testing.F) {
	for _, seed := range []string{
		`{}`, `[]`, `"x"`, `null`, `1`, `-1.5e3`, `{"a":{"b":[1,"2",{"c":null}]}}`, `["yes","no","on","off","y","n","null","~","true","","1","0x1","1e3","- a","a: b","a #b","a:","#","&a","*a","!a","|",">","%","@","` + "`" + `"]`,
		`["\u0000\u001f\u007f\u0085\u2028\ufeff","é😀","a\nb","\t"," a","a ","2026-01-02T03:04:05Z","1:20","=","<<",".inf",".NaN","-","?",":","a: ","[","{"]`,
		`{"":1,"a b":2,"a:b":3,"1":4,"-":5,"? a":6}`, `[[[]]]`, `[{"a":[]},{"a":{}}]`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, document []byte) {
		var want any
		if json.Unmarshal(document, &want) != nil {
			return
		}
		canonical, err := json.Marshal(want) // keys once, valid UTF-8, as objects are marshalled
		if err != nil {
			return
		}
		text, err := toYAML(canonical)
		require.NoError(t, err)
		back, err := sigsyaml.YAMLToJSONStrict(text)
		if err != nil {
			t.Fatalf("%v in\n%s", err, text)
		}
		var got any
		require.NoError(t, json.Unmarshal(back, &got))
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s became\n%swhich is %s", canonical, text, back)
		}
	})
}
