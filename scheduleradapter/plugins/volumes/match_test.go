package volumes

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/evictd/evictd/scheduleradapter/framework"
	"github.com/evictd/evictd/scheduleradapter/nodetable"
)

// The reference searches the volumes of the claims for each node.
func TestVolumesFoundAreThoseOfTheReference(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for round := range 1000 {
		k := newCluster(t, 5)
		k.add(storageClass("x", noProvisioner, waits), storageClass("y", noProvisioner, waits))
		var volumes []*v1.PersistentVolume
		for i := range r.IntN(12) {
			v := persistent(fmt.Sprintf("v%02d", i), []string{"x", "y"}[r.IntN(2)], fmt.Sprint(1+r.IntN(4), "Gi"))
			if r.IntN(4) > 0 {
				v = persistent(v.Name, v.Spec.StorageClassName, v.Spec.Capacity.Storage().String(), string(rune('a'+r.IntN(5))), string(rune('a'+r.IntN(5))))
			}
			if r.IntN(6) == 0 {
				v.Spec.ClaimRef = &v1.ObjectReference{Namespace: "ns", Name: fmt.Sprint("c", r.IntN(4))}
			}
			volumes = append(volumes, v)
			k.add(v)
		}
		var claims []*v1.PersistentVolumeClaim
		var names []string
		for i := range 1 + r.IntN(3) {
			claims = append(claims, newClaim(fmt.Sprint("c", i), []string{"x", "y"}[r.IntN(2)], fmt.Sprint(1+r.IntN(4), "Gi")))
			names = append(names, claims[i].Name)
			k.add(claims[i])
		}
		b := k.binding()
		v := k.Evaluate(b, k.Digest(pod("p", names...)))
		for row := range k.Table.Alive().All() {
			want := naiveMatch(k.Table.Node(row), claims, volumes)
			_, rejected := v.Cycle.Rejected(row)
			if rejected != slices.Contains(want, "") {
				t.Fatalf("round %d: row %d rejected %t, its volumes %q", round, row, rejected, want)
			}
			if rejected {
				continue
			}
			var got []string
			for _, w := range b.wants {
				got = append(got, w.found[row].now.Name)
			}
			if !slices.Equal(got, want) {
				t.Fatalf("round %d: row %d has %q, want %q", round, row, got, want)
			}
		}
	}
}

func naiveMatch(n *nodetable.Node, claims []*v1.PersistentVolumeClaim, volumes []*v1.PersistentVolume) (names []string) {
	claims = slices.Clone(claims)
	slices.SortStableFunc(claims, func(a, b *v1.PersistentVolumeClaim) int {
		return a.Spec.Resources.Requests.Storage().Cmp(*b.Spec.Resources.Requests.Storage())
	})
	for _, c := range claims {
		var best, own *v1.PersistentVolume
		for _, v := range volumes {
			if v.Spec.StorageClassName != *c.Spec.StorageClassName || v.Spec.Capacity.Storage().Cmp(*c.Spec.Resources.Requests.Storage()) < 0 || slices.Contains(names, v.Name) {
				continue
			}
			smaller := func(than *v1.PersistentVolume) bool {
				return than == nil || v.Spec.Capacity.Storage().Cmp(*than.Spec.Capacity.Storage()) < 0
			}
			switch {
			case v.Spec.ClaimRef != nil && v.Spec.ClaimRef.Name == c.Name:
				if smaller(own) {
					own = v
				}
			case v.Spec.ClaimRef == nil && reaches(v, n) && smaller(best):
				best = v
			}
		}
		if own != nil {
			if best = own; !reaches(own, n) {
				best = nil
			}
		}
		name := ""
		if best != nil {
			name = best.Name
		}
		names = append(names, name)
	}
	return names
}

func reaches(v *v1.PersistentVolume, n *nodetable.Node) bool {
	return v.Spec.NodeAffinity == nil || slices.Contains(v.Spec.NodeAffinity.Required.NodeSelectorTerms[0].MatchExpressions[0].Values, n.Object.Labels[v1.LabelTopologyZone])
}

// BenchmarkVolumes is PreFilter, Filter and Score for a pod with one claim and 30
// pods with a claim on each node: a volume for all nodes, one of as many local
// volumes as nodes, and one that counts against the limit of the node.
func BenchmarkVolumes(b *testing.B) {
	type plugin interface {
		framework.PreFilterer
		framework.Filterer
	}
	for _, nodes := range []int{500, 5_000, 20_000} {
		k := newCluster(b, 0)
		k.add(storageClass("local", noProvisioner, waits), newClaim("local", "local", "1Gi"), persistent("net", "", "1Gi"), boundClaim("bound", "net"))
		for i := range nodes {
			name := fmt.Sprint("node-", i)
			k.Table.SetNode(nodetable.NewNode(node(name, map[string]string{v1.LabelTopologyZone: name})))
			k.add(csiNode(name, map[string]int32{"csi": 40}), persistent(fmt.Sprint("local-", i), "local", "10Gi", name))
		}
		for i := range 30 * min(nodes, 5_000) {
			claim := fmt.Sprint("c", i)
			k.add(persistent(fmt.Sprint("v", i), "", "1Gi"), boundClaim(claim, fmt.Sprint("v", i)))
			k.Table.Place(k.Digest(pod(fmt.Sprint("p", i), claim)), nodetable.Row(i%nodes))
		}
		binding, limits := k.binding(), k.Make(k.NewLimits, onlyCSI()).(*Limits)
		for _, w := range []struct {
			name   string
			plugin plugin
			claim  string
		}{{"bound", binding, "bound"}, {"local", binding, "local"}, {"limits", limits, "bound"}} {
			b.Run(fmt.Sprintf("%s/%d nodes", w.name, nodes), func(b *testing.B) {
				p := k.Digest(pod("coming", w.claim))
				c := k.Evaluate(w.plugin.(framework.Plugin), p).Cycle
				scores := make([]int64, len(c.Rows))
				b.ReportAllocs()
				for b.Loop() {
					c.Feasible = c.Feasible.Copied(k.Table.Alive())
					w.plugin.PreFilter(c)
					w.plugin.Filter(c)
					if w.plugin == plugin(binding) {
						binding.Score(c, c.Rows, scores)
					}
				}
			})
		}
	}
}
