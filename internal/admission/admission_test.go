package admission_test

import (
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"

	"github.com/evictd/evictd/internal/admission"
	"github.com/evictd/evictd/internal/manifest"
	"github.com/evictd/evictd/internal/require"
)

func read[T any](t *testing.T, text string) *T {
	t.Helper()
	object := new(T)
	if err := manifest.Decode([]byte(text), object); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return object
}

// classes has a few of each kind, low the global default.
func classes(t *testing.T) *admission.Classes {
	t.Helper()
	c := admission.NewClasses()
	var faults field.ErrorList
	for _, text := range []string{
		"{metadata: {name: low}, value: -10, globalDefault: true}",
		"{metadata: {name: high}, value: 1000000000, preemptionPolicy: Never}",
	} {
		faults = append(faults, c.AddPriorityClass(read[schedulingv1.PriorityClass](t, text))...)
	}
	for _, text := range []string{
		"{metadata: {name: sandbox}, handler: h, overhead: {podFixed: {cpu: 100m, memory: 1Gi}}, scheduling: {nodeSelector: {sandbox: 'yes'}, tolerations: [{key: sandbox, operator: Exists}]}}",
		"{metadata: {name: plain}, handler: h}",
	} {
		faults = append(faults, c.AddRuntimeClass(read[nodev1.RuntimeClass](t, text))...)
	}
	if len(faults) > 0 {
		t.Fatal(faults)
	}
	return c
}

func texts(faults field.ErrorList) []string {
	var list []string
	for _, fault := range faults {
		list = append(list, fault.Error())
	}
	return list
}

// have compares texts with the beginnings that they should have.
func have(t *testing.T, got, want []string) {
	t.Helper()
	if !slices.EqualFunc(got, want, strings.HasPrefix) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// TestPodsAreCompleted compares what the manifest in want says with the completed
// pod; a field that want does not have is not looked at.
func TestPodsAreCompleted(t *testing.T) {
	const (
		bestEffort  = "[{key: node.kubernetes.io/not-ready, operator: Exists, effect: NoExecute, tolerationSeconds: 300}, {key: node.kubernetes.io/unreachable, operator: Exists, effect: NoExecute, tolerationSeconds: 300}"
		usual       = "tolerations: " + bestEffort + ", {key: node.kubernetes.io/memory-pressure, operator: Exists, effect: NoSchedule}]"
		usualForAll = "tolerations: " + bestEffort + "]"
		daemon      = "ownerReferences: [{apiVersion: apps/v1, kind: DaemonSet, name: d, uid: u, controller: true}]"
	)
	for name, test := range map[string]struct{ meta, spec, want string }{
		"an empty pod":                         {"", "", "schedulerName: default-scheduler\nrestartPolicy: Always\nterminationGracePeriodSeconds: 30\npriorityClassName: low\npriority: -10\npreemptionPolicy: PreemptLowerPriority\n" + usualForAll},
		"what is given stays":                  {"", "schedulerName: mine\nrestartPolicy: Never\nterminationGracePeriodSeconds: 0", "schedulerName: mine\nrestartPolicy: Never\nterminationGracePeriodSeconds: 0"},
		"a class":                              {"", "priorityClassName: high", "priority: 1000000000\npreemptionPolicy: Never"},
		"a class as resolved before":           {"", "priorityClassName: high\npriority: 1000000000\npreemptionPolicy: Never", "priority: 1000000000\npreemptionPolicy: Never"},
		"a class of the system":                {"", "priorityClassName: system-node-critical", "priority: 2000001000\npreemptionPolicy: PreemptLowerPriority"},
		"a bare priority is taken as given":    {"", "priority: 5\npreemptionPolicy: Never", "priority: 5\npreemptionPolicy: Never\npriorityClassName: null"},
		"a bare priority of zero":              {"", "priority: 0", "priority: 0\npreemptionPolicy: PreemptLowerPriority\npriorityClassName: null"},
		"requests from limits":                 {"", "containers: [{name: c, resources: {requests: {cpu: 1}, limits: {cpu: 2, memory: 1Gi}}}]\ninitContainers: [{name: i, resources: {limits: {x.example/y: 1}}}]", "containers: [{name: c, resources: {requests: {cpu: 1, memory: 1Gi}, limits: {cpu: 2, memory: 1Gi}}}]\ninitContainers: [{name: i, resources: {requests: {x.example/y: 1}, limits: {x.example/y: 1}}}]\n" + usual},
		"limits of the pod":                    {"", "resources: {limits: {cpu: 4, memory: 4Gi}}\ncontainers: [{name: a, resources: {requests: {cpu: 1}}}, {name: b, resources: {requests: {cpu: 1}}}]", "resources: {requests: {cpu: 2, memory: 4Gi}, limits: {cpu: 4, memory: 4Gi}}\n" + usual},
		"requests of the pod":                  {"", "resources: {requests: {cpu: 4}}\ncontainers: [{name: a, resources: {requests: {memory: 1Gi}}}]", "resources: {requests: {cpu: 4, memory: 1Gi}}\n" + usual},
		"other resources make no class":        {"", "containers: [{name: a, resources: {requests: {ephemeral-storage: 1Gi, cpu: 0}}}]", usualForAll},
		"ports":                                {"", "containers: [{name: a, ports: [{containerPort: 80, hostPort: 8080}, {containerPort: 53, protocol: UDP}]}]", "containers: [{name: a, resources: {}, ports: [{containerPort: 80, hostPort: 8080, protocol: TCP}, {containerPort: 53, protocol: UDP}]}]"},
		"ports in the host's network":          {"", "hostNetwork: true\ncontainers: [{name: a, ports: [{containerPort: 80}]}]", "containers: [{name: a, resources: {}, ports: [{containerPort: 80, hostPort: 80, protocol: TCP}]}]"},
		"a runtime class":                      {"", "runtimeClassName: sandbox\nnodeSelector: {a: b}", "overhead: {cpu: 100m, memory: 1Gi}\nnodeSelector: {a: b, sandbox: 'yes'}\ntolerations: [{key: sandbox, operator: Exists}, " + bestEffort[1:] + "]"},
		"the overhead of its class":            {"", "runtimeClassName: sandbox\noverhead: {cpu: 0.1, memory: 1024Mi}", "overhead: {cpu: 100m, memory: 1Gi}"},
		"a class without overhead":             {"", "runtimeClassName: plain", "overhead: null"},
		"overhead without a class stays":       {"", "overhead: {cpu: 1}", "overhead: {cpu: 1}"},
		"tolerations that decide":              {"", "tolerations: [{key: node.kubernetes.io/not-ready, operator: Exists, tolerationSeconds: 5}, {key: node.kubernetes.io/unreachable, operator: Exists, effect: NoExecute}]", "tolerations: [{key: node.kubernetes.io/not-ready, operator: Exists, tolerationSeconds: 5}, {key: node.kubernetes.io/unreachable, operator: Exists, effect: NoExecute}]"},
		"tolerations of everything":            {"", "tolerations: [{operator: Exists}]", "tolerations: [{operator: Exists}]"},
		"tolerations of another effect":        {"", "tolerations: [{key: node.kubernetes.io/not-ready, operator: Exists, effect: NoSchedule}]", "tolerations: [{key: node.kubernetes.io/not-ready, operator: Exists, effect: NoSchedule}, " + bestEffort[1:] + "]"},
		"a DaemonSet's pod stays anywhere":     {daemon, "", "tolerations: [{key: node.kubernetes.io/not-ready, operator: Exists, effect: NoExecute}, {key: node.kubernetes.io/unreachable, operator: Exists, effect: NoExecute}, {key: node.kubernetes.io/disk-pressure, operator: Exists, effect: NoSchedule}, {key: node.kubernetes.io/memory-pressure, operator: Exists, effect: NoSchedule}, {key: node.kubernetes.io/pid-pressure, operator: Exists, effect: NoSchedule}, {key: node.kubernetes.io/unschedulable, operator: Exists, effect: NoSchedule}]"},
		"a DaemonSet's pod on the host":        {daemon, "hostNetwork: true\ntolerations: [{key: node.kubernetes.io/not-ready, operator: Exists, effect: NoExecute, tolerationSeconds: 7}]", "tolerations: [{key: node.kubernetes.io/not-ready, operator: Exists, effect: NoExecute}, {key: node.kubernetes.io/unreachable, operator: Exists, effect: NoExecute}, {key: node.kubernetes.io/disk-pressure, operator: Exists, effect: NoSchedule}, {key: node.kubernetes.io/memory-pressure, operator: Exists, effect: NoSchedule}, {key: node.kubernetes.io/pid-pressure, operator: Exists, effect: NoSchedule}, {key: node.kubernetes.io/unschedulable, operator: Exists, effect: NoSchedule}, {key: node.kubernetes.io/network-unavailable, operator: Exists, effect: NoSchedule}]"},
		"an owner that does not control":       {"ownerReferences: [{apiVersion: apps/v1, kind: DaemonSet, name: d, uid: u}]", "", usualForAll},
		"a DaemonSet of another group":         {"ownerReferences: [{apiVersion: example.org/v1, kind: DaemonSet, name: d, uid: u, controller: true}]", "", usualForAll},
		"spread constraints":                   {"labels: {app: web}", "topologySpreadConstraints: [{maxSkew: 1, topologyKey: zone, whenUnsatisfiable: DoNotSchedule, labelSelector: {}, matchLabelKeys: [app, none]}]", "topologySpreadConstraints: [{maxSkew: 1, topologyKey: zone, whenUnsatisfiable: DoNotSchedule, labelSelector: {matchExpressions: [{key: app, operator: In, values: [web]}]}, matchLabelKeys: [app, none]}]"},
		"label keys are merged into selectors": {"labels: {app: a, tenant: t}", "affinity: {podAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{topologyKey: zone, labelSelector: {matchLabels: {x: z}}, matchLabelKeys: [app, none]}]}}", "affinity: {podAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{topologyKey: zone, labelSelector: {matchLabels: {x: z}, matchExpressions: [{key: app, operator: In, values: [a]}]}, matchLabelKeys: [app, none]}]}}"},
		"mismatching label keys too":           {"labels: {app: a, tenant: t}", "affinity: {podAntiAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{weight: 1, podAffinityTerm: {topologyKey: zone, labelSelector: {}, matchLabelKeys: [app], mismatchLabelKeys: [tenant]}}]}}", "affinity: {podAntiAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{weight: 1, podAffinityTerm: {topologyKey: zone, labelSelector: {matchExpressions: [{key: app, operator: In, values: [a]}, {key: tenant, operator: NotIn, values: [t]}]}, matchLabelKeys: [app], mismatchLabelKeys: [tenant]}}]}}"},
		"a term without a selector":            {"labels: {app: a}", "affinity: {podAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{topologyKey: zone, matchLabelKeys: [app]}]}}", "affinity: {podAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{topologyKey: zone, matchLabelKeys: [app]}]}}"},
	} {
		t.Run(name, func(t *testing.T) {
			pod := read[v1.Pod](t, "metadata:\n  name: p\n  "+test.meta+"\nspec:\n  "+strings.ReplaceAll(test.spec, "\n", "\n  "))
			c := classes(t)
			for _, time := range []string{"completed", "completed again"} {
				if faults := c.CompletePod(pod); len(faults) > 0 {
					t.Fatal(faults)
				}
				expected := pod.Spec.DeepCopy()
				require.NoError(t, yaml.Unmarshal([]byte(test.want), clear(t, expected, test.want)))
				if got, want := text(t, pod.Spec), text(t, expected); got != want {
					t.Errorf("%s, got\n%s\nwant\n%s", time, got, want)
				}
			}
		})
	}
}

// clear empties the fields that a manifest has, so that it replaces them whole.
func clear(t *testing.T, spec *v1.PodSpec, want string) *v1.PodSpec {
	t.Helper()
	var all, named map[string]any
	require.NoError(t, yaml.Unmarshal([]byte(text(t, spec)), &all))
	require.NoError(t, yaml.Unmarshal([]byte(want), &named))
	for field := range named {
		delete(all, field)
	}
	*spec = *read[v1.PodSpec](t, text(t, all))
	return spec
}

func text(t *testing.T, value any) string {
	t.Helper()
	out, err := yaml.Marshal(value)
	require.NoError(t, err)
	return string(out)
}

func TestPodsThatAnAPIServerWouldRefuse(t *testing.T) {
	for name, test := range map[string]struct {
		spec string
		want []string
	}{
		"an unknown class":              {"priorityClassName: none", []string{`spec.priorityClassName: Invalid value: "none": no PriorityClass with name none was found`}},
		"a priority unlike the class's": {"priorityClassName: high\npriority: 5\npreemptionPolicy: PreemptLowerPriority", []string{"spec.priority: Invalid value: 5: must not differ from what the PriorityClass says, 1000000000", `spec.preemptionPolicy: Invalid value: "PreemptLowerPriority": must not differ from what the PriorityClass says, Never`}},
		"a selector of no label":        {"nodeSelector: {a b: c}", []string{`spec.nodeSelector: Invalid value: "a b"`}},
		"an unknown runtime":            {"runtimeClassName: none", []string{`spec.runtimeClassName: Invalid value: "none": pod rejected: RuntimeClass "none" not found`}},
		"another overhead":              {"runtimeClassName: sandbox\noverhead: {cpu: 100m}", []string{"spec.overhead: Forbidden: pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead"}},
		"overhead the class has not":    {"runtimeClassName: plain\noverhead: {cpu: 1}", []string{"spec.overhead: Forbidden"}},
		"another node selector":         {"runtimeClassName: sandbox\nnodeSelector: {sandbox: 'no'}", []string{`spec.nodeSelector[sandbox]: Invalid value: "no": conflict: RuntimeClass "sandbox" selects "yes"`}},
		"amounts out of range, and more": {"priorityClassName: none\noverhead: {cpu: -1}\ncontainers: [{name: a}, {name: b, resources: {requests: {cpu: 2, memory: -1}, limits: {cpu: 1}}}]\nresources: {limits: {memory: -1}}", []string{
			`spec.containers[1].resources.requests[memory]: Invalid value: "-1": must be greater than or equal to 0`,
			`spec.containers[1].resources.requests: Invalid value: "2": must be less than or equal to cpu limit of 1`,
			`spec.resources.limits[memory]: Invalid value: "-1"`,
			`spec.overhead[cpu]: Invalid value: "-1"`,
			`spec.priorityClassName: Invalid`,
		}},
	} {
		t.Run(name, func(t *testing.T) {
			pod := read[v1.Pod](t, "spec:\n  "+strings.ReplaceAll(test.spec, "\n", "\n  "))
			have(t, texts(classes(t).CompletePod(pod)), test.want)
		})
	}
}

func TestPriorityClassesKeepToTheirRange(t *testing.T) {
	for _, test := range []struct {
		class string
		want  []string
	}{
		{"{metadata: {name: most}, value: 1000000000}", nil},
		{"{metadata: {name: least}, value: -2147483648}", nil},
		{"{metadata: {name: more}, value: 1000000001}", []string{"value: Forbidden: maximum allowed value of a user defined priority is 1000000000"}},
		{"{metadata: {name: system-mine}, value: 1}", []string{"metadata.name: Forbidden: priority class names with 'system-' prefix are reserved for system use only"}},
		{"{metadata: {name: system-cluster-critical}, value: 2000000000, description: as every cluster has it}", nil},
		{"{metadata: {name: system-node-critical}, value: 2000000000}", []string{"value: Forbidden: value of system-node-critical PriorityClass must be 2000001000"}},
		{"{metadata: {name: system-node-critical}, value: 2000001000, globalDefault: true}", []string{"globalDefault: Forbidden: globalDefault of system-node-critical PriorityClass must be false", "globalDefault: Forbidden: PriorityClass low is already marked as default"}},
		{"{metadata: {name: second}, value: 1, globalDefault: true, preemptionPolicy: Sometimes}", []string{`preemptionPolicy: Unsupported value: "Sometimes"`, "globalDefault: Forbidden: PriorityClass low is already marked as default. Only one default can exist"}},
	} {
		have(t, texts(classes(t).AddPriorityClass(read[schedulingv1.PriorityClass](t, test.class))), test.want)
	}
}

func TestWithoutAClassPriorityIsZero(t *testing.T) {
	pod := &v1.Pod{}
	if faults := admission.NewClasses().CompletePod(pod); len(faults) > 0 || *pod.Spec.Priority != 0 || pod.Spec.PriorityClassName != "" {
		t.Errorf("%v: %+v", faults, pod.Spec)
	}
}

func TestNodesAreTaintedByTheirConditions(t *testing.T) {
	for name, test := range map[string]struct {
		node string
		want []string
	}{
		"a node that is well":           {"status: {conditions: [{type: Ready, status: 'True'}, {type: MemoryPressure, status: 'False'}]}", nil},
		"nothing is known":              {"status: {}", nil},
		"a node that is not ready":      {"status: {conditions: [{type: Ready, status: 'False'}]}", []string{"node.kubernetes.io/not-ready:NoSchedule"}},
		"a node without heartbeats":     {"status: {conditions: [{type: Ready, status: Unknown}, {type: MemoryPressure, status: Unknown}]}", []string{"node.kubernetes.io/unreachable:NoSchedule"}},
		"a node in trouble":             {"status: {conditions: [{type: PIDPressure, status: 'True'}, {type: DiskPressure, status: 'True'}, {type: MemoryPressure, status: 'True'}, {type: NetworkUnavailable, status: 'True'}]}", []string{"node.kubernetes.io/memory-pressure:NoSchedule", "node.kubernetes.io/disk-pressure:NoSchedule", "node.kubernetes.io/pid-pressure:NoSchedule", "node.kubernetes.io/network-unavailable:NoSchedule"}},
		"a node that was cordoned":      {"spec: {unschedulable: true}", []string{"node.kubernetes.io/unschedulable:NoSchedule"}},
		"taints that are there already": {"{spec: {unschedulable: true, taints: [{key: a, effect: NoExecute}, {key: node.kubernetes.io/unschedulable, effect: NoSchedule}, {key: node.kubernetes.io/not-ready, effect: NoExecute}]}, status: {conditions: [{type: Ready, status: 'False'}]}}", []string{"a:NoExecute", "node.kubernetes.io/unschedulable:NoSchedule", "node.kubernetes.io/not-ready:NoExecute", "node.kubernetes.io/not-ready:NoSchedule"}},
	} {
		t.Run(name, func(t *testing.T) {
			node := read[v1.Node](t, test.node)
			for range 2 {
				faults := admission.CompleteNode(node)
				var got []string
				for _, taint := range node.Spec.Taints {
					got = append(got, taint.ToString())
				}
				if len(faults) > 0 || !slices.Equal(got, test.want) {
					t.Errorf("%v; taints %q, want %q", faults, got, test.want)
				}
			}
		})
	}
}

func TestCapacityIsAllocatableUnlessTheNodeSaysOtherwise(t *testing.T) {
	node := read[v1.Node](t, "status: {capacity: {cpu: 4, pods: -1}}")
	have(t, texts(admission.CompleteNode(node)), []string{"status.capacity[pods]: Invalid", "status.allocatable[pods]: Invalid"})
	if cpu := node.Status.Allocatable.Cpu().Value(); cpu != 4 {
		t.Errorf("allocatable cpu %d", cpu)
	}
	node = read[v1.Node](t, "status: {capacity: {cpu: 4}, allocatable: {cpu: 3}}")
	if faults := admission.CompleteNode(node); len(faults) > 0 || node.Status.Allocatable.Cpu().Value() != 3 {
		t.Errorf("%v; %v", faults, node.Status.Allocatable)
	}
}

func TestObjectsHaveANameANamespaceAndAUID(t *testing.T) {
	for _, test := range []struct {
		meta       string
		namespaced bool
		uid        string
		want       []string
	}{
		{"{name: a}", true, "default/a", nil},
		{"{name: a, namespace: ns}", true, "ns/a", nil},
		{"{name: a, uid: u}", true, "u", nil},
		{"{name: a.b-c}", false, "a.b-c", nil},
		{"{name: A_b, namespace: a.b}", true, "a.b/A_b", []string{`metadata.namespace: Invalid value: "a.b"`, `metadata.name: Invalid value: "A_b"`}},
		{"{name: a, labels: {b c: d, e: f/g, h i: j, k l: m}}", true, "default/a", []string{`metadata.labels: Invalid value: "b c"`, `metadata.labels: Invalid value: "f/g"`, `metadata.labels: Invalid value: "h i"`, `metadata.labels: Invalid value: "k l"`}},
		{"{}", true, "default/", []string{"metadata.name: Required value"}},
	} {
		pod := read[v1.Pod](t, "metadata: "+test.meta)
		have(t, texts(admission.CompleteMeta(pod, test.namespaced)), test.want)
		if string(pod.UID) != test.uid {
			t.Errorf("%s: uid %q, want %q", test.meta, pod.UID, test.uid)
		}
	}
}

func TestNamespacesCarryTheirNameAsALabel(t *testing.T) {
	namespace := read[v1.Namespace](t, "metadata: {name: a, labels: {b: c, kubernetes.io/metadata.name: x}}")
	admission.CompleteNamespace(namespace)
	if namespace.Labels[v1.LabelMetadataName] != "a" || namespace.Labels["b"] != "c" {
		t.Errorf("labels %v", namespace.Labels)
	}
}

func TestClaimsTakeTheYoungestDefaultClass(t *testing.T) {
	c := admission.NewClasses()
	without := read[v1.PersistentVolumeClaim](t, "{}")
	c.CompleteClaim(without)
	for _, class := range []string{
		"{metadata: {name: b, creationTimestamp: '2026-01-02T00:00:00Z', annotations: {storageclass.kubernetes.io/is-default-class: 'true'}}, provisioner: x}",
		"{metadata: {name: c, creationTimestamp: '2026-01-02T00:00:00Z', annotations: {storageclass.kubernetes.io/is-default-class: 'true'}}, provisioner: x}",
		"{metadata: {name: a, creationTimestamp: '2026-01-01T00:00:00Z', annotations: {storageclass.kubernetes.io/is-default-class: 'true'}}, provisioner: x}",
		"{metadata: {name: d, creationTimestamp: '2026-01-09T00:00:00Z'}, provisioner: x, volumeBindingMode: WaitForFirstConsumer}",
	} {
		c.AddStorageClass(read[storagev1.StorageClass](t, class))
	}
	with, none := read[v1.PersistentVolumeClaim](t, "{}"), read[v1.PersistentVolumeClaim](t, "spec: {storageClassName: ''}")
	c.CompleteClaim(with)
	c.CompleteClaim(none)
	if without.Spec.StorageClassName != nil || *with.Spec.StorageClassName != "b" || *none.Spec.StorageClassName != "" || *with.Spec.VolumeMode != v1.PersistentVolumeFilesystem {
		t.Errorf("%+v; %+v; %+v", without.Spec, with.Spec, none.Spec)
	}
}
