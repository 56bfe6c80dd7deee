package nodetable

import (
	"fmt"
	"reflect"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

func machine(i int) *v1.Node {
	name := fmt.Sprint("node-", i)
	return &v1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, UID: types.UID(name), Labels: map[string]string{v1.LabelHostname: name, v1.LabelTopologyZone: "a"},
			Annotations: map[string]string{"address": name},
		},
		Spec: v1.NodeSpec{Taints: []v1.Taint{{Key: "a", Effect: v1.TaintEffectNoSchedule}}, Unschedulable: i == 1},
		Status: v1.NodeStatus{
			Allocatable:      v1.ResourceList{v1.ResourceCPU: resource.MustParse("4"), "example.com/gpu": resource.MustParse("2"), "example.com/none": resource.MustParse("0")},
			DeclaredFeatures: []string{"A"}, Images: []v1.ContainerImage{{Names: []string{"web:1"}, SizeBytes: 5}},
			Conditions: []v1.NodeCondition{{Type: v1.NodeReady, Status: v1.ConditionTrue, LastTransitionTime: metav1.Unix(int64(i), 0)}},
		},
	}
}

// TestNodesOfAMachineTypeShareAnObject: the digests are those of NewNode, and the object
// has what plugins read of it.
func TestNodesOfAMachineTypeShareAnObject(t *testing.T) {
	templates := NewTemplates()
	first := templates.NewNode(machine(0))
	avoided, larger := machine(3), machine(4)
	avoided.Annotations[v1.PreferAvoidPodsAnnotationKey] = "{}"
	larger.Status.Allocatable["example.com/gpu"] = resource.MustParse("3")
	for object, shares := range map[*v1.Node]bool{machine(1): true, machine(2): true, avoided: false, larger: false} {
		n, want := templates.NewNode(object), NewNode(object)
		if (n.Object == first.Object) != shares {
			t.Errorf("node %s shares an object: %v", object.Name, !shares)
		}
		digest := *n
		digest.Object, digest.template = want.Object, nil
		if !reflect.DeepEqual(digest, *want) {
			t.Errorf("digest of node %s is %+v, expected %+v", object.Name, digest, *want)
		}
		own := n.OwnObject()
		if own.Name != object.Name || own.UID != object.UID || !reflect.DeepEqual(own.Labels, object.Labels) || own.Spec.Unschedulable != object.Spec.Unschedulable ||
			!reflect.DeepEqual(own.Status.DeclaredFeatures, object.Status.DeclaredFeatures) || len(own.Status.Allocatable) != len(object.Status.Allocatable) ||
			own.Annotations[v1.PreferAvoidPodsAnnotationKey] != object.Annotations[v1.PreferAvoidPodsAnnotationKey] {
			t.Errorf("object of node %s is %+v", object.Name, own)
		}
	}
	changed := machine(0)
	changed.Status.Conditions[0] = v1.NodeCondition{Type: v1.NodeReady, Status: v1.ConditionFalse, LastTransitionTime: metav1.Time{Time: time.Unix(9, 0)}}
	if c := Changes(first, templates.NewNode(changed)); c != ChangedConditions {
		t.Errorf("changes are %b", c)
	}
}
