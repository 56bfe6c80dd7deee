package ports

import (
	"fmt"
	"maps"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evictd/evictd/scheduleradapter/framework"
	"github.com/evictd/evictd/scheduleradapter/nodetable"
	"github.com/evictd/evictd/scheduleradapter/plugins/plugintest"
)

func node(name string) *v1.Node { return &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}} }

func port(number int32, ip string, protocol v1.Protocol) v1.ContainerPort {
	return v1.ContainerPort{HostPort: number, HostIP: ip, Protocol: protocol}
}

func pod(name string, ports ...v1.ContainerPort) *v1.Pod {
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)}, Spec: v1.PodSpec{Containers: []v1.Container{{Ports: ports}}}}
}

const rejected = "node(s) didn't have free ports for the requested pod ports"

func TestPortOfTheHostIsTakenOnce(t *testing.T) {
	always := v1.ContainerRestartPolicyAlways
	initially := func(p *v1.Pod, policy *v1.ContainerRestartPolicy) *v1.Pod {
		p.Spec.InitContainers, p.Spec.Containers = p.Spec.Containers, nil
		p.Spec.InitContainers[0].RestartPolicy = policy
		return p
	}
	for _, c := range []struct {
		name            string
		running, coming *v1.Pod
		want            string
	}{
		{"one of several", pod("r", port(80, "", ""), port(81, "", "")), pod("c", port(90, "", ""), port(81, "", "")), rejected},
		{"a port of the pod only", pod("r", v1.ContainerPort{ContainerPort: 80}), pod("c", v1.ContainerPort{ContainerPort: 80}), ""},
		{"a sidecar holds its port", initially(pod("r", port(80, "", "")), &always), pod("c", port(80, "", "")), rejected},
		{"an init container does not", initially(pod("r", port(80, "", "")), nil), pod("c", port(80, "", "")), ""},
		{"nor does one ask for it", pod("r", port(80, "", "")), initially(pod("c", port(80, "", "")), nil), ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			cluster := plugintest.New(t, node("busy"), node("free"))
			cluster.Place(c.running, "busy")
			want := map[string]string{}
			if c.want != "" {
				want["busy"] = c.want
			}
			if got := cluster.Evaluate(cluster.Make(New, nil), cluster.Digest(c.coming)).Rejected; !maps.Equal(got, want) {
				t.Errorf("rejected %v, want %v", got, want)
			}
		})
	}
}

func TestPortIsFreeWhereItsHolderWouldBeGone(t *testing.T) {
	cluster := plugintest.New(t, node("n"))
	cluster.Place(pod("r", port(80, "", "")), "n")
	result := cluster.Evaluate(cluster.Make(New, nil), cluster.Digest(pod("c", port(80, "", ""))))
	cluster.Table.Try()
	cluster.Table.Displace("r")
	if fits, _, s := result.Cycle.Fits(0); !fits || !s.OK() {
		t.Errorf("fits %t (%+v) without the holder", fits, s)
	}
	cluster.Table.Undo()
	if fits, _, _ := result.Cycle.Fits(0); fits {
		t.Error("fits with the holder back")
	}
}

func TestHolderOfAPortThatLeftQueuesThePod(t *testing.T) {
	cluster := plugintest.New(t)
	wants := cluster.Digest(pod("c", port(80, "", "")))
	for _, c := range []struct {
		name string
		left *v1.Pod
		want framework.Hint
	}{
		{"it held the port", pod("r", port(80, "10.0.0.1", "")), framework.Queue},
		{"it held another", pod("r", port(81, "", "")), framework.QueueSkip},
		{"it held none", pod("r"), framework.QueueSkip},
	} {
		if got, err := podLeft(&framework.Occurrence{OldPod: cluster.Digest(c.left)}, wants); err != nil || got != c.want {
			t.Errorf("%s: hint %d (%v), want %d", c.name, got, err, c.want)
		}
	}
}

// BenchmarkNodePorts is Filter for a pod whose port is in use on every second node.
func BenchmarkNodePorts(b *testing.B) {
	for _, nodes := range []int{500, 5_000, 20_000} {
		b.Run(fmt.Sprint(nodes, " nodes"), func(b *testing.B) {
			cluster := plugintest.New(b)
			for i := range nodes {
				cluster.Table.SetNode(nodetable.NewNode(node(fmt.Sprint("node-", i))))
				if i%2 == 0 {
					cluster.Table.Place(cluster.Digest(pod(fmt.Sprint("pod-", i), port(80, "", ""))), nodetable.Row(i))
				}
			}
			plugin, pod := cluster.Make(New, nil).(*Plugin), cluster.Digest(pod("coming", port(80, "", "")))
			c := cluster.Evaluate(plugin, pod).Cycle
			b.ReportAllocs()
			for b.Loop() {
				c.Feasible = c.Feasible.Copied(cluster.Table.Alive())
				plugin.Filter(c)
			}
		})
	}
}
