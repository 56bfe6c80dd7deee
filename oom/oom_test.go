package oom_test

import (
	"bytes"
	"encoding/json"
	"math"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/yaml"

	"github.com/evictd/evictd/internal/golden"
	"github.com/evictd/evictd/internal/require"
	"github.com/evictd/evictd/oom"
)

// Every file of testdata is a list of manifests for a node of 4 GiB; its
// expected output stands beside it.
func TestScoresAreTheExpectedOnes(t *testing.T) {
	golden.Each(t, "testdata/*.yaml", func(t *testing.T, file string) {
		golden.Check(t, golden.Beside(file, ".jsonl"), scoreFile(t, file))
	})
}

func scoreFile(t *testing.T, file string) []byte {
	t.Helper()
	manifests := require.ReadFile(t, file)
	var out bytes.Buffer
	lines := json.NewEncoder(&out)
	for document := range bytes.SplitSeq(manifests, []byte("\n---\n")) {
		var pod v1.Pod
		require.NoError(t, yaml.UnmarshalStrict(document, &pod))
		before := pod.DeepCopy()
		for _, c := range oom.Scores(&pod, 4<<30) {
			require.NoError(t, lines.Encode(struct {
				Pod       string         `json:"pod"`
				Container string         `json:"container"`
				QOS       v1.PodQOSClass `json:"qosClass"`
				ScoreAdj  int            `json:"oomScoreAdj"`
			}{pod.Namespace + "/" + pod.Name, c.Name, c.QOS, c.ScoreAdj}))
		}
		if !equality.Semantic.DeepEqual(before, &pod) {
			t.Errorf("pod %s was modified", pod.Name)
		}
	}
	return out.Bytes()
}

func TestNoPodIsSaferThanTheNodesDaemons(t *testing.T) {
	if oom.DaemonScoreAdj != -999 || oom.GuaranteedScoreAdj != -997 || oom.BestEffortScoreAdj != 1000 {
		t.Error("the constants are the kubelet's: -999, -997, 1000")
	}
}

func TestBurstableScoresStayWithinBoundsForAnyRequestAndCapacity(t *testing.T) {
	amounts := []int64{0, 1, 999, 1000, 1 << 20, 4 << 30, 1 << 53, math.MaxInt64 - 1, math.MaxInt64}
	for _, capacity := range amounts[1:] {
		last := math.MaxInt
		for _, request := range amounts {
			quantity := *resource.NewQuantity(request, resource.BinarySI)
			score := oom.Scores(burstable(quantity), capacity)[0].ScoreAdj
			if score < 3 || score > 999 {
				t.Errorf("request %d of %d: score %d out of 3..999", request, capacity, score)
			}
			if score > last {
				t.Errorf("request %d of %d: score %d above that of a smaller request, %d", request, capacity, score, last)
			}
			last = score
		}
	}
}

func burstable(memory resource.Quantity) *v1.Pod {
	requests := v1.ResourceList{v1.ResourceCPU: resource.MustParse("1"), v1.ResourceMemory: memory}
	return &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{{Resources: v1.ResourceRequirements{Requests: requests}}}}}
}
