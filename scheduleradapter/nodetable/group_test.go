package nodetable

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestSiblingsAreWhatServicesAndTheControllerSelectTogether(t *testing.T) {
	labels := func(pairs ...string) map[string]string {
		m := map[string]string{}
		for i := 0; i < len(pairs); i += 2 {
			m[pairs[i]] = pairs[i+1]
		}
		return m
	}
	matching := func(pairs ...string) *metav1.LabelSelector {
		return &metav1.LabelSelector{MatchLabels: labels(pairs...)}
	}
	service := func(name string) Group { return Group{"v1", "Service", name} }
	set := Group{"apps/v1", "ReplicaSet", "web-1"}
	yes := true
	owned := []metav1.OwnerReference{{APIVersion: set.APIVersion, Kind: set.Kind, Name: set.Name, UID: "1", Controller: &yes}}
	type groups map[Group]*metav1.LabelSelector
	cases := map[string]struct {
		groups groups
		owners []metav1.OwnerReference
		want   string // of the selector; empty: no siblings
	}{
		"no group at all":                          {nil, owned, ""},
		"a service that selects the pod":           {groups{service("web"): matching("app", "web")}, nil, `"app" 0 "web";`},
		"a service of other pods":                  {groups{service("db"): matching("app", "db")}, nil, ""},
		"a service that selects everything":        {groups{service("all"): matching()}, nil, ""},
		"a service without a selector":             {groups{service("none"): nil}, nil, ""},
		"two services":                             {groups{service("a"): matching("app", "web"), service("b"): matching("tier", "front")}, nil, `"app" 0 "web";"tier" 0 "front";`},
		"a controller":                             {groups{set: matching("hash", "1")}, owned, `"hash" 0 "1";`},
		"a controller of other pods":               {groups{set: matching("hash", "1")}, nil, ""},
		"a service and a controller":               {groups{service("web"): matching("app", "web"), set: matching("hash", "1")}, owned, `"app" 0 "web";"hash" 0 "1";`},
		"the same condition of both counts once":   {groups{service("web"): matching("app", "web"), set: matching("app", "web")}, owned, `"app" 0 "web";`},
		"a controller that does not select it":     {groups{set: matching("hash", "2")}, owned, `"hash" 0 "2";`},
		"a controller of a kind that is not known": {groups{Group{"batch/v1", "Job", "web-1"}: matching("hash", "1")}, owned, ""},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			table := New()
			for g, selector := range c.groups {
				if err := table.SetGroup("blue", g, selector); err != nil {
					t.Fatal(err)
				}
			}
			p, err := NewPod(&v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "blue", Labels: labels("app", "web", "tier", "front"), OwnerReferences: c.owners}})
			if err != nil {
				t.Fatal(err)
			}
			want := ""
			if c.want != "" {
				want = `["blue"]|none|` + c.want + "|true"
			}
			for range 2 { // the second result is cached
				got := ""
				if m := table.Siblings(p); m != nil {
					got = m.Key.Value()
				}
				if got != want {
					t.Errorf("siblings %s, want %s", got, want)
				}
			}
			other := *p
			if other.Namespace = Intern("red"); table.Siblings(&other) != nil {
				t.Error("a pod of another namespace has siblings")
			}
		})
	}
}

func TestSiblingsFollowTheGroupsAndTheLabels(t *testing.T) {
	table := New()
	pod := func(app string) *Pod {
		p, err := NewPod(&v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "blue", Labels: map[string]string{"app": app}}})
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	web, db := pod("web"), pod("db")
	set := func(selector *metav1.LabelSelector) {
		if err := table.SetGroup("blue", Group{"v1", "Service", "web"}, selector); err != nil {
			t.Fatal(err)
		}
	}
	expect := func(p *Pod, some bool) {
		t.Helper()
		if got := table.Siblings(p) != nil; got != some {
			t.Errorf("app %s has siblings: %t, want %t", p.Object.Labels["app"], got, some)
		}
	}
	expect(web, false)
	set(&metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}})
	expect(web, true)
	expect(db, false)
	expect(web, true)
	set(&metav1.LabelSelector{MatchLabels: map[string]string{"app": "db"}})
	expect(web, false)
	expect(db, true)
	set(nil)
	expect(db, false)
	if err := table.SetGroup("blue", Group{"v1", "Service", "web"}, &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "app", Operator: "Near"}}}); err == nil {
		t.Error("an unknown operator is taken")
	}
}

func TestOfSeveralServicesTheFirstByNameCounts(t *testing.T) {
	table := New()
	set := func(name string, selector *metav1.LabelSelector) {
		if err := table.SetGroup("blue", Group{"v1", "Service", name}, selector); err != nil {
			t.Fatal(err)
		}
	}
	p, err := NewPod(&v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "blue", Labels: map[string]string{"app": "web", "tier": "front"}}})
	if err != nil {
		t.Fatal(err)
	}
	if table.Service(p) != nil {
		t.Error("a service where there is none")
	}
	set("a", &metav1.LabelSelector{MatchLabels: map[string]string{"app": "db"}})
	if table.Service(p) != nil {
		t.Error("a service of other pods")
	}
	set("c", &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}})
	set("b", &metav1.LabelSelector{MatchLabels: map[string]string{"tier": "front"}})
	if got := table.Service(p).Key.Value(); got != `["blue"]|none|"tier" 0 "front";|true` {
		t.Errorf("service %s", got)
	}
	set("b", nil)
	if got := table.Service(p).Key.Value(); got != `["blue"]|none|"app" 0 "web";|true` {
		t.Errorf("service %s", got)
	}
}
