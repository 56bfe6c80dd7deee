package serviceaffinity_test

import (
	"math/rand/v2"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evictd/evictd/scheduleradapter/config"
	"github.com/evictd/evictd/scheduleradapter/nodetable"
	"github.com/evictd/evictd/scheduleradapter/plugins/plugintest"
	"github.com/evictd/evictd/scheduleradapter/plugins/serviceaffinity"
)

// service selects by one label, or has no selector without a key.
type service struct{ namespace, name, key, value string }

func (s service) selects(p *v1.Pod) bool {
	return s.key != "" && s.namespace == p.Namespace && p.Labels[s.key] == s.value
}

// The reference looks at every pod, also inside tries.
func TestServicesKeepTogetherAndSpreadAsTheReferenceSays(t *testing.T) {
	d := plugintest.Dice{Random: rand.New(rand.NewPCG(1, 2))}
	for range 1000 {
		w := d.Objects(plugintest.New(t), 8, 12, func(*v1.Pod) {})
		var services []service
		for i, namespace := range d.Namespaces() {
			if !d.Chance(70) {
				continue
			}
			s := service{namespace, string(rune('a' + i)), plugintest.Pick(d, "app", "tier", ""), plugintest.Pick(d, "1", "2")}
			services = append(services, s)
			selector := &metav1.LabelSelector{MatchLabels: map[string]string{s.key: s.value}}
			if s.key == "" {
				selector = nil
			}
			w.Table.SetGroup(namespace, nodetable.Group{APIVersion: "v1", Kind: "Service", Name: s.name}, selector)
		}
		args := &config.ServiceAffinityArgs{}
		for _, label := range []string{"rack", v1.LabelTopologyZone, "disk"} {
			if d.Chance(50) {
				args.AffinityLabels = append(args.AffinityLabels, label)
			}
			if d.Chance(50) {
				args.AntiAffinityLabelsPreference = append(args.AntiAffinityLabelsPreference, label)
			}
		}
		plugin := w.Make(serviceaffinity.New, args)
		p := d.Pod("p")
		judged := w.Evaluate(plugin, w.Digest(p))
		rejected, scores := reference(w, services, args, p)
		judged.Holds(t, "service affinity", rejected, scores)

		w.Table.Try()
		supposed := w.Suppose(d, func(*v1.Pod) {})
		rejected, _ = reference(supposed, services, args, p)
		for _, n := range w.Nodes {
			fits, _, s := judged.Cycle.FitsAlone(w.Table.Row(nodetable.Intern(n.Name)))
			if _, not := rejected[n.Name]; !s.OK() || fits == not {
				t.Fatalf("what if: %s fits %t, the reference says %t (%v)", n.Name, fits, !not, s)
			}
		}
		w.Table.Undo()
	}
}

func reference(w *plugintest.Objects, services []service, args *config.ServiceAffinityArgs, p *v1.Pod) (rejected map[string]string, scores map[string]int64) {
	var own *service
	for i := range services {
		if services[i].selects(p) {
			own = &services[i]
		}
	}
	wanted := map[string]string{}
	example := nodeOfAlike(w, p)
	for _, label := range args.AffinityLabels {
		if value, asked := p.Spec.NodeSelector[label]; asked {
			wanted[label] = value
		} else if own != nil && example != nil {
			if value, found := example.Labels[label]; found {
				wanted[label] = value
			}
		}
	}
	rejected = map[string]string{}
	var feasible []*v1.Node
	for _, n := range w.Nodes {
		if !has(n, wanted) {
			rejected[n.Name] = "node(s) didn't match service affinity"
		} else {
			feasible = append(feasible, n)
		}
	}
	if len(feasible) == 0 {
		return rejected, nil
	}
	count := func(n *v1.Node) (pods int) {
		for _, q := range w.On(n) {
			if own != nil && q.DeletionTimestamp == nil && own.selects(q) {
				pods++
			}
		}
		return pods
	}
	scores = map[string]int64{}
	for _, n := range feasible {
		sum := 0.0
		for _, label := range args.AntiAffinityLabelsPreference {
			value, found := n.Labels[label]
			if !found {
				continue
			}
			total, there := 0, 0
			for _, m := range feasible {
				total += count(m)
				if other, found := m.Labels[label]; found && other == value {
					there += count(m)
				}
			}
			share := 1.0
			if total > 0 {
				share = float64(total-there) / float64(total)
			}
			sum += 100 * share / float64(len(args.AntiAffinityLabelsPreference))
		}
		scores[n.Name] = int64(sum)
	}
	return rejected, scores
}

// nodeOfAlike is the first node in the table's order of a pod with the same labels.
func nodeOfAlike(w *plugintest.Objects, p *v1.Pod) *v1.Node {
	for _, row := range w.Table.Order() {
		n := w.Table.Node(row).Object
		for _, q := range w.On(n) {
			alike := q.Namespace == p.Namespace
			for key, value := range p.Labels {
				alike = alike && q.Labels[key] == value
			}
			if alike {
				return n
			}
		}
	}
	return nil
}

func has(n *v1.Node, wanted map[string]string) bool {
	for label, value := range wanted {
		if got, found := n.Labels[label]; !found || got != value {
			return false
		}
	}
	return true
}
