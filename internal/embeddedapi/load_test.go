package embeddedapi_test

import (
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"

	"github.com/evictd/evictd/internal/require"
)

// Reports pods bound a second by 32 clients beside a watching informer, and the
// memory of this process, clients included.
func BenchmarkBindingFiveThousandPods(b *testing.B) {
	const nodes, pods, clients = 1000, 5000, 32
	for b.Loop() {
		b.StopTimer()
		s := serve(b, "")
		client := s.client(b)
		ctx := b.Context()
		parallel := func(n int, do func(i int) error) {
			var (
				next atomic.Int64
				all  sync.WaitGroup
			)
			for range clients {
				all.Go(func() {
					for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
						if err := do(i); err != nil {
							b.Error(err)
							return
						}
					}
				})
			}
			all.Wait()
		}
		parallel(nodes, func(i int) error {
			_, err := client.CoreV1().Nodes().Create(ctx, node(fmt.Sprintf("n%d", i)), metav1.CreateOptions{})
			return err
		})
		created := time.Now()
		parallel(pods, func(i int) error {
			_, err := client.CoreV1().Pods("default").Create(ctx, pod(fmt.Sprintf("p%d", i)), metav1.CreateOptions{})
			return err
		})
		b.ReportMetric(pods/time.Since(created).Seconds(), "creates/s")
		factory := informers.NewSharedInformerFactory(client, 0)
		lister := factory.Core().V1().Pods().Lister()
		stop := make(chan struct{})
		factory.Start(stop)
		factory.WaitForCacheSync(stop)
		if list, err := lister.List(everything); err != nil || len(list) != pods {
			b.Fatal(len(list), err)
		}
		b.StartTimer()
		started := time.Now()
		parallel(pods, func(i int) error {
			return client.CoreV1().Pods("default").Bind(ctx, bindTo(fmt.Sprintf("p%d", i)), metav1.CreateOptions{})
		})
		b.ReportMetric(pods/time.Since(started).Seconds(), "binds/s")
		b.StopTimer()
		runtime.GC()
		status := require.ReadFile(b, "/proc/self/status")
		for line := range strings.Lines(string(status)) {
			if strings.HasPrefix(line, "VmRSS") {
				b.Log(strings.TrimSpace(line))
			}
		}
		close(stop)
		factory.Shutdown()
		s.stop()
		b.StartTimer()
	}
}
