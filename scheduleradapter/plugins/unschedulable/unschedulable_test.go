package unschedulable

import (
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/evictd/evictd/scheduleradapter/framework"
	"github.com/evictd/evictd/scheduleradapter/plugins/plugintest"
)

func TestSignatureHasTheTolerationOfCordonedNodes(t *testing.T) {
	cluster := plugintest.New(t)
	plugin := cluster.Make(New, nil).(*Plugin)
	sign := func(tolerations ...v1.Toleration) (s framework.Signature) {
		pod := cluster.Digest(&v1.Pod{Spec: v1.PodSpec{Tolerations: tolerations}})
		if _, ok := plugin.SignFilter(&framework.Cycle{Table: cluster.Table, Pod: pod}, &s); !ok {
			t.Fatal("the pod has no signature")
		}
		return s
	}
	none, other := sign(), sign(v1.Toleration{Key: "spot", Operator: v1.TolerationOpExists})
	if none != other {
		t.Error("the signature has another toleration")
	}
	if sign(v1.Toleration{Key: v1.TaintNodeUnschedulable, Operator: v1.TolerationOpExists}) == none {
		t.Error("the signature has no toleration of cordoned nodes")
	}
}
