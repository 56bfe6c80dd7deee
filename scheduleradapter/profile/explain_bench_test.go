package profile

import (
	"fmt"
	"log/slog"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/evictd/evictd/internal/require"
	"github.com/evictd/evictd/scheduleradapter/config"
	"github.com/evictd/evictd/scheduleradapter/cycle"
	"github.com/evictd/evictd/scheduleradapter/framework"
)

// BenchmarkExplain measures how long a request occupies the loop, with the default
// profile, 5,000 nodes with four pods each, and a short or a long queue.
func BenchmarkExplain(b *testing.B) {
	for _, waiting := range []int{1, 10_000} {
		cfg, err := config.Compile(&config.File{}, BuiltIn())
		require.NoError(b, err)
		env, stores := environment()
		scheduler, err := cycle.New(time.Time{}, cycle.Config{Table: env.Table, Env: env, Profiles: func(env framework.Env) ([]cycle.Profile, error) {
			return New(&cfg, env, stores, nil, slog.New(slog.DiscardHandler))
		}}, nil)
		require.NoError(b, err)
		crowd(b, scheduler.Table, 5_000, 0)
		for i := range waiting {
			scheduler.Queue.Add(time.Time{}, crowded(b, fmt.Sprint("full-", i), 0))
		}
		half := crowded(b, "half", 0, func(p *v1.Pod) {
			p.Spec.Containers[0].Resources.Requests = v1.ResourceList{v1.ResourceMemory: resource.MustParse("1Gi")}
		})
		scheduler.Queue.Add(time.Time{}, half)
		for _, pod := range []string{"full-0", "half", "running-7-3"} {
			b.Run(fmt.Sprintf("%d waiting/%s", waiting, pod), func(b *testing.B) {
				for b.Loop() {
					if _, found := scheduler.Explain(time.Time{}, "default/"+pod); !found {
						b.Fatal("no such pod")
					}
				}
			})
		}
		b.Run(fmt.Sprintf("%d waiting/list", waiting), func(b *testing.B) {
			for b.Loop() {
				scheduler.Pending(0)
			}
		})
		b.Run(fmt.Sprintf("%d waiting/nodes", waiting), func(b *testing.B) {
			for b.Loop() {
				var all cycle.NodeCursor
				scheduler.Next(&all)
				scheduler.Visit(&all, time.Time{}, scheduler.Table.Len())
			}
		})
		b.Run(fmt.Sprintf("%d waiting/changed nodes", waiting), func(b *testing.B) {
			var cursor cycle.NodeCursor
			for b.Loop() {
				scheduler.Next(&cursor)
				scheduler.Visit(&cursor, time.Time{}, scheduler.Table.Len())
			}
		})
	}
}
