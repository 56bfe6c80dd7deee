package podspec_test

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"sigs.k8s.io/yaml"

	"github.com/evictd/evictd/internal/podspec"
	"github.com/evictd/evictd/internal/require"
)

// rule: 8.13
func TestQOSClassFollowsTheAPIRule(t *testing.T) {
	for name, test := range map[string]struct {
		pod  string
		want v1.PodQOSClass
	}{
		"nothing claimed is best effort":          {`spec: {containers: [{name: c}]}`, v1.PodQOSBestEffort},
		"a pod without containers is best effort": {`spec: {}`, v1.PodQOSBestEffort},
		"only other resources claimed is best effort": {
			`spec: {containers: [{name: c, resources: {limits: {ephemeral-storage: 1Gi, example.com/gpu: 1}}}]}`, v1.PodQOSBestEffort},
		"claims of zero are no claims": {
			`spec: {containers: [{name: c, resources: {requests: {cpu: 0, memory: 0}}}]}`, v1.PodQOSBestEffort},
		"a memory request alone is burstable": {
			`spec: {containers: [{name: c, resources: {requests: {memory: 1Gi}}}]}`, v1.PodQOSBurstable},
		"limits without requests are guaranteed, requests default to limits": {
			`spec: {containers: [{name: c, resources: {limits: {cpu: 1, memory: 1Gi}}}]}`, v1.PodQOSGuaranteed},
		"the same amount written differently is guaranteed": {
			`spec: {containers: [{name: c, resources: {requests: {cpu: 1000m, memory: 1024Mi}, limits: {cpu: 1, memory: 1Gi}}}]}`, v1.PodQOSGuaranteed},
		"an explicit zero request below the limit is burstable": {
			`spec: {containers: [{name: c, resources: {requests: {cpu: 0}, limits: {cpu: 1, memory: 1Gi}}}]}`, v1.PodQOSBurstable},
		"a memory limit alone is burstable": {
			`spec: {containers: [{name: c, resources: {limits: {memory: 1Gi}}}]}`, v1.PodQOSBurstable},
		"one container without limits makes the pod burstable": {
			`spec: {containers: [{name: c, resources: {limits: {cpu: 1, memory: 1Gi}}}, {name: d}]}`, v1.PodQOSBurstable},
		"init containers count": {
			`spec: {initContainers: [{name: i}], containers: [{name: c, resources: {limits: {cpu: 1, memory: 1Gi}}}]}`, v1.PodQOSBurstable},
		"pod-level resources stand for the containers'": {
			`spec: {resources: {requests: {cpu: 1, memory: 1Gi}, limits: {cpu: 1, memory: 1Gi}}, containers: [{name: c}]}`, v1.PodQOSGuaranteed},
		"pod-level limits alone are guaranteed": {
			`spec: {resources: {limits: {cpu: 1, memory: 1Gi}}, containers: [{name: c}]}`, v1.PodQOSGuaranteed},
		"pod-level limits above what containers request are burstable": {
			`spec: {resources: {limits: {cpu: 1, memory: 1Gi}}, containers: [{name: c, resources: {requests: {memory: 100Mi}}}]}`, v1.PodQOSBurstable},
		"a pod-level limit that is missing is that of the containers, but not below the request": {
			`spec: {resources: {requests: {cpu: 1}}, containers: [{name: c, resources: {limits: {cpu: 500m, memory: 300Mi}}}]}`, v1.PodQOSGuaranteed},
		"where all of them have one": {
			`spec: {resources: {requests: {cpu: 1}}, containers: [{name: c, resources: {limits: {cpu: 500m, memory: 300Mi}}}, {name: d, resources: {limits: {cpu: 500m}}}]}`, v1.PodQOSBurstable},
		"empty pod-level resources are not set": {
			`spec: {resources: {}, containers: [{name: c, resources: {limits: {cpu: 1, memory: 1Gi}}}]}`, v1.PodQOSGuaranteed},
		"the class in the status wins": {
			`{spec: {containers: [{name: c}]}, status: {qosClass: Guaranteed}}`, v1.PodQOSGuaranteed},
	} {
		t.Run(name, func(t *testing.T) {
			pod := podOf(t, test.pod)
			before := pod.DeepCopy()
			if got := podspec.QOSClass(pod); got != test.want {
				t.Errorf("class %s, want %s", got, test.want)
			}
			if !equality.Semantic.DeepEqual(pod, before) {
				t.Error("the pod was modified")
			}
		})
	}
}

func podOf(t *testing.T, manifest string) *v1.Pod {
	t.Helper()
	var pod v1.Pod
	require.NoError(t, yaml.UnmarshalStrict([]byte(manifest), &pod))
	return &pod
}
