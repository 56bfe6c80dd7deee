package store

import (
	"encoding/json"
	"reflect"
	"testing"

	sigsyaml "sigs.k8s.io/yaml"

	"github.com/evictd/evictd/internal/require"
)

func TestYAMLIsInBlockStyleAndInTheDocumentsOrder(t *testing.T) {
	got := toYAML([]byte(`{"kind":"Pod","metadata":{"name":"a","labels":{}},"spec":{"list":[{"x":1,"y":[true,null]},[],"s"],"empty":[]},"on":"off"}`))
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
	if string(got) != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
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
		text := toYAML(canonical)
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

func BenchmarkYAML(b *testing.B) {
	document, err := json.Marshal(map[string]any{"metadata": map[string]any{"name": "pod-000001", "labels": map[string]any{"group": "group-1"}, "uid": "0b0d5f0c-6c3a-4f0e-a1ad-7f30e1c1a7a1"},
		"spec": map[string]any{"nodeName": "node-00001", "containers": []any{map[string]any{"name": "main", "image": "none", "resources": map[string]any{"requests": map[string]any{"cpu": "100m", "memory": "500Mi"}}}}}})
	require.NoError(b, err)
	b.ReportAllocs()
	for b.Loop() {
		toYAML(document)
	}
}
