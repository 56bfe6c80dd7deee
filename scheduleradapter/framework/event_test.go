package framework

import "testing"

func TestEventsHaveTheLabelsOfKubernetesMetrics(t *testing.T) {
	for _, c := range []struct {
		event Event
		want  string
	}{
		{Event{Resource: AssignedPod, Action: Delete}, "AssignedPodDelete"},
		{Event{Resource: NodeResource, Action: UpdateNodeTaint}, "NodeUpdateNodeTaint"},
		{Event{Resource: StorageClass, Action: Add}, "storage.k8s.io/StorageClassAdd"},
		{Event{Resource: NodeResource, Action: All}, "NodeAll"},
		{UnschedulableTimeout, "UnschedulableTimeout"},
		{ForceActivate, "ForceActivate"},
	} {
		if got := c.event.String(); got != c.want {
			t.Errorf("label %q, want %q", got, c.want)
		}
	}
}

func TestWhoAskedForAnEventHearsOfIt(t *testing.T) {
	deleted := Event{Resource: AssignedPod, Action: Delete}
	for _, c := range []struct {
		name  string
		asked Event
		want  bool
	}{
		{"the same", deleted, true},
		{"one of several actions", Event{Resource: AssignedPod, Action: Add | Delete}, true},
		{"another action", Event{Resource: AssignedPod, Action: Add}, false},
		{"every pod", Event{Resource: PodResource, Action: Delete}, true},
		{"another kind of pod", Event{Resource: TargetPod, Action: Delete}, false},
		{"anything", Event{Resource: AnyResource, Action: All}, true},
		{"another resource", Event{Resource: NodeResource, Action: All}, false},
	} {
		if got := c.asked.Includes(deleted); got != c.want {
			t.Errorf("%s: %t", c.name, got)
		}
	}
}

func TestEveryActionHasAName(t *testing.T) {
	if got := (All &^ Update).String(); got != "Add|Delete" {
		t.Errorf("actions that are no updates: %q", got)
	}
	if 1<<len(actionNames) != uint(actions) {
		t.Errorf("%d names for actions below %d", len(actionNames), actions)
	}
}
