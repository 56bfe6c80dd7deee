package simulate_test

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evictd/evictd/internal/manifest"
	"github.com/evictd/evictd/internal/require"
	"github.com/evictd/evictd/scheduleradapter/simulate"
)

// write writes files into a new directory.
func write(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
	}
	return dir
}

// withoutDir replaces the directory in texts.
func withoutDir(dir string, texts []string) []string {
	for i := range texts {
		texts[i] = strings.TrimPrefix(texts[i], dir+string(filepath.Separator))
	}
	return texts
}

func have(t *testing.T, what string, got, want []string) {
	t.Helper()
	if !slices.EqualFunc(got, want, strings.HasPrefix) {
		t.Errorf("%s:\n%s\nwant\n%s", what, strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// names lists the objects of all kinds as Kind:name, in order.
func names(objects *simulate.Objects) string {
	var all []string
	value := reflect.ValueOf(*objects)
	for about, field := range value.Fields() {
		if !about.IsExported() {
			continue
		}
		for j := range field.Len() {
			object := field.Index(j).Interface().(metav1.Object)
			all = append(all, fmt.Sprintf("%s:%s", reflect.TypeOf(object).Elem().Name(), object.GetName()))
		}
	}
	return strings.Join(all, " ")
}

func TestAClusterIsReadFromFilesOfEveryKind(t *testing.T) {
	var every strings.Builder
	for _, about := range []string{
		"v1 Node", "v1 Pod", "v1 Namespace", "v1 Service", "v1 ReplicationController", "apps/v1 ReplicaSet", "apps/v1 StatefulSet",
		"scheduling.k8s.io/v1 PriorityClass", "node.k8s.io/v1 RuntimeClass", "policy/v1 PodDisruptionBudget", "v1 PersistentVolume",
		"v1 PersistentVolumeClaim", "storage.k8s.io/v1 StorageClass", "storage.k8s.io/v1 CSINode", "storage.k8s.io/v1 CSIDriver",
		"storage.k8s.io/v1 CSIStorageCapacity", "storage.k8s.io/v1 VolumeAttachment", "apps/v1 Deployment", "policy/v1beta1 PodDisruptionBudget",
	} {
		version, kind, _ := strings.Cut(about, " ")
		fmt.Fprintf(&every, "---\napiVersion: %s\nkind: %s\nmetadata: {name: a}\n", version, kind)
	}
	dir := write(t, map[string]string{"every.yaml": every.String()})
	objects, warnings, err := simulate.Load(filepath.Join(dir, "every.yaml"))
	require.NoError(t, err)
	want := "Node:a Pod:a Namespace:a Namespace:default Service:a ReplicationController:a ReplicaSet:a StatefulSet:a PriorityClass:a RuntimeClass:a " +
		"PodDisruptionBudget:a PersistentVolume:a PersistentVolumeClaim:a StorageClass:a CSINode:a CSIDriver:a CSIStorageCapacity:a VolumeAttachment:a"
	if got := names(objects); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	have(t, "warnings", withoutDir(dir, warnings), []string{
		"every.yaml: document 18: kind Deployment of apps/v1 is left out",
		"every.yaml: document 19: kind PodDisruptionBudget of policy/v1beta1 is left out",
	})
}

func TestDirectoriesAreReadInOrderWithWhatIsBelowThem(t *testing.T) {
	pod := func(name string) string {
		return `{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "` + name + `"}}`
	}
	dir := write(t, map[string]string{
		"b.yaml": pod("b"), "a.json": pod("a1") + pod("a2"), "c/d.yml": pod("d"), "notes.txt": "none", ".hidden.yaml": "none", ".git/x.yaml": "none", "e.text": pod("e"),
	})
	link := filepath.Join(t.TempDir(), "link")
	require.NoError(t, os.Symlink(dir, link))
	for _, path := range []string{dir, link} {
		objects, warnings, err := simulate.Load(path, filepath.Join(dir, "e.text"))
		if err != nil || len(warnings) > 0 {
			t.Fatal(warnings, err)
		}
		if got, want := names(objects), "Pod:a1 Pod:a2 Pod:b Pod:d Pod:e Namespace:default"; got != want {
			t.Errorf("%s: got %s, want %s", path, got, want)
		}
	}
}

func TestListsHoldObjects(t *testing.T) {
	dir := write(t, map[string]string{"lists.yaml": `
apiVersion: v1
kind: List
items:
- {apiVersion: v1, kind: Pod, metadata: {name: a}}
- {apiVersion: v1, kind: ConfigMap, metadata: {name: b}}
- {apiVersion: v1, kind: List, items: [{apiVersion: v1, kind: Node, metadata: {name: c}}]}
---
apiVersion: v1
kind: PodList
metadata: {resourceVersion: "5"}
items: [{metadata: {name: d}}, {apiVersion: v1, kind: Pod, metadata: {name: e}}]
---
apiVersion: example.org/v1
kind: AllowList
spec: {}
`})
	objects, warnings, err := simulate.Load(dir)
	require.NoError(t, err)
	if got, want := names(objects), "Node:c Pod:a Pod:d Pod:e Namespace:default"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	have(t, "warnings", withoutDir(dir, warnings), []string{"lists.yaml: document 1: items[1]: kind ConfigMap of v1 is left out", "lists.yaml: document 3: kind AllowList of example.org/v1 is left out"})
}

func TestObjectsAreAdmittedWhateverTheirOrder(t *testing.T) {
	dir := write(t, map[string]string{"a.yaml": `
apiVersion: v1
kind: Pod
metadata: {name: p, namespace: ns}
spec: {priorityClassName: high}
---
apiVersion: v1
kind: Node
metadata: {name: node}
spec: {unschedulable: true}
`, "b.yaml": `
apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata: {name: high}
value: 7
`})
	objects, _, err := simulate.Load(dir)
	require.NoError(t, err)
	if pod := objects.Pods[0]; *pod.Spec.Priority != 7 || pod.UID != "ns/p" {
		t.Errorf("pod %+v", pod)
	}
	if node := objects.Nodes[0]; len(node.Spec.Taints) != 1 {
		t.Errorf("node %+v", node)
	}
	if namespace := objects.Namespaces[0]; namespace.Labels["kubernetes.io/metadata.name"] != "ns" {
		t.Errorf("namespace %+v", namespace)
	}
}

func TestAllFaultsAreReportedWithFileDocumentObjectAndField(t *testing.T) {
	dir := write(t, map[string]string{
		"a.yaml": `
apiVersion: v1
kind: Pod
metadata: {name: p}
spec: {priorityClassName: none, nodename: n, priority: high}
---
kind: Pod
---
just text
---
apiVersion: v1
kind: List
items:
- {apiVersion: v1, kind: Pod, metadata: {name: p}}
- {apiVersion: v1, kind: Node, metadata: {}}
- 5
`,
		"b.yaml": `
apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata: {name: a}
globalDefault: true
value: 2000000000
---
apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata: {name: b}
globalDefault: true
`,
		"c.yaml": "a: [",
	})
	_, _, err := simulate.Load(dir, filepath.Join(dir, "none.yaml"))
	var got []string
	for _, fault := range manifest.Faults(err) {
		got = append(got, fault.Error())
	}
	have(t, "faults", withoutDir(dir, got), []string{
		"a.yaml: document 1: Pod default/p: spec.priority: expected a number (int32), found string",
		`a.yaml: document 1: Pod default/p: unknown field "spec.nodename"`,
		`a.yaml: document 2: apiVersion "", kind "Pod": both are required`,
		"a.yaml: document 3: expected an object, found string",
		"a.yaml: document 4: items[0]: Pod default/p: is in " + dir + "/a.yaml: document 1 already",
		"a.yaml: document 4: items[1]: Node : metadata.name: Required value",
		"a.yaml: document 4: items[2]: expected an object, found number",
		"c.yaml: yaml: ",
		"lstat " + dir + "/none.yaml: no such file or directory",
		"b.yaml: document 1: PriorityClass a: value: Forbidden: maximum allowed value",
		"b.yaml: document 2: PriorityClass b: globalDefault: Forbidden: PriorityClass a is already marked as default",
		"a.yaml: document 1: Pod default/p: spec.priorityClassName: Invalid value",
	})
}

func FuzzLoad(f *testing.F) {
	f.Add([]byte("apiVersion: v1\nkind: PodList\nitems: [{metadata: {name: a}, spec: {containers: [{resources: {limits: {cpu: 1}}}]}}]\n"))
	f.Add([]byte(`{"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}, "status": {"capacity": {"cpu": 1}}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		file := filepath.Join(t.TempDir(), "f.yaml")
		require.NoError(t, os.WriteFile(file, data, 0o644))
		objects, _, err := simulate.Load(file)
		if err != nil {
			return
		}
		for _, pod := range objects.Pods {
			if pod.Name == "" || pod.Namespace == "" || pod.UID == "" || pod.Spec.Priority == nil {
				t.Fatalf("%+v", pod)
			}
		}
	})
}
