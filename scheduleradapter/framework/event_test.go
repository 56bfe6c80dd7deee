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

func TestEveryActionHasAName(t *testing.T) {
	if got := (All &^ Update).String(); got != "Add|Delete" {
		t.Errorf("actions that are no updates: %q", got)
	}
	if 1<<len(actionNames) != uint(actions) {
		t.Errorf("%d names for actions below %d", len(actionNames), actions)
	}
}
