package manifest_test

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/evictd/evictd/internal/manifest"
	"github.com/evictd/evictd/internal/require"
)

func TestFilesAreSplitIntoDocuments(t *testing.T) {
	for name, test := range map[string]struct {
		text string
		want []string
	}{
		"nothing":                           {"", nil},
		"comments and markers":              {"# none\n---\n\n--- # yet\n---\n...\n", nil},
		"no marker":                         {"a: 1\n", []string{"a: 1\n"}},
		"three hyphens begin one":           {"a: 1\n---\nb: 2\n", []string{"a: 1\n", "\nb: 2\n"}},
		"content on the line of a marker":   {"--- {a: 1}\n---\tb\n", []string{" {a: 1}\n", "\tb\n"}},
		"three dots end one":                {"a: 1\n...\n# no document\n---\nb: 2\n...\n", []string{"a: 1\n", "\nb: 2\n"}},
		"carriage returns":                  {"a: 1\r\n---\r\nb: 2\r\n", []string{"a: 1\r\n", "\r\nb: 2\r\n"}},
		"a directive and a byte-order mark": {"\ufeff%YAML 1.1\n---\na: 1\n", []string{"\na: 1\n"}},
		"longer lines are no markers":       {"a: |\n ---\n----\n...b\n", []string{"a: |\n ---\n----\n...b\n"}},
		"a stream of JSON values":           {"{\"a\": 1}\n{\"b\": 2} []", []string{`{"a": 1}`, `{"b": 2}`, `[]`}},
		"one JSON value with tabs":          {"{\n\t\"a\": 1\n}\n", []string{"{\n\t\"a\": 1\n}"}},
		"YAML that begins like JSON":        {"{\"a\": 1} # one\n---\n\"b\": 2\n", []string{"{\"a\": 1} # one\n", "\n\"b\": 2\n"}},
		"UTF-16, little-endian":             {"\xff\xfea\x00:\x00 \x001\x00\n\x00-\x00-\x00-\x00\n\x00b\x00:\x00 \x00\xe9\x00", []string{"a: 1\n", "\nb: é"}},
		"UTF-16, big-endian":                {"\xfe\xff\x00{\x00}\x00\n\x00[\x00]", []string{"{}", "[]"}},
		"kubectl cluster-info dump": {
			"{\"a\": 1}\n==== START logs for container c of pod n/p ====\n{} log\n==== END logs for container d ====\n==== END logs for container c of pod n/p ====\n{\"b\": 2}\n", []string{`{"a": 1}`, `{"b": 2}`},
		},
	} {
		var got []string
		documents, err := manifest.Split([]byte(test.text))
		require.NoError(t, err)
		for _, document := range documents {
			got = append(got, string(document))
		}
		if !slices.Equal(got, test.want) {
			t.Errorf("%s: got %q, want %q", name, got, test.want)
		}
	}
}

// A text of which a decoder reads the beginning only is refused with the position of the rest.
func TestNoPartOfAFileIsIgnored(t *testing.T) {
	for name, test := range map[string]struct {
		text, objects, fault string
	}{
		"JSON values, then text":              {"# dump\n---\n{\"kind\": \"A\"}\n{\"kind\": \"B\"}\ntext\n", "A B", `line 5: expected a JSON object or list, found "text"`},
		"a JSON value, then YAML":             {"{\"kind\": \"A\"}\nkind: B\n", "", "line 2: expected the end of the document or ---"},
		"a JSON value that is cut off":        {"{\"kind\": \"A\"}{\"kind\": \"B\"}\n{\"kind\":", "A B", `line 2: expected a JSON object or list, found "{\"kind\":"`},
		"flow mappings without a marker":      {"{kind: A}\n{kind: B}\n", "", "line 2: expected the end of the document or ---"},
		"a log without an end":                {"{\"kind\": \"A\"}\n==== START logs for container c of pod p ====\nlog\n", "", "line 2: expected the end"},
		"a mapping that is indented at first": {"  kind: A\nkind: B\n", "", "line 2: expected the end"},
		"half a character of UTF-16":          {"\xff\xfea\x00:", "", "the text is UTF-16: expected an even number of bytes"},
		"documents and JSON values":           {"kind: A\n---\n{\"kind\": \"B\"}{\"kind\": \"C\"}", "A B C", ""},
		"a JSON list":                         {`[{"kind": "A"}, {"kind": "BList", "apiVersion": "v1", "items": [{}, {"kind": "C"}]}]`, "A B C", ""},
		"a YAML list, and a fault in it":      {"- kind: A\n- 5\n", "A", "[1]: expected an object, found number"},
		"a list of a custom resource":         {"kind: AllowList\nitems: [a, b]\n---\nkind: DenyList\nmetadata: {name: d}\nitems: [{}]\n", "AllowList DenyList", ""},
		"lists without end":                   {strings.Repeat("[", 100) + strings.Repeat("]", 100), "", "[0]: [0]: [0]: [0]: [0]: [0]: [0]: [0]: lists in lists: expected at most 8"},
		"a JSON value and text on its line":   {`{"kind": "A"} text`, "", "line 1: expected the end of the document or ---"},
		"an unknown field of a list":          {"kind: PodList\nitems: [{}]\nitmes: []\n", "Pod", `unknown field "itmes"`},
	} {
		objects, err := manifest.Objects([]byte(test.text))
		var kinds []string
		for i := range objects {
			kinds = append(kinds, objects[i].Kind)
		}
		if got := strings.Join(kinds, " "); got != test.objects {
			t.Errorf("%s: got %q, want %q", name, got, test.objects)
		}
		if test.fault == "" && err != nil || test.fault != "" && (err == nil || !strings.HasPrefix(err.Error(), test.fault)) {
			t.Errorf("%s: got %v, want %q", name, err, test.fault)
		}
	}
}

// sample has a field of every kind that a decoder treats in its own way.
type sample struct {
	Name     string                       `json:"name"`
	Count    int32                        `json:"count"`
	Enabled  *bool                        `json:"enabled"`
	Wait     metav1.Duration              `json:"wait"`
	Amounts  map[string]resource.Quantity `json:"amounts"`
	Children []sample                     `json:"children"`
	Texts    map[string]string            `json:"texts"`
}

func TestAllFaultsOfADocumentAreReportedEachWithItsField(t *testing.T) {
	for name, test := range map[string]struct {
		text string
		want []string // parts of the faults, in order
		left string   // the name that is read all the same
	}{
		"nothing wrong": {"name: a\ncount: 1\nwait: 5s\namounts: {memory: 1Gi, cpu: 1}", nil, "a"},
		"unknown fields and types, all together": {`
name: a
nmae: b
count: many
enabled: 1
wait: soon
amounts: {memory.available: 1Gx, cpu: [1], pid: 5}
children:
- {name: c, cuont: 1, amounts: {memory: 1Gx, x: 2}}
- text
- {texts: {a: b, c: {}}, children: {}}`, []string{
			`amounts.cpu: `, `amounts[memory.available]: quantities must match`,
			`children[0].amounts.memory: quantities must match`,
			`children[1]: expected an object, found string`,
			`children[2].children: expected a list, found object`,
			`children[2].texts.c: expected a string, found object`,
			`count: expected a number (int32), found string`,
			`enabled: expected true or false, found number`,
			`wait: time: invalid duration`,
			`unknown field "children[0].cuont"`, `unknown field "nmae"`,
		}, "a"},
		"two bad quantities with the same text": {"amounts: {a: x, b: x}", []string{"amounts.a: quantities", "amounts.b: quantities"}, ""},
		"the case of a name counts":             {"Name: a", []string{`unknown field "Name"`}, ""},
		"keys given twice":                      {"name: a\nname: b\ncount: 1\ncount: x", []string{`line 2: key "name" already set`, `line 4: key "count" already set`, "count: expected a number"}, "b"},
		"keys given twice in JSON":              {`{"name": "a", "name": "b"}`, []string{`duplicate field "name"`}, "b"},
		"an object where a quantity should be":  {"amounts: {a: {b: {c: 1}}}", []string{"amounts.a: "}, ""},
		"no object":                             {"just text", []string{"expected an object, found string"}, ""},
		"a list":                                {"[1]", []string{"expected an object, found array"}, ""},
		"no YAML":                               {"a: [", []string{"yaml: line 1"}, ""},
		"a number that text could hold":         {"name: 1", []string{"name: expected a string, found number"}, ""},
		"an integer that is too large":          {"count: 3000000000", []string{"count: expected a number (int32), found number 3000000000"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			var got sample
			faults := manifest.Faults(manifest.Decode([]byte(test.text), &got))
			if got.Name != test.left {
				t.Errorf("read name %q, want %q", got.Name, test.left)
			}
			for i := range max(len(faults), len(test.want)) {
				if i >= len(faults) || i >= len(test.want) || !strings.HasPrefix(faults[i].Error(), test.want[i]) {
					t.Fatalf("got %d faults:\n%v\nwant %d:\n%s", len(faults), faults, len(test.want), strings.Join(test.want, "\n"))
				}
			}
		})
	}
}

func TestPodsAreReadFromDocumentsAndLists(t *testing.T) {
	for name, test := range map[string]struct {
		text   string
		pods   string // namespace/name=uid
		faults []string
	}{
		"nothing": {"# none\n---\n# yet\n", "", nil},
		"one pod": {pod("a"), "default/a=default/a", nil},
		"namespace and uid given": {
			"apiVersion: v1\nkind: Pod\nmetadata: {name: a, namespace: ns, uid: u-1}\n", "ns/a=u-1", nil,
		},
		"several documents, one of them bad": {
			pod("a") + "---\nkind: [\n---\n" + pod("b") + "...\n" + pod("c"),
			"default/a=default/a default/b=default/b default/c=default/c", []string{"document 2: yaml: line"},
		},
		"a JSON stream": {jsonPod("a") + "\n" + jsonPod("b"), "default/a=default/a default/b=default/b", nil},
		"a list, and what is wrong in it": {
			"apiVersion: v1\nkind: List\nmetadata: {resourceVersion: ''}\nitems:\n- " + jsonPod("a") + "\n- {apiVersion: v1, kind: Service}\n" +
				"- {apiVersion: v1, kind: Pod, metadata: {name: b}, spec: {nope: 1, priority: x}}\n- " + jsonPod("c") + "\nitmes: []\n",
			"default/a=default/a default/c=default/c",
			[]string{`unknown field "itmes"`, `items[1]: kind "Service"`, `items[2]: spec.priority: expected a number (int32)`, `items[2]: unknown field "spec.nope"`},
		},
		"another kind":             {"apiVersion: apps/v1\nkind: Deployment\n", "", []string{`kind "Deployment" of apiVersion "apps/v1" is not a v1 Pod`}},
		"another version":          {"apiVersion: v2\nkind: Pod\n", "", []string{"kind \"Pod\" of apiVersion \"v2\" is not a v1 Pod"}},
		"no object":                {"just text\n", "", []string{"expected an object, found string"}},
		"no name":                  {"apiVersion: v1\nkind: Pod\n", "", []string{"metadata.name: required"}},
		"a name with a line's end": {pod(`"a\nMAINPID=1"`), "", []string{`metadata.name: "a\nMAINPID=1" must print`}},
		"a name for a terminal":    {pod(`"a\e[2J"`), "", []string{`metadata.name: "a\x1b[2J" must print`}},
		"a name without end":       {pod(strings.Repeat("a", 254)), "", []string{`metadata.name: 254 bytes are more than 253`}},
		"a name with a path":       {pod("a/b"), "", []string{`metadata.name: "a/b" may not contain '/'`}},
		"faults of one pod together": {
			withSpec("containers: [{name: c, imagee: x, resources: {limits: {cpu: x, memory: x}}}]\n  priority: high"), "",
			[]string{"spec.containers[0].resources.limits.cpu: quant", "spec.containers[0].resources.limits.memory: quant", "spec.priority: expected a number", `unknown field "spec.containers[0].imagee"`},
		},
		"faults of several documents": {
			withSpec("x: 1") + "---\n" + withSpec("x: 1\n  z: 1"), "",
			[]string{`document 1: unknown field "spec.x"`, `document 2: unknown field "spec.x"`, `document 2: unknown field "spec.z"`},
		},
		"requests are left as they are": {withSpec("containers: [{name: c, resources: {limits: {memory: 1Gi}}}]"), "default/a=default/a", nil},
	} {
		pods, err := manifest.Pods([]byte(test.text))
		var got []string
		for _, p := range pods {
			got = append(got, p.Namespace+"/"+p.Name+"="+string(p.UID))
			for _, c := range p.Spec.Containers {
				if c.Resources.Requests != nil {
					t.Errorf("%s: requests %v", name, c.Resources.Requests)
				}
			}
		}
		if text := strings.Join(got, " "); text != test.pods {
			t.Errorf("%s: got pods %q, want %q", name, text, test.pods)
		}
		faults := manifest.Faults(err)
		for i := range max(len(faults), len(test.faults)) {
			if i >= len(faults) || i >= len(test.faults) || !strings.HasPrefix(faults[i].Error(), test.faults[i]) {
				t.Errorf("%s: got faults %v, want %q", name, faults, test.faults)
				break
			}
		}
	}
}

func FuzzPods(f *testing.F) {
	f.Add([]byte(pod("a") + "---\n" + pod("b") + "...\n# end\n"))
	f.Add([]byte(jsonPod("a") + jsonPod("b")))
	f.Add([]byte("apiVersion: v1\nkind: List\nitems:\n- " + jsonPod("a") + "\n- {}\n"))
	f.Add([]byte(withSpec("containers: [{name: c, resources: {limits: {memory: 10Gx, cpu: {}}}}]\n  priority: [1]")))
	f.Add([]byte("%YAML 1.1\n--- &a [*a]\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		rest := data
		documents, _ := manifest.Split(data)
		if bytes.HasPrefix(data, []byte("\xff\xfe")) || bytes.HasPrefix(data, []byte("\xfe\xff")) {
			documents = nil // they are not in the file as they are
		}
		for _, document := range documents {
			at := bytes.Index(rest, document)
			if at < 0 {
				t.Fatalf("document %q is not in the file, or out of order", document)
			}
			rest = rest[at+len(document):]
		}
		pods, err := manifest.Pods(data)
		again, twice := manifest.Pods(data)
		if len(again) != len(pods) || len(manifest.Faults(twice)) != len(manifest.Faults(err)) {
			t.Fatalf("read %d pods, then %d; %v, then %v", len(pods), len(again), err, twice)
		}
		for _, p := range pods {
			if p.Name == "" || p.Namespace == "" || p.UID == "" {
				t.Fatalf("%+v", p)
			}
			text, err := yaml.Marshal(p)
			require.NoError(t, err)
			if back, err := manifest.Pods(text); len(back) != 1 || err != nil {
				t.Fatalf("written back: %v\n%s", err, text)
			}
		}
	})
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte("name: a\ncount: x\namounts: {a: 1Gx}\nchildren: [{name: [1]}, 3]\nmore: 1"))
	f.Add([]byte(`{"wait": null, "children": [null, {"enabled": 1}], "texts": {"a.b": 1}}`))
	f.Fuzz(func(t *testing.T, document []byte) {
		var first, second sample
		err, again := manifest.Decode(document, &first), manifest.Decode(document, &second)
		if (err == nil) != (again == nil) || err != nil && err.Error() != again.Error() {
			t.Fatalf("%v, then %v", err, again)
		}
		for _, fault := range manifest.Faults(err) {
			if fault.Error() == "" || strings.Contains(fault.Error(), "\n") {
				t.Errorf("fault %q", fault)
			}
		}
	})
}

func pod(name string) string {
	return "apiVersion: v1\nkind: Pod\nmetadata: {name: " + name + "}\n"
}

func withSpec(spec string) string { return pod("a") + "spec:\n  " + spec + "\n" }

func jsonPod(name string) string {
	return `{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "` + name + `"}}`
}
