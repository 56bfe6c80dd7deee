package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/retry"
)

// prefix is that of the conditions and taints that evictd has beside a kubelet.
const prefix = "evictd.io/"

// clearNode removes from the API server what an evictd that has ended has written of its node:
// conditions, taints and the Lease. A Node that is gone has none.
func clearNode(ctx context.Context, client kubernetes.Interface, name string) error {
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error { return clearTaints(ctx, client, name) })
	if err == nil {
		err = clearConditions(ctx, client, name)
	}
	if err == nil {
		err = client.CoordinationV1().Leases(Namespace).Delete(ctx, "evictd-"+name, metav1.DeleteOptions{})
	}
	if err != nil && !errors.IsNotFound(err) {
		return fmt.Errorf("remove what evictd has written of node %s: %w", name, err)
	}
	return nil
}

func clearTaints(ctx context.Context, client kubernetes.Interface, name string) error {
	node, err := client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	others := slices.DeleteFunc(slices.Clone(node.Spec.Taints), func(t v1.Taint) bool { return strings.HasPrefix(t.Key, prefix) })
	if len(others) == len(node.Spec.Taints) {
		return nil
	}
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"resourceVersion": node.ResourceVersion}, "spec": map[string]any{"taints": others},
	})
	if err != nil {
		return err
	}
	_, err = client.CoreV1().Nodes().Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{})
	return err
}

func clearConditions(ctx context.Context, client kubernetes.Interface, name string) error {
	node, err := client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	var removals []any
	for _, c := range node.Status.Conditions {
		if strings.HasPrefix(string(c.Type), prefix) {
			removals = append(removals, map[string]any{"type": c.Type, "$patch": "delete"})
		}
	}
	if len(removals) == 0 {
		return nil
	}
	patch, err := json.Marshal(map[string]any{"status": map[string]any{"conditions": removals}})
	if err != nil {
		return err
	}
	_, err = client.CoreV1().Nodes().Patch(ctx, name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	return err
}
