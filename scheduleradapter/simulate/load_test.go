package simulate_test

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evictd/evictd/internal/manifest"
	"github.com/evictd/evictd/internal/require"
	"github.com/evictd/evictd/scheduleradapter"
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
	objects, warnings, err := simulate.Load(os.ReadFile, filepath.Join(dir, "every.yaml"))
	require.NoError(t, err)
	want := "Node:a Pod:a Namespace:a Namespace:default Service:a ReplicationController:a ReplicaSet:a StatefulSet:a PriorityClass:a RuntimeClass:a " +
		"PodDisruptionBudget:a PersistentVolume:a PersistentVolumeClaim:a StorageClass:a CSINode:a CSIDriver:a CSIStorageCapacity:a VolumeAttachment:a Deployment:a"
	if got := names(objects); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	have(t, "warnings", withoutDir(dir, warnings), []string{
		"objects of kinds that are not used: 1 Deployment of apps/v1 without containers, 1 PodDisruptionBudget of policy/v1beta1",
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
		objects, warnings, err := simulate.Load(os.ReadFile, path, filepath.Join(dir, "e.text"))
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
	objects, warnings, err := simulate.Load(os.ReadFile, dir)
	require.NoError(t, err)
	if got, want := names(objects), "Node:c Pod:a Pod:d Pod:e Namespace:default"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	have(t, "warnings", withoutDir(dir, warnings), []string{"objects of kinds that are not used: 1 AllowList of example.org/v1, 1 ConfigMap of v1"})
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
	objects, _, err := simulate.Load(os.ReadFile, dir)
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
	_, _, err := simulate.Load(os.ReadFile, dir, filepath.Join(dir, "none.yaml"))
	var got []string
	for _, fault := range manifest.Faults(err) {
		got = append(got, fault.Error())
	}
	have(t, "faults", withoutDir(dir, got), []string{
		"a.yaml: document 3: expected an object, found string",
		"a.yaml: document 4: items[2]: expected an object, found number",
		"a.yaml: document 1: Pod default/p: spec.priority: expected a number (int32), found string",
		`a.yaml: document 1: Pod default/p: unknown field "spec.nodename"`,
		`a.yaml: document 2: apiVersion "", kind "Pod": both are required`,
		"a.yaml: document 4: items[0]: Pod default/p: is in " + dir + "/a.yaml: document 1 already",
		"a.yaml: document 4: items[1]: Node : metadata.name: Required value",
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
		objects, _, err := simulate.Load(os.ReadFile, file)
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

// dump is what `kubectl get -A -o yaml` has of a cluster of another version.
const dump = `
apiVersion: v1
kind: List
items:
- {apiVersion: v1, kind: Node, metadata: {name: n1, uid: u-1}, status: {allocatable: {cpu: "4", memory: 8Gi, pods: "10"}, flavour: old}}
- apiVersion: v1
  kind: Pod
  metadata: {name: p, namespace: a, uid: u-2, resourceVersion: "7"}
  spec:
    priorityClassName: absent
    priority: 7
    preemptionPolicy: Never
    runtimeClassName: absent
    overhead: {memory: 1Gi}
    containers: [{name: c, colour: red}, {name: d, colour: red}]
- {apiVersion: v1, kind: Pod, metadata: {name: q, namespace: a, uid: u-3}, spec: {priorityClassName: changed, priority: 1, runtimeClassName: changed, containers: [{name: c}]}}
- {apiVersion: v1, kind: Pod, metadata: {name: q, namespace: a, uid: u-3}, spec: {priorityClassName: changed, priority: 1, containers: [{name: c}]}}
- {apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: c, namespace: a, uid: u-4}}
- {apiVersion: storage.k8s.io/v1, kind: StorageClass, metadata: {name: s, uid: u-5, annotations: {storageclass.kubernetes.io/is-default-class: "true"}}}
- {apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {name: changed, uid: u-6}, value: 2, globalDefault: true}
- {apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {name: second, uid: u-7}, value: 1, globalDefault: true}
- {apiVersion: node.k8s.io/v1, kind: RuntimeClass, metadata: {name: changed, uid: u-8}, handler: h, overhead: {podFixed: {memory: 2Gi}}}
- {apiVersion: scheduling.k8s.io/v1beta1, kind: PodGroup, metadata: {name: g, namespace: a, uid: u-9}, spec: {priorityClassName: changed, priority: 1, schedulingPolicy: {basic: {}}}}
- {apiVersion: resource.k8s.io/v1beta1, kind: ResourceClaim, metadata: {name: one, namespace: a, uid: u-10}, spec: {devices: {requests: [{name: r, deviceClassName: gpu}]}}}
- {apiVersion: resource.k8s.io/v1beta1, kind: ResourceSlice, metadata: {name: x, uid: u-11}, spec: {driver: d, pool: {name: p, generation: 1, resourceSliceCount: 1}, devices: [{name: dev, basic: {capacity: {memory: {value: 1Gi}}}}]}}
- {apiVersion: resource.k8s.io/v1beta2, kind: ResourceClaimTemplate, metadata: {name: t, namespace: a, uid: u-12}, spec: {spec: {devices: {requests: [{name: r, exactly: {deviceClassName: gpu}}]}}}}
- {apiVersion: resource.k8s.io/v1beta2, kind: DeviceClass, metadata: {name: gpu, uid: u-13}}
- {apiVersion: resource.k8s.io/v1, kind: DeviceClass, metadata: {name: gpu, uid: u-13}}
`

// rule: S8.53
func TestStoredObjectsAreNotAdmittedAgain(t *testing.T) {
	objects, warnings, err := simulate.Load(os.ReadFile, write(t, map[string]string{"dump.yaml": dump}))
	require.NoError(t, err)
	have(t, "warnings", warnings, []string{
		`kind Node of another version: ignored: 1 unknown field "status.flavour"`,
		`kind Pod of another version: ignored: 2 unknown field "spec.containers[].colour"`,
	})
	if got, want := names(objects), "Node:n1 Pod:p Pod:q Namespace:a PriorityClass:changed PriorityClass:second RuntimeClass:changed PersistentVolumeClaim:c StorageClass:s "+
		"ResourceClaim:one ResourceClaimTemplate:t DeviceClass:gpu ResourceSlice:x PodGroup:g"; got != want {
		t.Fatalf("got  %s\nwant %s", got, want)
	}
	p, q := objects.Pods[0].Spec, objects.Pods[1].Spec
	for what, holds := range map[string]bool{
		"the priority of an absent class":         *p.Priority == 7 && *p.PreemptionPolicy == "Never",
		"the overhead of an absent class":         p.Overhead.Memory().String() == "1Gi",
		"the priority before the class changed":   *q.Priority == 1 && *q.PreemptionPolicy == "PreemptLowerPriority",
		"no overhead, as before the class had it": q.Overhead == nil,
		"the tolerations as they are":             len(q.Tolerations) == 0,
		"no storage class that came later":        objects.Claims[0].Spec.StorageClassName == nil,
		"the priority of a PodGroup":              *objects.PodGroups[0].Spec.Priority == 1,
		"a request of v1beta1":                    objects.ResourceClaims[0].Spec.Devices.Requests[0].Exactly.DeviceClassName == "gpu",
		"a device of v1beta1":                     len(objects.ResourceSlices[0].Spec.Devices[0].Capacity) == 1,
		"a request of v1beta2":                    objects.ClaimTemplates[0].Spec.Spec.Devices.Requests[0].Exactly.DeviceClassName == "gpu",
	} {
		if !holds {
			t.Errorf("not so: %s\n%+v\n%+v", what, p, q)
		}
	}
	for text, want := range map[string]string{
		"{apiVersion: v1, kind: Pod, metadata: {name: p, namespace: a, uid: other}}":      "is in ",
		"{apiVersion: v1, kind: Pod, metadata: {name: p, namespace: a}}":                  "is in ",
		"{apiVersion: v1, kind: Pod, metadata: {name: r}, spec: {colour: red}}":           `unknown field "spec.colour"`,
		"{apiVersion: v1, kind: Pod, metadata: {name: r, uid: u}, spec: {priority: red}}": "spec.priority: expected a number",
	} {
		if _, _, err := simulate.Load(os.ReadFile, write(t, map[string]string{"a.yaml": dump + "---\n" + text})); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %s", text, err, want)
		}
	}
}

// Each encoding of a cluster is read whole.
// rule: S8.54
func TestACompressedOrUTF16FileIsReadWhole(t *testing.T) {
	const text = `{"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}, "status": {"allocatable": {"cpu": "1", "memory": "1Gi", "pods": "3"}}}
[{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": [{"name": "c"}]}}]
`
	var compressed, utf16 bytes.Buffer
	w := gzip.NewWriter(&compressed)
	_, err := w.Write([]byte(text))
	require.NoError(t, errors.Join(err, w.Close()))
	for _, c := range "\ufeff" + text {
		utf16.Write([]byte{byte(c), byte(c >> 8)})
	}
	dir := write(t, map[string]string{"a/dump.json.gz": compressed.String(), "b/dump.json": utf16.String(), "c/config.yaml.gz": compressed.String(), "c/cut.json": text + "text"})
	for _, c := range []struct {
		args []string
		in   string
		code int
		says string
	}{
		{[]string{filepath.Join(dir, "a")}, "", 0, "1 scheduled"},
		{[]string{filepath.Join(dir, "b")}, "", 0, "1 scheduled"},
		{[]string{"-"}, compressed.String(), 0, "1 scheduled"},
		{[]string{"-"}, utf16.String(), 0, "1 scheduled"},
		{[]string{"-"}, text + "text", 2, `standard input: line 3: expected a JSON object or list, found "text"`},
		{[]string{filepath.Join(dir, "c/cut.json")}, "", 2, `c/cut.json: line 3: expected a JSON object or list, found "text"`},
		{[]string{"-"}, compressed.String()[:40], 2, "standard input: decompress: "},
		{[]string{filepath.Join(dir, "b"), "--config", filepath.Join(dir, "c/config.yaml.gz")}, "", 2, "c/config.yaml.gz: expected one document of kind KubeSchedulerConfiguration, found 2"},
	} {
		var out bytes.Buffer
		root := scheduleradapter.NewCommand("test")
		root.SetIn(strings.NewReader(c.in))
		root.SetOut(&out)
		root.SetErr(&out)
		if code := scheduleradapter.Execute(t.Context(), root, append([]string{"simulate"}, c.args...)); code != c.code || !strings.Contains(out.String(), c.says) {
			t.Errorf("%v: exit %d, %s", c.args, code, out.String())
		}
	}
}

// A workload has as many pods as its controller would make, whatever of them is in the file.
// rule: S8.56
func TestPodsOfWorkloadsAreMadeOnce(t *testing.T) {
	const (
		nodes    = "apiVersion: v1\nkind: List\nitems: [{apiVersion: v1, kind: Node, metadata: {name: a}}, {apiVersion: v1, kind: Node, metadata: {name: b}, spec: {unschedulable: true}}]\n"
		template = "template: {metadata: {labels: {app: web}}, spec: {containers: [{name: c}]}}"
		selector = "selector: {matchLabels: {app: web}}"
	)
	ownedBy := func(kind, name string) string {
		return "ownerReferences: [{apiVersion: apps/v1, kind: " + kind + ", name: " + name + ", uid: u, controller: true}]"
	}
	for name, test := range map[string]struct{ text, pods string }{
		"a Deployment": {"apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\nspec: {replicas: 2, " + template + "}\n", "web-*-0 web-*-1"},
		"its ReplicaSet and a pod": {"apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\nspec: {replicas: 2, " + template + "}\n---\n" +
			"apiVersion: apps/v1\nkind: ReplicaSet\nmetadata: {name: web-1, " + ownedBy("Deployment", "web") + "}\nspec: {replicas: 2, " + template + "}\n---\n" +
			"apiVersion: v1\nkind: Pod\nmetadata: {name: web-1-x, " + ownedBy("ReplicaSet", "web-1") + "}\n", "web-1-x web-1-0"},
		"its pods without their ReplicaSets": {"apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\nspec: {replicas: 3, " + template + "}\n---\n" +
			"apiVersion: v1\nkind: Pod\nmetadata: {name: web-1-x, labels: {pod-template-hash: '1'}, " + ownedBy("ReplicaSet", "web-1") + "}\n---\n" +
			"apiVersion: v1\nkind: Pod\nmetadata: {name: web-2-x, labels: {pod-template-hash: '2'}, " + ownedBy("ReplicaSet", "web-2") + "}\n", "web-1-x web-2-x web-2-0"},
		"a ReplicaSet that adopts a pod": {"apiVersion: apps/v1\nkind: ReplicaSet\nmetadata: {name: web}\nspec: {replicas: 2, " + selector + ", " + template + "}\n---\n" +
			"apiVersion: v1\nkind: Pod\nmetadata: {name: mine, labels: {app: web}}\n---\napiVersion: v1\nkind: Pod\nmetadata: {name: other}\n", "mine other web-0"},
		"a ReplicaSet whose pod has ended": {"apiVersion: apps/v1\nkind: ReplicaSet\nmetadata: {name: web}\nspec: {" + template + "}\n---\n" +
			"apiVersion: v1\nkind: Pod\nmetadata: {name: web-0, " + ownedBy("ReplicaSet", "web") + "}\nstatus: {phase: Failed}\n", "web-0 web-1"},
		"a StatefulSet with a pod and claims": {"apiVersion: apps/v1\nkind: StatefulSet\nmetadata: {name: db}\nspec: {replicas: 3, volumeClaimTemplates: [{metadata: {name: data}}], " + template + "}\n---\n" +
			"apiVersion: v1\nkind: Pod\nmetadata: {name: db-1, " + ownedBy("StatefulSet", "db") + "}\nstatus: {phase: Failed}\n", "db-1 db-0 db-2 data-db-0 data-db-2"},
		"a DaemonSet with a pod": {"apiVersion: apps/v1\nkind: DaemonSet\nmetadata: {name: log}\nspec: {" + template + "}\n---\n" +
			"apiVersion: v1\nkind: Pod\nmetadata: {name: log-x, " + ownedBy("DaemonSet", "log") + "}\nspec: {nodeName: a}\n", "log-x log-1"},
		"a Job with a pod": {"apiVersion: batch/v1\nkind: Job\nmetadata: {name: sum}\nspec: {parallelism: 3, completionMode: Indexed, completions: 3, " + template + "}\n---\n" +
			"apiVersion: v1\nkind: Pod\nmetadata: {name: sum-1-x, labels: {batch.kubernetes.io/job-completion-index: '1'}, " + ownedBy("Job", "sum") + "}\n", "sum-1-x sum-0 sum-2"},
		"a workload without containers": {"apiVersion: batch/v1\nkind: Job\nmetadata: {name: sum}\n", ""},
	} {
		objects, _, err := simulate.Load(os.ReadFile, write(t, map[string]string{"a.yaml": nodes + "---\n" + test.text}))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		var got []string
		for _, pod := range objects.Pods {
			got = append(got, pod.Name)
		}
		for _, claim := range objects.Claims {
			got = append(got, claim.Name)
		}
		if text := hashed.ReplaceAllString(strings.Join(got, " "), "web-*-"); text != test.pods {
			t.Errorf("%s: got %q, want %q", name, text, test.pods)
		}
	}
}

// hashed is the name of a ReplicaSet with its hash, which is that of no test.
var hashed = regexp.MustCompile(`web-[a-z0-9]{5,}-`)
