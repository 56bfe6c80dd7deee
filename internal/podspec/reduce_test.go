package podspec_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/yaml"

	"github.com/evictd/evictd/eviction"
	"github.com/evictd/evictd/internal/podspec"
	"github.com/evictd/evictd/internal/require"
	"github.com/evictd/evictd/oom"
)

// rule: M.66
func TestAReducedPodIsTheSameToEviction(t *testing.T) {
	const manifest = `
metadata:
  name: a
  namespace: b
  uid: c
  generation: 3
  labels: {app: x}
  annotations: {kubernetes.io/config.mirror: h, kubernetes.io/config.hash: h, kubernetes.io/config.source: file, evictd.io/cgroup: x/y, other: z}
  ownerReferences: [{uid: none, kind: X, name: x}, {uid: owner, controller: true, kind: ReplicaSet, name: y}]
spec:
  nodeName: n
  priority: 7
  priorityClassName: seven
  overhead: {memory: 1Mi}
  terminationGracePeriodSeconds: 12
  resources: {requests: {memory: 1Gi}}
  initContainers:
  - {name: i, image: init, restartPolicy: Always, resources: {limits: {ephemeral-storage: 1Gi}}}
  containers:
  - name: c
    image: registry/image
    env: [{name: A, value: B}]
    args: [secret]
    resources: {requests: {cpu: 1, memory: 512Mi, example.com/gpu: 1}, limits: {memory: 1Gi, ephemeral-storage: 2Gi}}
  ephemeralContainers: [{name: e, image: debug}]
  volumes:
  - {name: a, emptyDir: {sizeLimit: 1Gi}}
  - {name: b, emptyDir: {medium: Memory}}
  - {name: c, hostPath: {path: /secret}}
  - {name: d, configMap: {name: m}}
  - {name: e, gitRepo: {repository: r}}
  - {name: f, image: {reference: volume}}
  - {name: g, secret: {secretName: s}}
status: {phase: Running, qosClass: Burstable, message: long}`
	var pod v1.Pod
	require.NoError(t, yaml.UnmarshalStrict([]byte(manifest), &pod))
	reduced := podspec.Reduce(&pod)
	if got, want := eviction.Digest(reduced), eviction.Digest(&pod); !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	if got, want := oom.Scores(reduced, 8<<30), oom.Scores(&pod, 8<<30); !reflect.DeepEqual(got, want) {
		t.Errorf("scores %v, want %v", got, want)
	}
	if podspec.QOSClass(reduced) != podspec.QOSClass(&pod) || !podspec.IsMirror(reduced) || !podspec.IsStatic(reduced) {
		t.Errorf("reduced to %+v", reduced)
	}
	text, _ := json.Marshal(reduced)
	for _, gone := range []string{"secret", "other", "gpu", `"A"`, "long", `"app"`} {
		if strings.Contains(string(text), gone) {
			t.Errorf("%s is not left out: %s", gone, text)
		}
	}
	for _, kept := range []string{"registry/image", "init", "debug", "volume", "x/y"} {
		if !strings.Contains(string(text), kept) {
			t.Errorf("%s is left out: %s", kept, text)
		}
	}
}

func TestAReducedPodIsBounded(t *testing.T) {
	pod := &v1.Pod{}
	pod.Annotations = map[string]string{"evictd.io/cgroup": strings.Repeat("x", 1<<20)}
	for i := range 10_000 {
		c := v1.Container{Name: fmt.Sprint(i), Image: strings.Repeat("y", 2000)}
		c.Resources.Requests = v1.ResourceList{v1.ResourceMemory: resource.MustParse("1Mi")}
		pod.Spec.Containers = append(pod.Spec.Containers, c)
		pod.Spec.InitContainers = append(pod.Spec.InitContainers, c)
		pod.Spec.EphemeralContainers = append(pod.Spec.EphemeralContainers, v1.EphemeralContainer{EphemeralContainerCommon: v1.EphemeralContainerCommon{Name: fmt.Sprint(i), Image: c.Image}})
		pod.Spec.Volumes = append(pod.Spec.Volumes, v1.Volume{Name: fmt.Sprint(i)})
	}
	reduced := podspec.Reduce(pod)
	if text, _ := json.Marshal(reduced); len(text) > 100_000 {
		t.Errorf("%d bytes", len(text))
	}
	if got, want := eviction.Digest(reduced).MemoryRequest, eviction.Digest(pod).MemoryRequest; got != want {
		t.Errorf("requests %d bytes, want %d", got, want)
	}
}
