// Package avoidance is the plugin NodePreferAvoidPods of legacy Policies, which
// scores nodes by the annotation scheduler.alpha.kubernetes.io/preferAvoidPods.
package avoidance

import (
	"slices"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1 "k8s.io/component-helpers/scheduling/corev1"

	"github.com/evictd/evictd/scheduleradapter/framework"
	"github.com/evictd/evictd/scheduleradapter/nodetable"
)

// Name of the plugin.
const Name = "NodePreferAvoidPods"

// Plugin is NodePreferAvoidPods.
type Plugin struct{}

func New(any, framework.Env) (framework.Plugin, error) { return Plugin{}, nil }

func (Plugin) Name() string { return Name }

// Score is 0 for a node whose annotation names the ReplicationController or
// ReplicaSet that controls the pod. An invalid annotation names none.
func (Plugin) Score(c *framework.Cycle, rows []nodetable.Row, scores []int64) framework.Status {
	for i := range scores {
		scores[i] = framework.MaxScore
	}
	owner := metav1.GetControllerOfNoCopy(c.Pod.Object)
	if owner == nil || owner.Kind != "ReplicationController" && owner.Kind != "ReplicaSet" {
		return framework.Status{}
	}
	for i, row := range rows {
		if avoids(c.Table.Node(row).Object, owner) {
			scores[i] = 0
		}
	}
	return framework.Status{}
}

func avoids(node *v1.Node, owner *metav1.OwnerReference) bool {
	if node.Annotations[v1.PreferAvoidPodsAnnotationKey] == "" {
		return false
	}
	told, err := corev1.GetAvoidPodsFromNodeAnnotations(node.Annotations)
	return err == nil && slices.ContainsFunc(told.PreferAvoidPods, func(e v1.PreferAvoidPodsEntry) bool {
		controller := e.PodSignature.PodController
		return controller != nil && controller.Kind == owner.Kind && controller.UID == owner.UID
	})
}
