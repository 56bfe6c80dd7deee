package kube

import (
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evictd/evictd/nodestatus"
)

// removeLeftover removes the conditions and taints that an evictd of another mode has written and, if
// this one writes none, those of any mode, with the headroom: nothing else would update them. It removes the conditions first, as
// the node lifecycle controller adds the taint of a condition again.
func (p *Publisher) removeLeftover(ctx context.Context) error {
	nodes := p.client.CoreV1().Nodes()
	node, err := nodes.Get(ctx, p.node.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read node %s: %w", p.node.Name, err)
	}
	left := p.mode.Leftover(node, p.node.Publish)
	if len(left.Conditions) > 0 {
		var removed []object
		for _, kind := range left.Conditions {
			removed = append(removed, object{"type": kind, "$patch": "delete"})
		}
		body := patch(object{"status": object{"conditions": removed}})
		node, err = nodes.Patch(ctx, p.node.Name, types.StrategicMergePatchType, body, metav1.PatchOptions{}, "status")
		p.requests.record("conditions", err)
		if err != nil {
			return fmt.Errorf("remove conditions of node %s: %w", p.node.Name, err)
		}
	}
	if _, err := p.patchTaints(ctx, node, left.Without); err != nil {
		return err
	}
	if len(left.Conditions)+len(left.Taints) > 0 {
		p.log.Info("removed what an earlier evictd had written to the Node", "conditions", left.Conditions, "taints", left.Taints)
	}
	if p.node.Publish {
		return nil
	}
	body := patch(object{"metadata": object{"annotations": object{nodestatus.HeadroomAnnotation: nil}}})
	_, err = p.client.CoordinationV1().Leases(leaseNamespace).Patch(ctx, leasePrefix+p.node.Name, types.MergePatchType, body, metav1.PatchOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("remove the headroom of node %s: %w", p.node.Name, err)
	}
	return nil
}

// patchTaints changes the Node's taints under the resourceVersion that it has read, as a patch replaces the whole
// list. It reads the Node again after a conflict. It returns the Node as written; nil if change changes nothing.
func (p *Publisher) patchTaints(ctx context.Context, node *v1.Node, change func([]v1.Taint) (taints []v1.Taint, changed bool)) (*v1.Node, error) {
	nodes := p.client.CoreV1().Nodes()
	for attempt := 1; ; attempt++ {
		taints, changed := change(node.Spec.Taints)
		if !changed {
			p.requests.record("taints", nil)
			return nil, nil
		}
		if taints == nil {
			taints = []v1.Taint{}
		}
		body := patch(object{"metadata": object{"resourceVersion": node.ResourceVersion}, "spec": object{"taints": taints}})
		written, err := nodes.Patch(ctx, p.node.Name, types.MergePatchType, body, metav1.PatchOptions{})
		p.taintsAnswered(p.requests.record("taints", err))
		if err == nil {
			return written, nil
		}
		if !apierrors.IsConflict(err) || attempt == conflictAttempts {
			return nil, fmt.Errorf("patch taints of node %s: %w", p.node.Name, err)
		}
		if node, err = nodes.Get(ctx, p.node.Name, metav1.GetOptions{}); err != nil {
			return nil, fmt.Errorf("read node %s: %w", p.node.Name, err)
		}
	}
}
