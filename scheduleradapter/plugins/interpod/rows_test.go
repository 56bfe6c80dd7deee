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

// signFilter is the signature of the filter for a pod.
func signFilter(t *testing.T, cluster *plugintest.Cluster, plugin *Plugin, pod *v1.Pod) (s framework.Signature) {
	t.Helper()
	c := &framework.Cycle{Table: cluster.Table, Pod: cluster.Digest(pod)}
	if width, ok := plugin.SignFilter(c, &s); width == 0 || !ok {
		t.Fatalf("the plugin has %d values, %t", width, ok)
	}
	return s
}

// TestSignatureHasTheNumberOfAffinityTerms: affinity rejects a node without the topology key,
// and anti-affinity does not.
func TestSignatureHasTheNumberOfAffinityTerms(t *testing.T) {
	cluster := plugintest.New(t, node("a rack=1 zone=1"), node("b rack=1 zone=1"))
	plugin := cluster.Make(New, &config.InterPodAffinityArgs{HardPodAffinityWeight: new(int32(1))}).(*Plugin)
	cluster.Table.Topology(nodetable.Intern("rack"))
	cluster.Place(pod("1", "db", without(pods("near", "zone"))), "a")
	cluster.Place(pod("2", "db", without(pods("far", "rack"), pods("far", "zone"))), "a")
	near := signFilter(t, cluster, plugin, pod("p", "near", with(pods("db", "rack"))))
	if far := signFilter(t, cluster, plugin, pod("p", "far")); near == far {
		t.Error("the signature is the same for a pod with affinity by rack and for one that other pods refuse by rack")
	}
}

// TestGroupsThatAreApartByZoneHaveOneSignature: the numbers of matching pods in zones are no
// results of rows.
func TestGroupsThatAreApartByZoneHaveOneSignature(t *testing.T) {
	cluster := plugintest.New(t, node("a zone=1"), node("b zone=1"))
	plugin := cluster.Make(New, &config.InterPodAffinityArgs{HardPodAffinityWeight: new(int32(1))}).(*Plugin)
	sign := func(app, key string) framework.Signature {
		return signFilter(t, cluster, plugin, pod("p", app, without(pods(app, "zone"), pods(app, key))))
	}
	if sign("web", "zone") != sign("db", "zone") {
		t.Error("the signatures differ")
	}
	if sign("web", v1.LabelHostname) == sign("db", v1.LabelHostname) {
		t.Error("the signature is the same for groups that are apart by host name")
	}
}
