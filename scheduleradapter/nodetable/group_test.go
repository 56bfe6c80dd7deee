package nodetable

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestOfSeveralServicesTheFirstByNameCounts(t *testing.T) {
	table := New()
	set := func(name string, selector *metav1.LabelSelector) {
		table.SetGroup("blue", Group{"v1", "Service", name}, selector)
	}
	p := NewPod(&v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "blue", Labels: map[string]string{"app": "web", "tier": "front"}}})
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
