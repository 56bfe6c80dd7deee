package plugintest

import (
	"fmt"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evictd/evictd/scheduleradapter/framework"
	"github.com/evictd/evictd/scheduleradapter/nodetable"
)

// Bench measures a scheduling cycle with one plugin: filter and score all nodes,
// select one, place the pod, with 10,000 placed pods on 500, 5,000 and 20,000 nodes
// in three zones. finish changes all new pods and each every-th placed pod; the
// others have the label app=other. A placed pod is removed after as many more were
// placed as a fifth of the nodes, at most 1,000.
func Bench(b *testing.B, factory framework.Factory, args any, every int, finish func(*v1.Pod)) {
	const running = 10_000
	for _, nodes := range []int{500, 5_000, 20_000} {
		coming := min(nodes/5, 1_000)
		b.Run(fmt.Sprint(nodes, " nodes"), func(b *testing.B) {
			c := New(b)
			for i := range nodes {
				name := fmt.Sprint("node-", i)
				c.Table.SetNode(nodetable.NewNode(&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{
					v1.LabelHostname: name, v1.LabelTopologyZone: fmt.Sprint("zone-", i%3),
				}}}))
			}
			pod := func(i int) *nodetable.Pod {
				p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint(i), UID: types.UID(fmt.Sprint(i)), Namespace: "default", Labels: map[string]string{"app": "web"}}}
				if i%every == 0 || i >= running {
					finish(p)
				} else {
					p.Labels["app"] = "other"
				}
				return c.Digest(p)
			}
			for i := range running {
				c.Table.Place(pod(i), nodetable.Row(i%nodes))
			}
			pods := make([]*nodetable.Pod, coming)
			for i := range pods {
				pods[i] = pod(running + i)
			}
			runner, err := framework.New("", plan(c.Make(factory, args)))
			if err != nil {
				b.Fatal(err)
			}
			var cycle framework.Cycle
			next := 0
			step := func() {
				pod := pods[next%coming]
				next++
				c.Table.Displace(pod.UID)
				if row := best(b, runner, &cycle, c.Table, pod); row != nodetable.NoRow {
					c.Table.Place(pod, row)
				}
			}
			for range 2 * coming {
				step()
			}
			b.ReportAllocs()
			for b.Loop() {
				step()
			}
		})
	}
}

// best is a row with the highest score; NoRow: the pod does not fit.
func best(b *testing.B, runner *framework.Runner, c *framework.Cycle, table *nodetable.Table, pod *nodetable.Pod) nodetable.Row {
	if s := runner.Begin(c, table, pod, nil); !s.OK() {
		b.Fatal(s.Message())
	}
	if _, s := runner.Filter(c, 0, table.Len()); !s.OK() {
		b.Fatal(s.Message())
	}
	if c.Feasible.Empty() {
		return nodetable.NoRow
	}
	if s := runner.Score(c); !s.OK() {
		b.Fatal(s.Message())
	}
	at := 0
	for i, total := range c.Totals {
		if total > c.Totals[at] {
			at = i
		}
	}
	return c.Rows[at]
}
