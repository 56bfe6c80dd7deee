package avoidance_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evictd/evictd/scheduleradapter/nodetable"
	"github.com/evictd/evictd/scheduleradapter/plugins/avoidance"
	"github.com/evictd/evictd/scheduleradapter/plugins/plugintest"
)

func TestNodesScoreNothingForThosePodsTheyWouldRatherNotHave(t *testing.T) {
	d := plugintest.Dice{Random: rand.New(rand.NewPCG(1, 2))}
	kinds := []string{"ReplicaSet", "ReplicationController", "StatefulSet"}
	for range 500 {
		avoided := map[string]string{} // kind and uid by node
		w := d.Objects(plugintest.New(t), 6, 1, func(*v1.Pod) {})
		c := plugintest.New(t)
		want := map[string]int64{}
		owner := metav1.OwnerReference{Kind: plugintest.Pick(d, kinds...), UID: types.UID(plugintest.Pick(d, "1", "2")), Controller: new(d.Chance(90))}
		for _, n := range w.Nodes {
			want[n.Name] = 100
			kind, uid := plugintest.Pick(d, kinds...), plugintest.Pick(d, "1", "2")
			switch d.Random.IntN(4) {
			case 0:
				n.Annotations = map[string]string{v1.PreferAvoidPodsAnnotationKey: "{not json"}
			case 1, 2:
				n.Annotations = map[string]string{v1.PreferAvoidPodsAnnotationKey: fmt.Sprintf(
					`{"preferAvoidPods": [{"podSignature": {}}, {"podSignature": {"podController": {"apiVersion": "v1", "kind": %q, "name": "x", "uid": %q, "controller": true}}}]}`, kind, uid)}
				avoided[n.Name] = kind + uid
			}
			if *owner.Controller && owner.Kind != "StatefulSet" && avoided[n.Name] == owner.Kind+string(owner.UID) {
				want[n.Name] = 0
			}
		}
		for _, n := range w.Nodes {
			c.Table.SetNode(nodetable.NewNode(n))
		}
		p := d.Pod("p")
		p.OwnerReferences = []metav1.OwnerReference{owner}
		plugintest.Equal(t, "scores", c.Evaluate(c.Make(avoidance.New, nil), c.Digest(p)).Scores, want)
	}
}
