package nodestatus_test

import (
	"fmt"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/evictd/evictd/nodestatus"
)

func TestOnlyWhatAnEvictdHasWrittenIsLeftOver(t *testing.T) {
	const ours, builtIn = "evictd.io/MemoryPressure", "MemoryPressure"
	for _, c := range []struct {
		mode   nodestatus.Mode
		writes bool
		ready  string // the reason
		want   string
	}{
		{nodestatus.Native, true, nodestatus.ReasonReady, ours},
		{nodestatus.Native, false, nodestatus.ReasonReady, ours + " " + builtIn},
		{nodestatus.Native, true, "KubeletReady", ours},
		{nodestatus.Backstop, true, nodestatus.ReasonReady, builtIn},
		{nodestatus.Backstop, true, "KubeletReady", ""},
		{nodestatus.Backstop, false, "KubeletReady", ours},
		{nodestatus.Takeover, true, "", ""},
		{nodestatus.Observe, false, "", ours},
		{nodestatus.Observe, false, nodestatus.ReasonReady, ours + " " + builtIn},
	} {
		t.Run(fmt.Sprintf("%s, writes %t, Ready by %s", c.mode, c.writes, c.ready), func(t *testing.T) {
			foreign := v1.Taint{Key: v1.TaintNodeMemoryPressure, Effect: v1.TaintEffectNoExecute}
			node := &v1.Node{
				Spec:   v1.NodeSpec{Taints: []v1.Taint{{Key: v1.TaintNodeMemoryPressure, Effect: v1.TaintEffectNoSchedule}, {Key: "evictd.io/memory-pressure", Effect: v1.TaintEffectNoSchedule}, foreign}},
				Status: v1.NodeStatus{Conditions: []v1.NodeCondition{{Type: v1.NodeReady, Reason: c.ready}, {Type: builtIn}, {Type: ours}}},
			}
			left := c.mode.Leftover(node, c.writes)
			var is []string
			for _, kind := range left.Conditions {
				is = append(is, string(kind))
			}
			if got := strings.Join(is, " "); got != c.want {
				t.Errorf("conditions %q, want %q", got, c.want)
			}
			kept, changed := left.Without(node.Spec.Taints)
			if want := len(strings.Fields(c.want)); len(left.Taints) != want || len(kept) != 3-want || changed != (want > 0) || kept[len(kept)-1] != foreign {
				t.Errorf("taints %v, kept %v, changed %t", left.Taints, kept, changed)
			}
		})
	}
}
