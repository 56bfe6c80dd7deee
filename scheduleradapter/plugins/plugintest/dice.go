package plugintest

import (
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evictd/evictd/scheduleradapter/nodetable"
)

// Dice makes random objects with few distinct labels, so that selectors often
// match.
type Dice struct {
	Random interface{ IntN(n int) int }
}

// Namespaces are those that pods are in.
func (Dice) Namespaces() []string { return []string{"blue", "green", "red"} }

// Topologies are the node labels that divide the nodes.
func (Dice) Topologies() []string {
	return []string{v1.LabelHostname, v1.LabelTopologyZone, "rack"}
}

// Chance is true with a probability in percent.
func (d Dice) Chance(percent int) bool { return d.Random.IntN(100) < percent }

// Pick returns one of the values.
func Pick[T any](d Dice, of ...T) T { return of[d.Random.IntN(len(of))] }

// Labels of a pod or a namespace.
func (d Dice) Labels() map[string]string {
	labels := map[string]string{}
	for _, key := range []string{"app", "tier"} {
		if d.Chance(60) {
			labels[key] = Pick(d, "1", "2")
		}
	}
	return labels
}

// Node is in a zone and a rack or in neither, and may have a taint.
func (d Dice) Node(name string) *v1.Node {
	n := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{}}}
	if d.Chance(95) {
		n.Labels[v1.LabelHostname] = Pick(d, name, name, name, name, name, name, name, "shared")
	}
	if d.Chance(90) {
		n.Labels[v1.LabelTopologyZone] = Pick(d, "a", "b", "c")
	}
	if d.Chance(70) {
		n.Labels["rack"] = Pick(d, "1", "2", "3", "4")
	}
	if d.Chance(50) {
		n.Labels["disk"] = Pick(d, "ssd", "hdd")
	}
	if d.Chance(20) {
		n.Spec.Taints = []v1.Taint{{Key: Pick(d, "spot", "gpu"), Effect: Pick(d, v1.TaintEffectNoSchedule, v1.TaintEffectNoExecute, v1.TaintEffectPreferNoSchedule)}}
	}
	return n
}

// Pod is in one of the namespaces, and may be terminating.
func (d Dice) Pod(name string) *v1.Pod {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), Namespace: Pick(d, d.Namespaces()...), Labels: d.Labels()}}
	if d.Chance(10) {
		p.DeletionTimestamp = &metav1.Time{}
	}
	if d.Chance(25) {
		p.Spec.NodeSelector = map[string]string{"disk": Pick(d, "ssd", "hdd")}
	}
	if d.Chance(25) {
		p.Spec.Tolerations = []v1.Toleration{{Key: Pick(d, "spot", "gpu"), Operator: v1.TolerationOpExists}}
	}
	return p
}

// Selector of pods or namespaces; it may be nil or empty.
func (d Dice) Selector() *metav1.LabelSelector {
	if d.Chance(4) {
		return nil
	}
	s := &metav1.LabelSelector{}
	if d.Chance(65) {
		s.MatchLabels = map[string]string{Pick(d, "app", "tier"): Pick(d, "1", "2")}
	}
	if d.Chance(35) {
		e := metav1.LabelSelectorRequirement{Key: Pick(d, "app", "tier"), Operator: Pick(d, metav1.LabelSelectorOpIn, metav1.LabelSelectorOpNotIn, metav1.LabelSelectorOpExists, metav1.LabelSelectorOpDoesNotExist)}
		if e.Operator == metav1.LabelSelectorOpIn || e.Operator == metav1.LabelSelectorOpNotIn {
			e.Values = []string{Pick(d, "1", "2")}
		}
		s.MatchExpressions = append(s.MatchExpressions, e)
	}
	return s
}

// Objects has the objects of a table.
type Objects struct {
	*Cluster
	Nodes      []*v1.Node
	Pods       []*v1.Pod // with spec.nodeName
	Namespaces map[string]map[string]string
}

// Objects makes at most so many nodes and pods. finish changes each pod.
func (d Dice) Objects(c *Cluster, nodes, pods int, finish func(*v1.Pod)) *Objects {
	w := &Objects{Cluster: c, Namespaces: map[string]map[string]string{}}
	for _, name := range d.Namespaces() {
		w.Namespaces[name] = d.Labels()
		c.Table.SetNamespace(name, nodetable.NewLabels(w.Namespaces[name]))
	}
	for i := range 1 + d.Random.IntN(nodes) {
		n := d.Node(fmt.Sprint("n", i))
		w.Nodes = append(w.Nodes, n)
		c.Table.SetNode(nodetable.NewNode(n))
	}
	for i := range d.Random.IntN(pods) {
		p := d.Pod(fmt.Sprint("p", i))
		finish(p)
		p.Spec.NodeName = Pick(d, w.Nodes...).Name
		w.Pods = append(w.Pods, p)
		c.Place(p, p.Spec.NodeName)
	}
	return w
}

// On are the pods of a node.
func (w *Objects) On(node *v1.Node) []*v1.Pod {
	var pods []*v1.Pod
	for _, p := range w.Pods {
		if p.Spec.NodeName == node.Name {
			pods = append(pods, p)
		}
	}
	return pods
}

// Suppose removes and adds pods in an open try of the table, and returns the
// resulting Objects.
func (w *Objects) Suppose(d Dice, finish func(*v1.Pod)) *Objects {
	changed := *w
	changed.Pods = slices.Clone(w.Pods)
	for range d.Random.IntN(4) {
		if n := len(changed.Pods); n > 0 {
			i := d.Random.IntN(n)
			w.Table.Displace(changed.Pods[i].UID)
			changed.Pods = slices.Delete(changed.Pods, i, i+1)
		}
	}
	for i := range d.Random.IntN(3) {
		p := d.Pod(fmt.Sprint("supposed", i))
		finish(p)
		p.Spec.NodeName = Pick(d, w.Nodes...).Name
		w.Table.Place(w.Digest(p), w.Table.Row(nodetable.Intern(p.Spec.NodeName)))
		changed.Pods = append(changed.Pods, p)
	}
	return &changed
}
