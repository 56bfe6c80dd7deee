package nodetable

import (
	"fmt"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// appMatcher matches the pods of an app, in a namespace or in those of a team.
func appMatcher(app, namespace, team string) *Matcher {
	selector := NewSelector(&metav1.LabelSelector{MatchLabels: map[string]string{"app": app}})
	if team == "" {
		return NewMatcher([]string{namespace}, nil, selector, true)
	}
	return NewMatcher(nil, NewSelector(&metav1.LabelSelector{MatchLabels: map[string]string{"team": team}}), selector, true)
}

// apps is a table with pods of a number of apps, in ten namespaces, each with its own
// team.
func apps(nodes, apps, pods int) *Table {
	table := New()
	for i := range nodes {
		table.SetNode(node(fmt.Sprint("n", i), nil))
	}
	for i := range 10 {
		table.SetNamespace(fmt.Sprint("ns-", i), NewLabels(map[string]string{"team": fmt.Sprint("team-", i)}))
	}
	for i := range pods {
		app := i % apps
		table.Place(NewPod(&v1.Pod{ObjectMeta: metav1.ObjectMeta{
			Namespace: fmt.Sprint("ns-", app%10), UID: types.UID(fmt.Sprint(i)), Labels: map[string]string{"app": fmt.Sprint("app-", app), "tier": "web"},
		}}), Row(i%nodes))
	}
	return table
}

// TestANewSelectorLooksAtItsOwnPods: the work depends on the label sets with a label of the
// selector, and not on the number of pods.
func TestANewSelectorLooksAtItsOwnPods(t *testing.T) {
	table := apps(50, 100, 2_000)
	equal(t, "pods of app-7", table.Counter(appMatcher("app-7", "ns-7", "")).Total(), 20)
	equal(t, "matched label sets", table.sets.matched, 1)
	ofTeam := table.Counter(appMatcher("app-7", "", "team-1"))
	equal(t, "pods of app-7 in the namespaces of team-1", ofTeam.Total(), 0)

	before := table.sets.matched
	table.SetNamespace("ns-7", NewLabels(map[string]string{"team": "team-1"}))
	equal(t, "pods of app-7 after ns-7 has changed its team", ofTeam.Total(), 20)
	equal(t, "matched label sets of ns-7", table.sets.matched-before, 2)
	before = table.sets.matched
	table.SetNamespace("ns-7", NewLabels(map[string]string{"team": "team-1", "tier": "gold"}))
	table.SetNamespace("ns-8", NewLabels(map[string]string{"team": "team-2"}))
	equal(t, "matched label sets of changes without effect", table.sets.matched-before, 0)
	table.SetNamespace("ns-7", nil)
	equal(t, "pods of app-7 after the deletion of ns-7", ofTeam.Total(), 0)
}

func TestLabelSetsOfNoPodAreFreed(t *testing.T) {
	table := apps(5, 10, 20)
	table.Try()
	for _, p := range append([]*Pod(nil), table.PodsOn(0)...) {
		table.Displace(p.UID)
	}
	table.Undo()
	equal(t, "label sets after a try", len(table.sets.byKey), 10)
	for i := range 20 {
		table.Displace(types.UID(fmt.Sprint(i)))
	}
	equal(t, "label sets", len(table.sets.byKey)+len(table.sets.in), 0)
}

// BenchmarkNewSelector counts the pods of a new selector, and those of a namespace whose
// labels change, with 100,000 pods of 2,000 apps.
func BenchmarkNewSelector(b *testing.B) {
	table := apps(5_000, 2_000, 100_000)
	b.Run("selector", func(b *testing.B) {
		i := 0
		for b.Loop() {
			i++
			m := appMatcher(fmt.Sprint("app-", i%2_000), fmt.Sprint("ns-", i%10), "")
			delete(table.counters.byKey, m.Key)
			table.Counter(m)
		}
	})
	b.Run("namespace", func(b *testing.B) {
		for i := range 20 {
			table.Counter(appMatcher(fmt.Sprint("app-", i), "", "team-1"))
		}
		i := 0
		for b.Loop() {
			i++
			table.SetNamespace("ns-5", NewLabels(map[string]string{"team": fmt.Sprint("team-", i%2)}))
		}
	})
}
