package eviction

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/evictd/evictd/internal/require"
	"github.com/evictd/evictd/stats"
)

// The tests of this file fail when a step of a recipe in docs/CONTRIBUTING.md is missing.

func TestEverySignalIsComplete(t *testing.T) {
	var node stats.Node
	measureAll(reflect.ValueOf(&node).Elem())
	node.MemoryStall.Known = true
	observer := Observer{Thrash: stats.Thrash{Window: time.Second}}
	observer.Observe(&node)
	node.Time = node.Time.Add(time.Second)
	observed := observer.Observe(&node)
	page := require.ReadFile(t, "../docs/how-eviction-decides.md")
	for _, s := range Signals() {
		name := s.String()
		if parsed, err := ParseSignal(name); err != nil || parsed != s {
			t.Errorf("signal %d: its row in eviction/signal.go has no name of its own: %q", s, name)
		}
		if s.Resource() == "" {
			t.Errorf("%s: its row in eviction/signal.go has no resource", name)
		}
		if !observed[s].Available.IsKnown() || !observed[s].Capacity.IsKnown() {
			t.Errorf("%s: eviction/observe.go makes no observation of a node on which everything is measured", name)
		}
		if len(orders[s.Condition()]) == 0 {
			t.Errorf("%s: eviction/rank.go has no order for %v", name, s.Condition())
		}
		if !strings.Contains(string(page), "`"+name+"`") {
			t.Errorf("%s: docs/how-eviction-decides.md does not list it", name)
		}
	}
}

// measureAll sets every amount below a struct, each to a number of its own, and every time.
func measureAll(v reflect.Value) {
	next := int64(1 << 20)
	var fill func(reflect.Value)
	fill = func(v reflect.Value) {
		switch {
		case v.Type() == reflect.TypeFor[stats.Amount]():
			next += 1 << 20
			v.Set(reflect.ValueOf(stats.Known(next)))
		case v.Type() == reflect.TypeFor[time.Time]():
			v.Set(reflect.ValueOf(time.Unix(1, 0)))
		case v.Kind() == reflect.Struct:
			for i := range v.NumField() {
				if v.Type().Field(i).IsExported() {
					fill(v.Field(i))
				}
			}
		}
	}
	fill(v)
}

func TestEveryRankingKeyExplainsItself(t *testing.T) {
	usage := func(memory int64) *stats.Pod {
		return &stats.Pod{Memory: stats.Known(memory), Processes: stats.Known(memory >> 20)}
	}
	a := &Pod{UID: "a", Namespace: "default", Name: "a", Preference: EvictFirst}
	b := &Pod{UID: "b", Namespace: "default", Name: "b", Priority: 1}
	for c, order := range orders {
		signal := map[Condition]Signal{MemoryPressure: MemoryAvailable, DiskPressure: NodeFsAvailable, PIDPressure: PIDAvailable}[Condition(c)]
		ranked := Rank(&Config{PreferenceNamespaces: []string{"default"}}, signal, []Candidate{{Pod: a, Usage: usage(2 << 20)}, {Pod: b, Usage: usage(1 << 20)}}, nil)
		names := map[string]bool{}
		for _, k := range order {
			if k.name == "" || names[k.name] {
				t.Errorf("%v: the name %q of a key is empty or used twice", Condition(c), k.name)
			}
			names[k.name] = true
			if k.value(&ranked[0]) == "" || k.because(&ranked[0], &ranked[1]) == "" {
				t.Errorf("%v: the key %q has no value or no reason in words", Condition(c), k.name)
			}
		}
		if last := order[len(order)-1]; last.name != byUID.name {
			t.Errorf("%v: the last key is %q, and two pods may be equal by it", Condition(c), last.name)
		}
	}
}
