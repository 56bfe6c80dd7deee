package simulate_test

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/evictd/evictd/internal/require"
	"github.com/evictd/evictd/scheduleradapter"
)

// BenchmarkSimulate runs the command with the manifests of 5,000 nodes and 20,000
// pods of 200 deployments.
func BenchmarkSimulate(b *testing.B) {
	manifests := filepath.Join(b.TempDir(), "cluster.yaml")
	writeCluster(b, manifests, 5_000, 20_000)
	for _, format := range []string{"text", "json"} {
		b.Run(format, func(b *testing.B) {
			var out counted
			b.ReportAllocs()
			for b.Loop() {
				out = 0
				root := scheduleradapter.NewCommand("test")
				root.SetOut(&out)
				root.SetErr(io.Discard)
				if code := scheduleradapter.Execute(b.Context(), root, []string{"simulate", "-o", format, manifests}); code != 0 {
					b.Fatalf("exit %d", code)
				}
			}
			b.ReportMetric(float64(out), "output-bytes")
		})
	}
}

// counted counts the bytes of the output.
type counted int64

func (c *counted) Write(p []byte) (int, error) {
	*c += counted(len(p))
	return len(p), nil
}

func writeCluster(b *testing.B, name string, nodes, pods int) {
	file, err := os.Create(name)
	require.NoError(b, err)
	out := bufio.NewWriter(file)
	for i := range nodes {
		fmt.Fprintf(out, `---
apiVersion: v1
kind: Node
metadata: {name: node-%d, labels: {kubernetes.io/hostname: node-%[1]d, topology.kubernetes.io/zone: zone-%d}}
status: {allocatable: {cpu: "4", memory: 32Gi, pods: "110"}}
`, i, i%3)
	}
	for i := range pods {
		fmt.Fprintf(out, `---
apiVersion: v1
kind: Pod
metadata: {name: pod-%d, namespace: default, labels: {app: app-%d}}
spec: {containers: [{name: c, image: "app:1", resources: {requests: {cpu: 100m, memory: %dMi}}}]}
`, i, i%200, 400+i%200)
	}
	require.NoError(b, out.Flush())
	require.NoError(b, file.Close())
}
