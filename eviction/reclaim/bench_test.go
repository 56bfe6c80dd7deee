package reclaim_test

import (
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/evictd/evictd/eviction"
	"github.com/evictd/evictd/eviction/reclaim"
	"github.com/evictd/evictd/stats"
)

// BenchmarkChoose chooses on a node of 500 containers, most of them dead, and
// 300 images.
func BenchmarkChoose(b *testing.B) {
	inv := &reclaim.Inventory{Complete: true, Pods: map[types.UID]reclaim.Pod{}}
	for i := range 500 {
		pod := types.UID(fmt.Sprint("pod", i%110))
		inv.Pods[pod] = reclaim.Pod{}
		inv.Containers = append(inv.Containers, reclaim.Container{
			ID: fmt.Sprint("c", i), Pod: pod, Name: "c", Sandbox: string(pod), Image: fmt.Sprint("i", i%100), Running: i < 110,
			Created: now.Add(-time.Duration(i) * time.Minute), Layer: stats.Known(int64(i)),
		})
	}
	for i := range 300 {
		inv.Images = append(inv.Images, reclaim.Image{ID: fmt.Sprint("i", i), Size: stats.Known(1 << 20), LastUsed: now.Add(-time.Duration(i*7%300) * time.Minute)})
	}
	inv.AddUsers()
	p := &reclaim.Policy{MaxPerPodContainer: 1, MaxContainers: -1}
	g := reclaim.Goal{Containers: true, Images: true, Pressure: true, Need: eviction.Need{Bytes: 100 << 20, Layers: true}}
	b.ReportAllocs()
	for b.Loop() {
		if plan := reclaim.Choose(inv, p, g, now); len(plan.Removals) == 0 {
			b.Fatal("nothing goes")
		}
	}
}
