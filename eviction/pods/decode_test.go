package pods

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

func TestManifestFilesAreDecoded(t *testing.T) {
	for name, c := range map[string]struct {
		text   string
		pods   string   // namespace/name=uid@document
		faults []string // document: part of the text, in order
	}{
		"nothing":  {"", "", nil},
		"comments": {"# none\n---\n# yet\n---\n", "", nil},
		"one pod":  {pod("a"), "default/a=default/a@1", nil},
		"namespace and uid given": {
			"apiVersion: v1\nkind: Pod\nmetadata: {name: a, namespace: ns, uid: u-1}\n", "ns/a=u-1@1", nil,
		},
		"several documents, one of them bad": {
			"# first\n---\n" + pod("a") + "---\nkind: [\n--- # third\r\n" + pod("b") + "...\n" + pod("c"),
			"default/a=default/a@1 default/b=default/b@3 default/c=default/c@4", []string{"2: yaml: line"},
		},
		"a directive, a byte order mark": {"\ufeff%YAML 1.1\n---\n" + pod("a"), "default/a=default/a@1", nil},
		"markers inside text":            {strings.Replace(pod("a"), "{name: a}", "\n  name: a\n  annotations:\n    x: |\n      ---\n      ...", 1), "default/a=default/a@1", nil},
		"a JSON stream":                  {jsonPod("a") + "\n" + jsonPod("b"), "default/a=default/a@1 default/b=default/b@2", nil},
		"JSON with tabs":                 {strings.ReplaceAll(jsonPod("a"), `,`, ",\n\t"), "default/a=default/a@1", nil},
		"a list": {
			"apiVersion: v1\nkind: List\nmetadata: {resourceVersion: ''}\nitems:\n- " + jsonPod("a") + "\n- {apiVersion: v1, kind: Service}\n- {apiVersion: v1, kind: Pod, metadata: {name: b}, spec: {nope: 1}}\n- " + jsonPod("c") + "\n",
			"default/a=default/a@1 default/c=default/c@1", []string{`1: items[1]: kind "Service"`, `1: items[2]: spec.nope: json: unknown field "nope"`},
		},
		"another kind":       {"apiVersion: apps/v1\nkind: Deployment\n", "", []string{`1: kind "Deployment" of apiVersion "apps/v1" is not a v1 Pod`}},
		"another version":    {"apiVersion: v2\nkind: Pod\n", "", []string{"is not a v1 Pod"}},
		"no object":          {"just text\n", "", []string{"1: json: cannot unmarshal string"}},
		"no name":            {"apiVersion: v1\nkind: Pod\n", "", []string{"metadata.name: required"}},
		"a name with a path": {pod("a/b"), "", []string{`metadata.name: "a/b" may not contain '/'`}},
		"an unknown field":   {withSpec("containers: [{name: c, imagee: x}]"), "", []string{`1: spec.containers[0].imagee: json: unknown field "imagee"`}},
		"a bad quantity":     {withSpec("containers: [{name: c, resources: {limits: {cpu: 1, memory: 10Gx}}}]"), "", []string{"1: spec.containers[0].resources.limits.memory: quantities must match"}},
		"a wrong type":       {withSpec("priority: high"), "", []string{"1: spec.priority: json: cannot unmarshal string"}},
		"two bad quantities": {withSpec("containers: [{name: c, resources: {limits: {cpu: x, memory: y}}}]"), "", []string{"1: spec.containers[0].resources.limits: quantities must match"}},
		"a field twice":      {withSpec("priority: 1\n  priority: 2"), "", []string{`line 6: key "priority" already set`}},
	} {
		pods, faults := decode("f.yaml", []byte(c.text))
		var got []string
		for _, p := range pods {
			got = append(got, fullName(p.pod)+"="+string(p.pod.UID)+"@"+string(rune('0'+p.document)))
		}
		if text := strings.Join(got, " "); text != c.pods {
			t.Errorf("%s: got pods %q, want %q", name, text, c.pods)
		}
		if len(faults) != len(c.faults) {
			t.Errorf("%s: got faults %v, want %q", name, faults, c.faults)
			continue
		}
		for i, f := range faults {
			if text := string(rune('0'+f.document)) + ": " + f.err.Error(); !strings.Contains(text, c.faults[i]) {
				t.Errorf("%s: got fault %q, want %q", name, text, c.faults[i])
			}
		}
	}
}

func TestRequestsDefaultToLimitsAndNothingElseIsDefaulted(t *testing.T) {
	pods, faults := decode("f.yaml", []byte(withSpec(`initContainers: [{name: i, resources: {limits: {memory: 1Gi}}}]
  containers:
  - {name: c, resources: {limits: {memory: 2Gi, cpu: 1}, requests: {memory: 1Gi, cpu: 0}}}
  - {name: d}`)))
	if len(pods) != 1 || len(faults) > 0 {
		t.Fatalf("%v, %v", pods, faults)
	}
	spec := pods[0].pod.Spec
	for _, c := range []struct {
		container v1.Container
		resource  v1.ResourceName
		want      string
	}{
		{spec.InitContainers[0], v1.ResourceMemory, "1Gi"},
		{spec.Containers[0], v1.ResourceMemory, "1Gi"},
		{spec.Containers[0], v1.ResourceCPU, "0"},
	} {
		if got := c.container.Resources.Requests[c.resource]; got.String() != c.want {
			t.Errorf("container %s requests %s of %s, want %s", c.container.Name, &got, c.resource, c.want)
		}
	}
	if spec.Containers[1].Resources.Requests != nil || spec.TerminationGracePeriodSeconds != nil || spec.Priority != nil {
		t.Errorf("defaulted too much: %+v", spec)
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(pod("a") + "---\n" + pod("b") + "...\n# end\n"))
	f.Add([]byte(jsonPod("a") + jsonPod("b")))
	f.Add([]byte("apiVersion: v1\nkind: List\nitems:\n- " + jsonPod("a") + "\n- {}\n"))
	f.Add([]byte(withSpec("containers: [{name: c, resources: {limits: {memory: 10Gx}}}]")))
	f.Add([]byte("%YAML 1.1\n--- &a [*a]\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		docs := documents(data)
		for rest := data; len(docs) > 0; docs = docs[1:] {
			at := bytes.Index(rest, docs[0])
			if at < 0 {
				t.Fatalf("document %q is not in the file, or out of order", docs[0])
			}
			rest = rest[at+len(docs[0]):]
		}
		pods, faults := decode("f", data)
		if again, _ := decode("f", data); len(again) != len(pods) {
			t.Fatalf("decoded %d pods, and then %d", len(pods), len(again))
		}
		for _, p := range pods {
			if p.pod.Name == "" || p.pod.Namespace == "" || p.pod.UID == "" || p.document == 0 {
				t.Fatalf("%+v", p)
			}
			text, err := yaml.Marshal(p.pod)
			if err != nil {
				t.Fatal(err)
			}
			if back, faults := decode("f", text); len(back) != 1 {
				t.Fatalf("written back: %v\n%s", faults, text)
			}
		}
		if slices.ContainsFunc(faults, func(f fault) bool { return f.document == 0 || f.err == nil }) {
			t.Fatalf("%v", faults)
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
