package suite_test

import (
	"testing"

	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/evictd/evictd/test/containerd/node"
)

func TestRunningContainersHaveStats(t *testing.T) {
	t.Parallel()
	node.Each(t, func(t *testing.T, v node.Version) {
		n := node.Start(t, v, node.Options{})
		p := n.Pod("busy", node.Spec{Requests: memory("16Mi"), EmptyDirs: scratch})
		p.Do("hold", 32*node.MiB)
		p.Do("write", "/layer", 4*node.MiB, 0)
		p.Do("write", "/scratch/volume", 4*node.MiB, 0)
		of := &runtime.ContainerStatsRequest{ContainerId: p.Containers[0].ID}
		var s *runtime.ContainerStats
		node.Await(t, "the writable layer to be counted", func() bool {
			s = node.Call(n, n.Runtime.ContainerStats, of).Stats
			return s.WritableLayer.GetUsedBytes().GetValue() >= 4*node.MiB
		})
		if used := s.WritableLayer.UsedBytes.Value; used >= 8*node.MiB {
			t.Errorf("writable layer of %d bytes: the volume's are counted", used)
		}
		if set := s.Memory.GetWorkingSetBytes().GetValue(); set < 32*node.MiB || set > 64*node.MiB {
			t.Errorf("working set of %d bytes, 32 MiB are held", set)
		}
		pods := node.Call(n, n.Runtime.ListPodSandboxStats, &runtime.ListPodSandboxStatsRequest{}).Stats
		if len(pods) != 1 || pods[0].Linux.GetMemory().GetWorkingSetBytes().GetValue() < 32*node.MiB || len(pods[0].Linux.Containers) != 1 {
			t.Errorf("unexpected stats of pods %v", pods)
		}
	})
}

// What a client of CRI has to get over.
func TestExitedContainersHaveHalfOfTheStats(t *testing.T) {
	t.Parallel()
	node.Each(t, func(t *testing.T, v node.Version) {
		n := node.Start(t, v, node.Options{})
		p := n.Pod("done", node.Spec{Orders: []string{"exit 3"}})
		if status := p.Containers[0].AwaitExit(); status.ExitCode != 3 {
			t.Errorf("exit code %d", status.ExitCode)
		}
		stats, err := n.Runtime.ContainerStats(t.Context(), &runtime.ContainerStatsRequest{ContainerId: p.Containers[0].ID})
		if err == nil {
			t.Errorf("stats %v of an exited container", stats)
		}
		all := node.Call(n, n.Runtime.ListContainerStats, &runtime.ListContainerStatsRequest{}).Stats
		if len(all) != 1 || all[0].Cpu != nil || all[0].Memory != nil || all[0].WritableLayer == nil {
			t.Errorf("stats %v, want a writable layer only", all)
		}
		pods := node.Call(n, n.Runtime.ListPodSandboxStats, &runtime.ListPodSandboxStatsRequest{}).Stats
		if len(pods) != 1 || pods[0].Linux.GetMemory() == nil {
			t.Errorf("stats of pods %v, want those of the sandbox", pods)
		}
	})
}
