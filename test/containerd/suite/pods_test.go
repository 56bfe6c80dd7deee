package suite_test

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/evictd/evictd/test/containerd/node"
)

func TestPodRunsAndDoesAsItIsTold(t *testing.T) {
	node.Each(t, func(t *testing.T, v node.Version) {
		n := node.Start(t, v, node.Options{})
		p := n.Pod("hog", node.Spec{Requests: map[v1.ResourceName]string{v1.ResourceMemory: "16Mi"}, EmptyDirs: map[string]string{"scratch": ""}})
		p.Do("hold", 32*node.MiB)
		p.Do("write", "/scratch/file", 4*node.MiB, 0)
		s := node.Call(n, n.Runtime.ListContainerStats, &runtime.ListContainerStatsRequest{})
		t.Log(s)
		s2 := node.Call(n, n.Runtime.ListPodSandboxStats, &runtime.ListPodSandboxStatsRequest{})
		t.Log(s2)
		p.Remove()
	})
}
