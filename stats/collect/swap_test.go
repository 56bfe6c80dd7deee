package collect

import (
	"log/slog"
	"os"
	"testing"

	"github.com/evictd/evictd/cgroup"
	"github.com/evictd/evictd/internal/require"
	"github.com/evictd/evictd/stats"
)

// rule: 1.26
func TestSwapIsReadOfTheMachineAndOfEachPod(t *testing.T) {
	const pod1, pod2 = "/kubepods/besteffort/podabcd", "/kubepods.slice/kubepods-pod99998888_7777_4666_8555_444433332222.slice"
	for name, test := range map[string]struct {
		version, pod, file, content string
		root                        string
		want                        stats.Amount
	}{
		"v1":                            {version: "v1", pod: pod1, file: "memory/kubepods/besteffort/podabcd/memory.stat", content: "swap 1\ntotal_swap 4096\n", root: "", want: stats.Known(4096)},
		"v1 without swap accounting":    {version: "v1", pod: pod1, file: "memory/kubepods/besteffort/podabcd/memory.stat", content: "cache 1\ntotal_cache 1\n", root: "/kubepods"},
		"v2":                            {version: "v2", pod: pod2, file: pod2 + "/memory.swap.current", content: "8192\n", root: "", want: stats.Known(8192)},
		"v2 and a group as the node":    {version: "v2", pod: pod2, file: pod2 + "/memory.swap.current", content: "0\n", root: "/kubepods.slice", want: stats.Known(0)},
		"v2 of a kernel without swap":   {version: "v2", pod: pod2, file: "unrelated", root: ""},
		"v2 and a file that holds text": {version: "v2", pod: pod2, file: pod2 + "/memory.swap.current", content: "x\n", root: ""},
	} {
		t.Run(name, func(t *testing.T) {
			host := t.TempDir()
			require.NoError(t, os.CopyFS(host, os.DirFS("../../cgroup/testdata/"+test.version)))
			put(t, host+"/sys/fs/cgroup/"+test.file, test.content)
			meminfo := string(require.ReadFile(t, host+"/proc/meminfo"))
			put(t, host+"/proc/meminfo", "SwapTotal: 2048 kB\nSwapFree: 1024 kB\n"+meminfo)
			s, err := cgroup.Discover(host)
			require.NoError(t, err)
			n, _ := newNode(t, NodeConfig{Host: host, Cgroups: s, Root: test.root}, Paths{NodeFs: host})
			var node stats.Node
			n.Read(&node, Ask{})
			if want := (stats.Swap{Total: stats.Known(2 << 20), Free: stats.Known(1 << 20)}); node.Swap != want {
				t.Errorf("the machine's swap is %v, want %v", node.Swap, want)
			}
			p := NewPod(PodConfig{Cgroups: s, Cgroup: test.pod})
			t.Cleanup(p.Close)
			var got stats.Pod
			require.NoError(t, p.ReadMemory(&got, true))
			if got.Swap != test.want || !got.Memory.IsKnown() {
				t.Errorf("the pod's swap is %v, want %v; memory %v", got.Swap, test.want, got.Memory)
			}
		})
	}
}

func TestAMachineWhoseMeminfoHasNoSwapHasNone(t *testing.T) {
	s, host := fixture(t) // captured without these lines
	n, logged := newNode(t, NodeConfig{Host: host, Cgroups: s}, Paths{NodeFs: host})
	var node stats.Node
	n.Read(&node, Ask{})
	if node.Swap != (stats.Swap{}) || logged.Len() > 0 {
		t.Errorf("swap %v, logged %s", node.Swap, logged)
	}
	n = NewNode(NodeConfig{Virtual: &VirtualMemory{}, Disks: runDisks(t, Paths{NodeFs: host}, slog.DiscardHandler)}, slog.New(slog.DiscardHandler))
	t.Cleanup(n.Close)
	for _, src := range n.sources {
		if src.name == "swap" {
			t.Error("a virtual node has the swap of its host")
		}
	}
}
