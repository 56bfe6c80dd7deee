package interpod

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	config "k8s.io/kube-scheduler/config/v1"

	"github.com/evictd/evictd/scheduleradapter/framework"
	"github.com/evictd/evictd/scheduleradapter/nodetable"
	"github.com/evictd/evictd/scheduleradapter/plugins/plugintest"
)

// TestSignatureHasTheTopologiesWithDomainsOfOneNode: a class has the score of a node for
// these, and the domain for others.
func TestSignatureHasTheTopologiesWithDomainsOfOneNode(t *testing.T) {
	cluster := plugintest.New(t, node("a"), node("b"))
	plugin := cluster.Make(New, &config.InterPodAffinityArgs{HardPodAffinityWeight: new(int32(1))}).(*Plugin)
	cluster.Place(pod("running", "db"), "a")
	attempted := cluster.Digest(pod("web", "web", func(p *v1.Pod) {
		p.Spec.Affinity = &v1.Affinity{PodAffinity: &v1.PodAffinity{PreferredDuringSchedulingIgnoredDuringExecution: []v1.WeightedPodAffinityTerm{
			{Weight: 1, PodAffinityTerm: pods("db", "rack")}, {Weight: 1, PodAffinityTerm: pods("db", "zone")},
		}}}
	}))
	sign := func(nodes ...string) (s framework.Signature) {
		for _, text := range nodes {
			cluster.Table.SetNode(nodetable.NewNode(node(text)))
		}
		c := &framework.Cycle{Table: cluster.Table, Pod: attempted}
		if width, ok := plugin.SignClasses(c, &s); width != 2 || !ok {
			t.Fatalf("the plugin has %d values, %t, want 2", width, ok)
		}
		return s
	}
	racks := sign("a rack=1 zone=1", "b rack=2 zone=1")
	zones := sign("a rack=1 zone=1", "b rack=1 zone=2")
	if racks == zones {
		t.Error("the signature is the same for racks of one node and for zones of one node")
	}
	if again := sign("a rack=1 zone=1", "b rack=2 zone=1"); again != racks {
		t.Error("the signature is not the same for equal nodes")
	}
}
