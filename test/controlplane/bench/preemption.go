package main

import (
	"context"
	"encoding/json"
	"fmt"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
)

// listVictims returns a pod of lower priority for each node that has some.
func listVictims(ctx context.Context, client kubernetes.Interface) (map[string]*v1.Pod, error) {
	list, err := client.CoreV1().Pods(fillers).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	victims := map[string]*v1.Pod{}
	for i := range list.Items {
		victims[list.Items[i].Spec.NodeName] = &list.Items[i]
	}
	return victims, nil
}

// makeRoom writes what a scheduler writes before it binds a preemptor: the nomination,
// the victim's condition, and the deletion.
func makeRoom(ctx context.Context, client kubernetes.Interface, preemptor, victim *v1.Pod) error {
	err := patchStatus(ctx, client, preemptor, v1.PodStatus{NominatedNodeName: victim.Spec.NodeName, Conditions: []v1.PodCondition{{
		Type: v1.PodScheduled, Status: v1.ConditionFalse, Reason: v1.PodReasonUnschedulable,
		Message: fmt.Sprintf("preemption: found a potential placement for pod on node %s, preempting 1 victims", victim.Spec.NodeName),
	}}})
	if err == nil {
		err = patchStatus(ctx, client, victim, v1.PodStatus{Conditions: []v1.PodCondition{{
			Type: v1.DisruptionTarget, Status: v1.ConditionTrue, Reason: v1.PodReasonPreemptionByScheduler,
			Message: "preempting to accommodate a higher priority pod",
		}}})
	}
	if err != nil {
		return err
	}
	return client.CoreV1().Pods(victim.Namespace).Delete(ctx, victim.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &victim.UID}})
}

func patchStatus(ctx context.Context, client kubernetes.Interface, pod *v1.Pod, status v1.PodStatus) error {
	body, err := json.Marshal(v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: pod.UID}, Status: status})
	if err != nil {
		return err
	}
	_, err = client.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.StrategicMergePatchType, body, metav1.PatchOptions{}, "status")
	return err
}
