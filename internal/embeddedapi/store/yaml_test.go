package store

import (
	"bytes"
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
		if read := fromYAML(text); read != nil && !bytes.Equal(read, canonical) {
			t.Errorf("%s became\n%swhich is read as %s", canonical, text, read)
		}
	})
}

func FuzzManifestsAreReadAsByAYAMLParser(f *testing.F) {
	for _, seed := range []string{"a: b\n", "a:\n- b\n- - c\n  - d: 1\n    e:\n    - 2\nf: {}\n", "a:\n  b\n", "a: b\n  c\n", "a: b # c\n", "a: 010\n", "a: 1e3\n", "a: 'b'\n",
		"\"a\": \"\\x7f\\n\"\n", "a: \"\\012\"\n", "- a: 1\n- b\n", "a: b\n---\nc: d\n", "a: yes\n", "a: -1\na: 2\n", "a:\n- b\n  - c\n", "a: b: c\n", "a: >\n  b\n", "a: b\n\nc: d\n"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		read := fromYAML(text)
		if read == nil {
			return
		}
		var got, want any
		require.NoError(t, json.Unmarshal(read, &got))
		document, err := sigsyaml.YAMLToJSON(text)
		if err != nil {
			t.Fatalf("%v in\n%s\nwhich is read as %s", err, text, read)
		}
		require.NoError(t, json.Unmarshal(document, &want))
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s\nis read as %s, by a YAML parser as %s", text, read, document)
		}
	})
}

func TestManifestsThatTheStoreWritesAreReadWithoutAYAMLParser(t *testing.T) {
	document := `{"kind":"Pod","metadata":{"name":"a","labels":{},"creationTimestamp":"2026-01-02T03:04:05Z"},"spec":{"list":[{"x":-1,"y":[true,null]},[],[["z"]],"s"],"empty":[]},"on":"off","é":"a\nb"}`
	text, err := toYAML([]byte(document))
	require.NoError(t, err)
	if got := string(fromYAML(text)); got != document {
		t.Errorf("read %s, expected %s, from\n%s", got, document, text)
	}
}
