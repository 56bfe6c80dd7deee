package runner

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"

	"github.com/evictd/evictd/cgroup"
	"github.com/evictd/evictd/internal/admission"
	"github.com/evictd/evictd/internal/manifest"
	"github.com/evictd/evictd/internal/require"
	"github.com/evictd/evictd/stats"
)

// documented is the pod of the documentation on pod overhead, and its runtime
// class.
const (
	documented = `{metadata: {name: test-pod}, spec: {runtimeClassName: kata-fc, containers: [
		{name: one, image: playground, resources: {limits: {cpu: 500m, memory: 100Mi}}},
		{name: two, image: playground, resources: {limits: {cpu: 1500m, memory: 100Mi}}}]}}`
	documentedClass = `{metadata: {name: kata-fc}, handler: kata-fc, overhead: {podFixed: {memory: 120Mi, cpu: 250m}}}`
)

const mib = 1 << 20

// admitted is a pod as the API would store it.
func admitted(t *testing.T, text string) *v1.Pod {
	t.Helper()
	var class nodev1.RuntimeClass
	pod := &v1.Pod{}
	require.NoError(t, manifest.Decode([]byte(documentedClass), &class))
	require.NoError(t, manifest.Decode([]byte(text), pod))
	classes := admission.NewClasses()
	if faults := append(classes.AddRuntimeClass(&class), classes.CompletePod(pod)...); len(faults) > 0 {
		t.Fatal(faults)
	}
	return pod
}

func TestPodsAreBoundedAsTheKubeletDoes(t *testing.T) {
	known := stats.Known
	for name, c := range map[string]struct {
		pod  string
		want cgroup.Limits
	}{
		"with overhead": {documented, cgroup.Limits{Memory: known(320 * mib), CPUShares: known(2304), CPUQuota: known(225_000)}},
		"with overhead, one container without limits": {
			`{metadata: {name: p}, spec: {runtimeClassName: kata-fc, containers: [
				{name: one, image: i, resources: {requests: {cpu: 500m, memory: 50Mi}, limits: {memory: 100Mi}}}, {name: two, image: i}]}}`,
			cgroup.Limits{CPUShares: known(768)},
		},
		"burstable, all memory limited": {
			`{metadata: {name: p}, spec: {containers: [
				{name: one, image: i, resources: {requests: {cpu: 100m}, limits: {memory: 10Mi}}}, {name: two, image: i, resources: {limits: {memory: 20Mi}}}]}}`,
			cgroup.Limits{Memory: known(30 * mib), CPUShares: known(102)},
		},
		"limited as a whole": {
			`{metadata: {name: p}, spec: {resources: {requests: {cpu: 200m}, limits: {memory: 64Mi, cpu: 400m}}, containers: [{name: one, image: i}]}}`,
			cgroup.Limits{Memory: known(64 * mib), CPUShares: known(204), CPUQuota: known(40_000)},
		},
		"an init container that asks for more": {
			`{metadata: {name: p}, spec: {initContainers: [{name: zero, image: i, resources: {requests: {cpu: "2"}, limits: {memory: 80Mi}}}],
				containers: [{name: one, image: i, resources: {limits: {memory: 10Mi}}}]}}`,
			cgroup.Limits{Memory: known(80 * mib), CPUShares: known(2048)},
		},
		"memory only": {
			`{metadata: {name: p}, spec: {containers: [{name: one, image: i, resources: {requests: {memory: 10Mi}}}]}}`,
			cgroup.Limits{CPUShares: known(2)},
		},
		"best effort, whatever the overhead": {
			`{metadata: {name: p}, spec: {runtimeClassName: kata-fc, containers: [{name: one, image: i}]}}`,
			cgroup.Limits{CPUShares: known(2)},
		},
		"less than the kernel's least quota": {
			`{metadata: {name: p}, spec: {containers: [{name: one, image: i, resources: {limits: {cpu: 5m, memory: 1Mi}}}]}}`,
			cgroup.Limits{Memory: known(mib), CPUShares: known(5), CPUQuota: known(1000)},
		},
	} {
		t.Run(name, func(t *testing.T) {
			if got := podLimits(admitted(t, c.pod)); got != c.want {
				t.Errorf("got %+v, want %+v", got, c.want)
			}
		})
	}
}

func TestContainersAreBoundedByTheirOwnLimits(t *testing.T) {
	pod := admitted(t, documented)
	want := cgroup.Limits{Memory: stats.Known(100 * mib), CPUShares: stats.Known(512), CPUQuota: stats.Known(50_000)}
	if got := containerLimits(&pod.Spec.Containers[0]); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if got := containerLimits(&v1.Container{}); got != (cgroup.Limits{CPUShares: stats.Known(2)}) {
		t.Errorf("without any: got %+v", got)
	}
}
