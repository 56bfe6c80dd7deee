package suite_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/evictd/evictd/internal/require"
	"github.com/evictd/evictd/test/containerd/node"
)

// manifests is a directory with the manifests of pods.
func manifests(t *testing.T, pods ...*node.Pod) (dir string) {
	t.Helper()
	dir = t.TempDir()
	for _, p := range pods {
		text, err := json.Marshal(p.Pod)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(dir, p.Name+".json"), text, 0o644))
	}
	return dir
}

func storage(limit string) map[v1.ResourceName]string {
	return map[v1.ResourceName]string{v1.ResourceEphemeralStorage: limit}
}

// total is said of a pod beyond the limits of its containers together, which the
// kubelet looks at first.
const total = "Pod ephemeral local storage usage exceeds the total limit of containers 4Mi. "

func TestPodsBeyondTheirStorageLimitsGoWithoutAnyPressure(t *testing.T) {
	t.Parallel()
	node.Each(t, func(t *testing.T, v node.Version) {
		n := node.Start(t, v, node.Options{})
		over := map[*node.Pod]string{}
		run := func(name, because string, s node.Spec, order string, args ...any) *node.Pod {
			p := n.Pod(name, s)
			p.Do(order, args...)
			if because != "" {
				over[p] = because
			}
			return p
		}
		all := []*node.Pod{
			run("volume", `Usage of EmptyDir volume "scratch" exceeds the limit "4Mi". `, node.Spec{EmptyDirs: map[string]string{"scratch": "4Mi"}}, "write", "/scratch/file", 5*node.MiB, 0),
			run("layer", total, node.Spec{Limits: storage("4Mi")}, "write", "/file", 5*node.MiB, 0),
			run("log", total, node.Spec{Limits: storage("4Mi")}, "print", 5*node.MiB),
			run("deleted", total, node.Spec{Limits: storage("4Mi")}, "unlinked", "/file", 5*node.MiB),
			run("deleted-volume", total, node.Spec{Limits: storage("4Mi"), EmptyDirs: scratch}, "unlinked", "/scratch/file", 5*node.MiB),
			run("within", "", node.Spec{Limits: storage("16Mi"), EmptyDirs: map[string]string{"scratch": "8Mi"}}, "write", "/scratch/file", 5*node.MiB, 0),
		}
		e := n.Evictd("--nodefs="+n.Kubelet, "--pod-manifests="+manifests(t, all...))
		for p, because := range over {
			if evicted := e.AwaitEviction(p); evicted.Message != because {
				t.Errorf("pod %s: %q, want %q", p.Name, evicted.Message, because)
			}
		}
		if status := e.Status(); len(status.Evictions) != len(over) || len(status.Taints) > 0 || !all[len(all)-1].Lives() {
			t.Errorf("evictions %+v, taints %v; want those of pods beyond their limits alone", status.Evictions, status.Taints)
		}
	})
}

func TestPodWithAManifestIsKnownExactlyAndOneWithoutByTheRuntime(t *testing.T) {
	t.Parallel()
	n := node.Start(t, node.Built, node.Options{})
	exact := n.Pod("exact", node.Spec{Requests: memory("48Mi"), Limits: memory("128Mi"), Priority: 7})
	estimated := n.Pod("estimated", node.Spec{Requests: memory("48Mi"), Limits: memory("128Mi"), Priority: 7})
	e := n.Evictd("--pod-manifests=" + manifests(t, exact))
	e.AwaitPods(2)
	ranking := e.Status().Ranking["memory.available"]
	if len(ranking) != 2 {
		t.Fatalf("ranking %+v, want two pods", ranking)
	}
	for _, r := range ranking {
		switch {
		case r.QOSClass != v1.PodQOSBurstable:
			t.Errorf("pod %s has class %s", r.Pod, r.QOSClass)
		case r.UID == exact.UID && (r.Estimated || r.Priority != 7 || r.Request != "48Mi"):
			t.Errorf("pod %+v, want it as in its manifest", r)
		case r.UID == estimated.UID && (!r.Estimated || r.Priority != 0):
			t.Errorf("pod %+v, want it estimated", r)
		}
	}
}
