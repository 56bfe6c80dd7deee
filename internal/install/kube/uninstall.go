// Package kube has the pods of a DaemonSet uninstall evictd from their hosts.
package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/evictd/evictd/internal/install"
)

// Where the installation is.
const (
	Namespace = "evictd-system"
	Name      = "evictd" // of the DaemonSet and, as the label app, of its pods
)

// poll is how often the pods are listed.
const poll = 2 * time.Second

// Uninstall has all pods of the DaemonSet replaced by those that uninstall, waits for them, and removes
// what evictd has written of their nodes. It returns the names of the nodes where that has not happened when ctx ends, sorted.
func Uninstall(ctx context.Context, client kubernetes.Interface, report func(node string)) (missing []string, err error) {
	before, err := pods(ctx, client)
	if err != nil {
		return nil, err
	}
	patch, err := json.Marshal(map[string]any{"spec": map[string]any{
		"updateStrategy": map[string]any{"rollingUpdate": map[string]any{"maxUnavailable": "100%"}},
		"template": map[string]any{"spec": map[string]any{"containers": []any{
			map[string]any{"name": Name, "env": []any{map[string]any{"name": install.UninstallVariable, "value": "true"}}},
		}}},
	}})
	if err != nil {
		return nil, err
	}
	if _, err := client.AppsV1().DaemonSets(Namespace).Patch(ctx, Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}); err != nil {
		return nil, fmt.Errorf("have the pods of daemonset %s/%s uninstall: %w", Namespace, Name, err)
	}
	nodes := map[string]bool{} // whether it is done
	for _, pod := range before {
		nodes[nodeOf(&pod)] = false
	}
	delete(nodes, "")
	tick := time.NewTicker(poll)
	defer tick.Stop()
	for {
		finished, err := look(ctx, client, nodes, report)
		if finished {
			return nil, nil
		}
		if err != nil && ctx.Err() == nil {
			return unfinished(nodes), err
		}
		select {
		case <-ctx.Done():
			return unfinished(nodes), nil
		case <-tick.C:
		}
	}
}

// look lists the pods once, and clears each node whose pod has uninstalled since the last time. It
// says whether all nodes are done.
func look(ctx context.Context, client kubernetes.Interface, nodes map[string]bool, report func(node string)) (finished bool, err error) {
	now, err := pods(ctx, client)
	if err != nil {
		return false, err
	}
	set, err := client.AppsV1().DaemonSets(Namespace).Get(ctx, Name, metav1.GetOptions{})
	if err != nil {
		return false, fmt.Errorf("read daemonset %s/%s: %w", Namespace, Name, err)
	}
	for _, pod := range now {
		node := nodeOf(&pod)
		if node == "" || nodes[node] {
			continue
		}
		nodes[node] = uninstalled(&pod)
		if nodes[node] {
			if err := clearNode(ctx, client, node); err != nil {
				nodes[node] = false
				return false, err
			}
			report(node)
		}
	}
	return set.Status.ObservedGeneration >= set.Generation && len(unfinished(nodes)) == 0 && len(nodes) >= int(set.Status.DesiredNumberScheduled), nil
}

func unfinished(nodes map[string]bool) []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(nodes)), func(node string) bool { return nodes[node] })
}

func pods(ctx context.Context, client kubernetes.Interface) ([]v1.Pod, error) {
	list, err := client.CoreV1().Pods(Namespace).List(ctx, metav1.ListOptions{LabelSelector: "app=" + Name})
	if err != nil {
		return nil, fmt.Errorf("list the pods of daemonset %s/%s: %w", Namespace, Name, err)
	}
	return list.Items, nil
}

// uninstalled says whether a pod is one that uninstalls, and has.
func uninstalled(pod *v1.Pod) bool {
	asked := slices.ContainsFunc(pod.Spec.Containers, func(c v1.Container) bool {
		return slices.ContainsFunc(c.Env, func(e v1.EnvVar) bool { return e.Name == install.UninstallVariable && e.Value == "true" })
	})
	return asked && slices.ContainsFunc(pod.Status.Conditions, func(c v1.PodCondition) bool {
		return c.Type == v1.PodReady && c.Status == v1.ConditionTrue
	})
}

// nodeOf is the node of a pod that a DaemonSet controller has made, bound or not.
func nodeOf(pod *v1.Pod) string {
	if pod.Spec.NodeName != "" {
		return pod.Spec.NodeName
	}
	if pod.Spec.Affinity == nil || pod.Spec.Affinity.NodeAffinity == nil || pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return ""
	}
	for _, term := range pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
		for _, field := range term.MatchFields {
			if field.Key == metav1.ObjectNameField && len(field.Values) == 1 {
				return field.Values[0]
			}
		}
	}
	return ""
}
